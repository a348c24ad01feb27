"""What operators write into the forms of replays, and programs into their requests: read, checked, and named in one line if it is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from hermes.console.moments import parse_moment
from hermes.console.replay_record import ReplayPrompt
from hermes.console.replays import ReplayInvalid
from hermes.ports.replays import Replay, ReplayChange, ReplayFilter

FILTER_NAMES = ("status", "agent", "model", "platform", "tier", "tool", "user", "since", "until")
SAMPLING: Mapping[str, tuple[type, float, float]] = {
    "temperature": (float, 0.0, 2.0),
    "top_p": (float, 0.0, 1.0),
    "max_tokens": (int, 1, 1_000_000),
    "seed": (int, 0, 2**31 - 1),
}
"""The fields of sampling that a form has: their type, least and greatest value."""
STATUSES = ("failed", "answered")
MAX_VALUE_CHARS = 200
"""Of a value of a filter."""
DEFAULT_LAST = 20
"""Turns of a batch, unless the operator says how many."""


def read_change(form: Mapping[str, str], recorded: ReplayPrompt | None) -> ReplayChange:
    """Read a form. The system text and the tools count where they differ from the recorded ones, which the operator has opened."""
    system, tools = None, None
    if recorded is not None and "system" in form:
        written = form["system"].replace("\r\n", "\n")
        system = written if written != recorded.system.replace("\r\n", "\n") else None
    if recorded is not None and "has_tools" in form:
        offered = tuple(name for name in recorded.tool_names if f"offer.{name}" in form)
        tools = offered if len(offered) < len(recorded.tool_names) else None
    run_tools = tuple(name.removeprefix("run.") for name in form if name.startswith("run."))
    return ReplayChange(system=system, tools=tools, sampling=read_sampling(form), run_tools=run_tools)


def read_sampling(given: Mapping[str, Any]) -> dict[str, float | int]:
    """Read the fields of sampling that are set. Raises ReplayInvalid."""
    found: dict[str, float | int] = {}
    for name, (kind, least, greatest) in SAMPLING.items():
        text = str(given.get(name) if given.get(name) is not None else "").strip()
        if not text:
            continue
        try:
            value = kind(text)
        except ValueError:
            raise ReplayInvalid(f"{name} {text[:40]!r} is not a number") from None
        if not least <= value <= greatest:
            raise ReplayInvalid(f"{name} {value}: between {least:g} and {greatest:g}")
        found[name] = value
    return found


def read_number(text: str, name: str) -> int:
    if not text.strip().isdecimal() or len(text) > 9:
        raise ReplayInvalid(f"{name} {text[:40]!r} is not a number")
    return int(text)


def read_filter(given: Mapping[str, str], accounts: frozenset[str] | None) -> ReplayFilter:
    """Read which turns a batch is over. Raises ReplayInvalid."""
    text = {name: given.get(name, "").strip() or None for name in FILTER_NAMES}
    if wrong := next((name for name, value in text.items() if value and (len(value) > MAX_VALUE_CHARS or not value.isprintable())), None):
        raise ReplayInvalid(f"{wrong}: expected up to {MAX_VALUE_CHARS} characters that can be shown")
    if text["status"] is not None and text["status"] not in STATUSES:
        raise ReplayInvalid(f"status {text['status'][:40]!r}: one of {', '.join(STATUSES)}")
    user = text["user"]
    try:
        user_id = UUID(user) if user is not None else None
    except ValueError:
        raise ReplayInvalid("user: expected the id of a user") from None
    return ReplayFilter(
        status=text["status"],
        agent=text["agent"],
        model=text["model"],
        platform=text["platform"],
        tier=text["tier"],
        tool=text["tool"],
        user=user_id,
        since=read_moment(text["since"]),
        until=read_moment(text["until"]),
        accounts=accounts,
    )


def read_moment(text: str | None) -> datetime | None:
    """Read `24h`, or a moment in ISO format, in UTC unless it has an offset. Raises ReplayInvalid."""
    if text is None:
        return None
    try:
        return parse_moment(text, datetime.now(UTC))
    except ValueError as error:
        raise ReplayInvalid(str(error)) from None


def write_cursor(last: Replay) -> str:
    """Where the next page begins."""
    return f"{last.created_at.astimezone(UTC).isoformat().replace('+00:00', 'Z')}_{last.id}"


def read_cursor(text: str) -> tuple[datetime, UUID] | None:
    """Read what `write_cursor` wrote. Raises ReplayInvalid."""
    if not text:
        return None
    at, _, replay_id = text.partition("_")
    try:
        return datetime.fromisoformat(at), UUID(replay_id)
    except ValueError:
        raise ReplayInvalid("before: expected what `next` of an earlier page says") from None
