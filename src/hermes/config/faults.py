"""The texts of faults in settings: one line each, whatever the operator wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from hermes.config.value_kinds import INTEGER_LIMIT, ValueKind

MAX_SHOWN_CHARS = 60


def wrong_kind_fault(place: str, given: object, kind: ValueKind, words: str) -> str:
    """Say that a value is not of its kind, and which values are expected; without the value if it may be a secret."""
    return f"{place} is {value_type(given) if kind.is_secret else shown_value(given)}; expected {words}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that looks most like this one. There always is one: even a bad guess shows what the names look like."""
    spelled = {other.lower(): other for other in known}
    return spelled[get_close_matches(name.lower(), spelled, n=1, cutoff=0.0)[0]]


def shown_value(value: object) -> str:
    """Return a value as the operator wrote it, if it fits in a line; else its type."""
    match value:
        case str() if value:
            return shorten(repr(value))
        case bool():
            return str(value).lower()
        case int() if abs(value) >= INTEGER_LIMIT:  # Python refuses to print very long ones
            return "a number of more than 64 bits"
        case int() | float():
            return str(value)
    return value_type(value)


def value_type(value: object) -> str:
    """Say what type of value it is, without the value."""
    if value == "":
        return "empty"
    sorts = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return sorts.get(type(value), "a date or time")


def one_line(name: str) -> str:
    """Return a name as it is, or quoted if it holds unusual characters: TOML allows a line break in a key."""
    return shorten(name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else repr(name))


def shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"
