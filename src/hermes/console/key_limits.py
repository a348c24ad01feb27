"""Limits of API keys as operators write and read them, the same on every face: `5`, `600`, `acme-*`, `30d`, `none`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hermes.console.amounts import MICRO_USD, show_usd
from hermes.console.moments import AGO_PATTERN, UNITS
from hermes.ports.key_limits import AMOUNTS, MAX_AMOUNT, NO_LIMITS, InvalidLimit, KeyLimits
from hermes.ports.key_use import KeyUsage
from hermes.soul.json_values import to_json_value

NONE = "none"
"""What an operator writes to remove a limit."""
USD = re.compile(r"[0-9]{1,10}(\.[0-9]{1,6})?")
WHOLE_NUMBER = re.compile(r"[0-9]{1,16}")


@dataclass(frozen=True, slots=True)
class LimitName:
    """A limit of a key, by its names."""

    option: str
    """As the command line and the forms call it: `usd-per-day`."""
    field: str
    """As KeyLimits calls it."""
    label: str
    help: str


LIMITS = (
    LimitName("usd-per-day", "day_micro_usd", "dollars a day", "US dollars that its calls may cost in a day (UTC)."),
    LimitName("usd-per-month", "month_micro_usd", "dollars a month", "US dollars that its calls may cost in a month (UTC)."),
    LimitName("tokens-per-day", "day_tokens", "tokens a day", "Tokens of its calls in a day (UTC), in and out."),
    LimitName("tokens-per-month", "month_tokens", "tokens a month", "Tokens of its calls in a month (UTC), in and out."),
    LimitName("rpm", "minute_requests", "requests a minute", "Requests within any minute; those that only look something up do not count."),
    LimitName("tpm", "minute_tokens", "tokens a minute", "Tokens of its calls within any minute, in and out."),
    LimitName("at-once", "calls_at_once", "calls at once", "Calls of models under way at the same time."),
    LimitName("models", "models", "models", "The models that may answer, by our name or the vendor's."),
    LimitName("users", "users", "users", "The users that it may name: patterns such as acme-*."),
    LimitName("networks", "networks", "networks", "The networks that its requests may come from, such as 10.0.0.0/8."),
    LimitName("expires", "expires_at", "expires", "When it ends: 30d, 12h, or a time in UTC such as 2026-12-31T12:00."),
)
LISTS = frozenset({"models", "users", "networks"})


def change_limits(limits: KeyLimits, texts: Mapping[str, str | Sequence[str] | None], now: datetime) -> KeyLimits:
    """Return the limits with those changed that have a text, by their option's name; `none` removes one. Raises InvalidLimit."""
    changed: dict[str, Any] = {}
    for limit in LIMITS:
        text = texts.get(limit.option)
        if text is None or not text:
            continue
        words = [text] if isinstance(text, str) else [*text]
        try:
            value = None if [word.strip() for word in words] == [NONE] else read_limit(limit, words, now)
            replace(NO_LIMITS, **{limit.field: value})  # so that the error names this option
            changed[limit.field] = value
        except InvalidLimit as error:
            raise InvalidLimit(f"{limit.option}: {error}") from None
    return replace(limits, **changed)


def read_limit(limit: LimitName, words: Sequence[str], now: datetime) -> Any:
    if limit.field in LISTS:
        return split_names(words)
    if len(words) != 1:
        raise InvalidLimit("expected one value")
    if limit.field == "expires_at":
        return read_expiry(words[0], now)
    return READERS.get(limit.field, read_count)(words[0], AMOUNTS[limit.field])


def split_names(words: Sequence[str]) -> list[str]:
    """The names of a list: separated by commas, or given one by one."""
    return list(dict.fromkeys(name.strip() for word in words for name in word.split(",") if name.strip()))


def read_usd(text: str, least: int) -> int:
    words = text.strip().removeprefix("$")
    micro_usd = Decimal(words) * MICRO_USD if USD.fullmatch(words) else Decimal(-1)
    if not least <= micro_usd <= MAX_AMOUNT:
        raise InvalidLimit(f"{text[:40]!r} is no amount; expected US dollars such as 5 or 0.25, or {NONE}")
    return int(micro_usd)


def to_micro_usd(usd: float) -> int:
    return round(usd * MICRO_USD)


def read_count(text: str, least: int) -> int:
    words = text.strip().replace("_", "")
    if not WHOLE_NUMBER.fullmatch(words) or not least <= int(words) <= MAX_AMOUNT:
        raise InvalidLimit(f"{text[:40]!r} is no amount; expected a whole number from {least} up, or {NONE}")
    return int(words)


READERS: Mapping[str, Callable[[str, int], int]] = {"day_micro_usd": read_usd, "month_micro_usd": read_usd}


def read_expiry(text: str, now: datetime) -> datetime:
    words = text.strip()
    try:
        if span := AGO_PATTERN.fullmatch(words):
            moment = now + timedelta(**{UNITS[span[2]]: int(span[1])})
        else:
            moment = datetime.fromisoformat(words)
            moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidLimit(f"{text[:40]!r} is no time; expected 30d, 12h, 2026-12-31 or 2026-12-31T12:00, or {NONE}") from None
    if moment <= now:
        raise InvalidLimit(f"{text[:40]!r} is over already")
    return moment


# --- showing them


@dataclass(frozen=True, slots=True)
class ShownLimit:
    """A limit, with what is used of it, in words."""

    label: str
    limit: str
    """Empty: no limit."""
    used: str
    """Empty for a limit that is no amount."""


def show_limits(limits: KeyLimits, used: KeyUsage | None) -> list[ShownLimit]:
    """All limits that a key has, and what it uses of amounts; requests are counted only for a key that has a limit for them."""
    shown = []
    for each in LIMITS:
        value = getattr(limits, each.field)
        amount = getattr(used, each.field, None) if used is not None and each.field in AMOUNTS else None
        if value is None and (amount is None or each.field == "minute_requests"):
            continue
        shown.append(ShownLimit(each.label, show_value(each, value), "" if amount is None else show_value(each, amount)))
    return shown


def show_value(limit: LimitName, value: Any) -> str:
    if value is None:
        return ""
    if limit.field in READERS:
        return show_usd(value)
    if limit.field in AMOUNTS:
        return f"{value:,}"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return ", ".join(value)


def limits_as_json(limits: KeyLimits) -> dict[str, Any]:
    """The limits as JSON values: dollars as numbers, by the names of the options."""
    found = {each.option.replace("-", "_"): to_json_value(getattr(limits, each.field)) for each in LIMITS}
    return {name: value / MICRO_USD if name.startswith("usd_") and value is not None else value for name, value in found.items()}


def usage_as_json(used: KeyUsage) -> dict[str, Any]:
    found = {each.option.replace("-", "_"): getattr(used, each.field) for each in LIMITS if each.field in AMOUNTS}
    return {name: value / MICRO_USD if name.startswith("usd_") else value for name, value in found.items()}
