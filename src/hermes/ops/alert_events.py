"""Every alert that Hermes can raise: how urgent it is, what it is about, what it means, and what the operator can do.

Only the facts that are listed here leave the process: a fact that a caller adds stays in the log. `docs/operate/alerts.md` prints this
table, and a test compares it with every call in the source."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum
from uuid import UUID

from hermes.ports.alerts import AlertFact, AlertLevel, AlertReport

MAX_TEXT_CHARS = 200
"""A longer text of a fact is cut: a name or a number is never that long."""
INTEGER_LIMIT = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertKind:
    """One event. Two alerts of it are the same if the facts that `subject` names are equal."""

    meaning: str
    advice: str
    level: AlertLevel = AlertLevel.WARNING
    subject: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    """Facts that are shown besides those of the subject."""
    is_critical: Callable[[Mapping[str, AlertFact]], bool] | None = None
    """Whether these facts make a warning critical."""

    def level_of(self, facts: Mapping[str, AlertFact]) -> AlertLevel:
        return AlertLevel.CRITICAL if self.is_critical is not None and self.is_critical(facts) else self.level


def is_platform_cap(facts: Mapping[str, AlertFact]) -> bool:
    """Whether the daily cap of all users together is reached: from then on every call is refused."""
    percent = facts.get("percent")
    return facts.get("user_id") is None and facts.get("agent") is None and isinstance(percent, int) and percent >= 100


WARNING, CRITICAL = AlertLevel.WARNING, AlertLevel.CRITICAL

ALERT_KINDS: Mapping[str, AlertKind] = {
    # --- models and money
    "no_usable_model": AlertKind(
        level=CRITICAL,
        facts=("backends", "finding"),
        meaning="No model of any tier can be asked: every user gets an apology instead of an answer.",
        advice="Run `hermes doctor`: it says for each backend whether its key is refused or its server is away.",
    ),
    "backend_refused_us": AlertKind(
        subject=("backend",),
        facts=("model", "status"),
        meaning="A backend refused our key: the key is wrong, or its account is not paid.",
        advice="Renew the key or the payment, set the new key and restart the processes. Until then the next models of each chain answer.",
    ),
    "model_unwell": AlertKind(
        subject=("backend", "model"),
        facts=("error", "retries_in_s"),
        meaning="A model failed, so Hermes asks the next model of each chain instead, until one call finds out that it answers again.",
        advice="Nothing, if the chain has another model. `hermes doctor` checks the backend; for a wrong key, set the new one.",
    ),
    "budget_threshold": AlertKind(
        subject=("agent", "user_id", "window", "period", "percent"),
        facts=("limit_tokens", "spent_micro_usd", "cap_micro_usd"),
        is_critical=is_platform_cap,
        meaning="A user, an agent or all users together have used 80 or 100 per cent of a budget.",
        advice="At 100 per cent calls are refused until the period ends. Raise the tier, the cap or `llm.global_daily_budget_usd`.",
    ),
    "agent_spend_unusual": AlertKind(
        subject=("agent",),
        facts=("hour", "micro_usd", "median_micro_usd"),
        meaning="An agent cost far more in the last hour than in its usual hour of the last seven days.",
        advice="Look which users and which purpose cost it. `hermes kill-switch on REASON` stops all calls.",
    ),
    "kill_switch_engaged": AlertKind(
        level=CRITICAL,
        facts=("by", "reason"),
        meaning="An operator stopped all model calls. Hermes takes messages and answers none of them with a model.",
        advice="`hermes kill-switch status` says who and why; `hermes kill-switch off` ends it.",
    ),
    "kill_switch_released": AlertKind(
        facts=("by",),
        meaning="An operator allowed model calls again.",
        advice="Nothing, if you expected it.",
    ),
    "call_not_recorded": AlertKind(
        facts=("micro_usd",),
        meaning="A model was called, and its row could not be written, because the database was away.",
        advice="Check the database. The cost is in the counters of Redis until they are rebuilt.",
    ),
    "sample_not_recorded": AlertKind(
        meaning="An answer could not be written into its message graph; the user got it all the same.",
        advice="Look for `sample_not_recorded` in the log: the line has the error. The sample is missing from exports.",
    ),
    "adapter_not_rolled_back": AlertKind(
        level=CRITICAL,
        subject=("agent",),
        facts=("adapter", "old"),
        meaning="A swap failed, and the database was away when Hermes wanted to point the agent back.",
        advice="`hermes fleet list` shows the agent's adapter; point it back with `hermes fleet swap`.",
    ),
    # --- delivery
    "breaker_opened": AlertKind(
        subject=("platform", "account"),
        facts=("failures", "retries_in_s", "resets_at"),
        meaning="Too many sends over an account failed in a row, so Hermes sends nothing over it until the reset time.",
        advice="Look at the platform's status page. Answers wait in the queue; nothing is lost for half an hour.",
    ),
    "channel_unauthorized": AlertKind(
        level=CRITICAL,
        subject=("platform", "account"),
        facts=("retries_in_s", "resets_at"),
        meaning="A platform rejected the token of an account: it was revoked, or the account was closed.",
        advice="Make a new token and set it with `hermes channels add`; then `hermes dead-letters requeue --all --outcome unauthorized`.",
    ),
    "channel_missing": AlertKind(
        subject=("platform", "account"),
        meaning="An answer is due on an account that is not set up in this process.",
        advice="`hermes channels list` shows the accounts. Add it again, or drop its dead letters.",
    ),
    "failed_sends_overflowed": AlertKind(
        level=CRITICAL,
        subject=("platform", "account"),
        facts=("outcome",),
        meaning="More answers of an account wait for another try than `delivery.max_queued` allows; further ones are dead letters at once.",
        advice="Find out why sends fail (`hermes dead-letters list`), then requeue them.",
    ),
    "dead_letters_growing": AlertKind(
        facts=("new", "total"),
        meaning="Many answers were given up within the last hour.",
        advice="`hermes dead-letters list` names the reasons; when they are gone, `hermes dead-letters requeue --all`.",
    ),
    # --- messages and turns
    "queue_old": AlertKind(
        level=CRITICAL,
        facts=("oldest_s", "waiting"),
        meaning="A message has waited too long for a worker.",
        advice="Are the workers alive (`hermes doctor`)? If they are busy, start more: `work.processes`, or `hermes worker` elsewhere.",
    ),
    "failures_high": AlertKind(
        level=CRITICAL,
        facts=("percent", "failed", "turns", "within_s"),
        meaning="Many of the last turns ended without an answer: no model answered, or the message was given up.",
        advice="Run `hermes doctor`; look for `turn_fell_back` and `job_failed` in the log, which name the error.",
    ),
    "message_buried": AlertKind(
        facts=("attempt", "age_s"),
        meaning="A message was given up after its last attempt, and its user got an apology.",
        advice="Look for `job_failed` with the turn's id in the log. When the cause is gone: `hermes messages revive TURN`.",
    ),
    "message_unreadable": AlertKind(
        facts=("attempt",),
        meaning="A stored message cannot be opened: its key is missing, or its row is damaged.",
        advice="Check that every master key is set (`hermes doctor`), and restore the row from a backup.",
    ),
    "history_damaged": AlertKind(
        meaning="The stored history of a conversation cannot be read; the conversation goes on without it.",
        advice="Look for `history_damaged` in the log for the session's id, and restore it from a backup.",
    ),
    "soul_cache_not_invalidated": AlertKind(
        subject=("user_id",),
        facts=("exposure_s",),
        meaning="What Hermes knows about a user changed, and the old version could not be removed from the cache in three tries.",
        advice="Check Redis. The user may get answers from the old version for as long as `exposure_s` says.",
    ),
    "mcp_tool_changed": AlertKind(
        subject=("server", "tool"),
        facts=("digest",),
        meaning="A tool of an MCP server is not what it was at its first use: its description, schema or hints changed. It is not offered.",
        advice="Run `hermes tools` to see what changed. If you agree: `hermes tools accept SERVER TOOL`. Else stop using the server.",
    ),
    # --- processes and machines
    "process_died": AlertKind(
        level=CRITICAL,
        subject=("role", "host"),
        facts=("pid", "code", "restarts"),
        meaning="A process ended without being told to.",
        advice="Its turns are taken over. The end of its log says why it ended.",
    ),
    "process_stalled": AlertKind(
        level=CRITICAL,
        subject=("role", "host"),
        facts=("pid", "code", "restarts", "beat_age_s", "age_s"),
        meaning="A process gives no sign of life: it is frozen, or its event loop is blocked.",
        advice="`hermes up` kills and replaces it. Elsewhere, restart it; its turns are taken over.",
    ),
    "process_silent": AlertKind(
        level=CRITICAL,
        subject=("role", "host"),
        facts=("pid", "running", "progress_age_s", "age_s", "waiting"),
        meaning="A worker lives, but none of its jobs ends, while jobs wait.",
        advice="Restart it, and look in its log for what its jobs wait for.",
    ),
    "process_crash_loop": AlertKind(
        level=CRITICAL,
        subject=("role", "host"),
        facts=("pid", "code", "restarts"),
        meaning="A process of `hermes up` ended again and again; Hermes tries it twice a minute now.",
        advice="The end of its log says why it ended. Mend that, and `hermes up` starts it by itself.",
    ),
    "event_loop_blocked": AlertKind(
        facts=("blocked_for_s",),
        meaning="The event loop of a process was blocked: it served no other conversation meanwhile.",
        advice="Look for `event_loop_blocked` in the log: the line has the place in the code.",
    ),
    "chore_failing": AlertKind(
        subject=("chore",),
        facts=("error",),
        meaning="A chore failed the last time; Hermes goes on trying it.",
        advice="Look for `chore_failed` in the log.",
    ),
    "disk_nearly_full": AlertKind(
        level=CRITICAL,
        subject=("host",),
        facts=("used_percent", "free_bytes"),
        meaning="The disk of the data folder is nearly full. A full disk stops the embedded stores.",
        advice="Free some space, or move the data folder.",
    ),
    "alerts_overflowed": AlertKind(
        meaning="A process raised more different alerts at once than it keeps; the rest is only in its log.",
        advice="Look at the log of the processes for lines with `alert`.",
    ),
}

UNKNOWN_KIND = AlertKind(
    meaning="Something happened that this version of Hermes does not describe.",
    advice="Look for the event in the log.",
    facts=("error",),
)


def kind_of(event: str) -> AlertKind:
    """Return what is known about an event."""
    return ALERT_KINDS.get(event, UNKNOWN_KIND)


def report_of(event: str, facts: Mapping[str, object], *, times: int = 1, is_over: bool = False) -> AlertReport:
    """Return the report of an event: its level, its subject, and of its facts those that may leave the process. Never raises."""
    kind = kind_of(event)
    about = {name: clean_fact(facts[name]) for name in (*kind.subject, *kind.facts) if facts.get(name) is not None}
    subject = " ".join(str(about[name]) for name in kind.subject if name in about)[:MAX_TEXT_CHARS]
    return AlertReport(event=clean_text(event), subject=subject, level=kind.level_of(about), facts=about, times=times, is_over=is_over)


def clean_fact(value: object, max_chars: int = MAX_TEXT_CHARS) -> AlertFact:  # noqa: PLR0911  # one for each type
    """Return a fact as a number or a short text on one line; of anything else, only what it is. Never raises."""
    match value:
        case None | bool():
            return value
        case Enum():
            return clean_fact(value.value, max_chars)
        case int():
            return int(value) if abs(value) < INTEGER_LIMIT else "a number of more than 64 bits"
        case float():
            return float(value) if math.isfinite(value) else repr(float(value))
        case str():
            return clean_text(value, max_chars)
        case date():  # also a time
            return value.isoformat()
        case UUID():
            return str(value)
    return type(value).__name__


def clean_text(text: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """Return a text on one line, without signs that cannot be printed or stored."""
    cut = text[:max_chars] + ("…" if len(text) > max_chars else "")
    return "".join(sign if sign.isprintable() else " " for sign in cut)


def alerts_page() -> str:
    """Return the table of all alerts, in Markdown."""
    rows = ["| alert | level | one for each | meaning | what to do |", "|---|---|---|---|---|"]
    for event, kind in sorted(ALERT_KINDS.items()):
        level = kind.level if kind.is_critical is None else f"{kind.level} or {CRITICAL}"
        rows.append(f"| `{event}` | {level} | {', '.join(kind.subject) or 'installation'} | {kind.meaning} | {kind.advice} |")
    return "\n".join([*rows, ""])
