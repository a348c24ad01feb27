"""The messages about alerts, in plain text for people and as data for programs. Knows no destination."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import uuid4

from hermes.ops.alert_events import kind_of
from hermes.ports.alerts import AlertFact, AlertLevel, AlertMessage, AlertReport, AlertSend, AlertStage, StoredAlert

MAX_NAMED = 10
"""Events that a summary names; the rest is a number."""


def message_about(send: AlertSend) -> AlertMessage:
    """Return the message that an alert was raised, or that it ended."""
    alert = send.alert
    lines = text_lines(alert.event, alert.subject, alert.level, alert.facts)
    since = f"since {alert.first_at:%Y-%m-%d %H:%M} UTC"
    if send.stage is AlertStage.ENDED:
        text = f"Hermes: ended: {headline(alert.event, alert.subject)}\n{times_phrase(alert.times)} {since}; {end_phrase(alert)}."
    else:
        text = "\n".join([*lines, f"{times_phrase(alert.times)} {since}." + (" It has ended." if alert.ended_at is not None else "")])
    # The same for every try, and another one for the next message about this alert.
    identity = f"alert_{identity_of(alert)}_{send.stage}_{send.messages}"
    at = (alert.ended_at if send.stage is AlertStage.ENDED else None) or alert.last_at
    return AlertMessage(id=identity, kind=send.stage, level=alert.level, text=text, at=at, data=alert_json(alert))


def identity_of(alert: StoredAlert) -> str:
    """The number of an alert and its first time: two installations may have one receiver, and both count from 1."""
    return f"{alert.id}_{round(alert.first_at.timestamp() * 1_000_000)}"


def message_without_store(report: AlertReport, now: datetime) -> AlertMessage:
    """Return the message of a process that cannot reach the store, and so does not know what other processes have reported."""
    text = "\n".join(
        [
            *text_lines(report.event, report.subject, report.level, report.facts),
            "The database cannot be reached, so other processes may report the same.",
        ]
    )
    data = {"event": report.event, "subject": report.subject, "level": report.level, "facts": dict(report.facts), "times": report.times}
    return AlertMessage(id=f"alert_{uuid4().hex}", kind=AlertStage.RAISED, level=report.level, text=text, at=now, data=data)


def summary_message(events: Sequence[tuple[str, AlertLevel]], identity: str, now: datetime) -> AlertMessage:
    """Return one message about many alerts: how many of each event."""
    counts = Counter(event for event, _ in events)
    level = max((level for _, level in events), key=lambda level: level is AlertLevel.CRITICAL)
    named = [f"{count} {event}" for event, count in counts.most_common(MAX_NAMED)]
    more = [f"and {len(counts) - MAX_NAMED} other kinds"] if len(counts) > MAX_NAMED else []
    text = f"Hermes: {level}: {len(events)} further alerts\n{', '.join([*named, *more])}\n`hermes alerts list` shows them all."
    return AlertMessage(id=identity, kind="summary", level=level, text=text, at=now, data={"alerts": len(events), "events": dict(counts)})


def summary_about(sends: Sequence[AlertSend], now: datetime) -> AlertMessage:
    """Return one message about the sends that a minute has no room for."""
    first, last = sends[0], sends[-1]
    identity = f"alerts_{identity_of(first.alert)}_{last.alert.id}_{len(sends)}_{first.messages}"
    return summary_message([(send.alert.event, send.alert.level) for send in sends], identity, now)


def trial_message(destination: str, now: datetime) -> AlertMessage:
    """Return the message of `hermes alerts test`."""
    text = f"Hermes: a test of the destination {destination}. Alerts of Hermes arrive here."
    return AlertMessage(
        id=f"test_{uuid4().hex}", kind="test", level=AlertLevel.WARNING, text=text, at=now, data={"destination": destination}
    )


def text_lines(event: str, subject: str, level: AlertLevel, facts: Mapping[str, AlertFact]) -> list[str]:
    kind = kind_of(event)
    # In the order of the table; the store keeps none.
    shown = [f"{name}: {facts[name]}" for name in (*kind.subject, *kind.facts) if name in facts]
    return [
        f"Hermes: {level}: {headline(event, subject)}",
        kind.meaning,
        *([", ".join(shown)] if shown else []),
        f"What to do: {kind.advice}",
    ]


def headline(event: str, subject: str) -> str:
    return f"{event} ({subject})" if subject else event


def end_phrase(alert: StoredAlert) -> str:
    """Why it ended. An alert that is quiet for a window counts as ended; whether its cause is gone is not known then."""
    return f"not repeated since {alert.last_at:%Y-%m-%d %H:%M} UTC" if alert.ended_by == "quiet" else f"ended by {alert.ended_by}"


def times_phrase(times: int) -> str:
    return "Once" if times == 1 else f"{times:,} times"


def alert_json(alert: StoredAlert) -> dict[str, object]:
    """Return an alert as programs read it."""
    return {
        "id": alert.id,
        "event": alert.event,
        "subject": alert.subject,
        "level": alert.level,
        "facts": dict(alert.facts),
        "times": alert.times,
        "first_at": alert.first_at.isoformat(),
        "last_at": alert.last_at.isoformat(),
        "ended_at": alert.ended_at.isoformat() if alert.ended_at else None,
        "ended_by": alert.ended_by,
    }
