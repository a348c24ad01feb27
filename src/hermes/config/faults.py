"""Words for what is wrong with a setting: one line each, whatever was written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from hermes.config.value_kinds import INTEGER_LIMIT, ValueKind

MAX_SHOWN_CHARS = 60


def wrong_kind_fault(place: str, given: object, kind: ValueKind, words: str) -> str:
    """That a value is not of its kind, with the words for that; without the value where it may be a secret."""
    return f"{place} is {value_type(given) if kind.is_secret else shown_value(given)}; expected {words}"


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that looks most like this one. There always is one: a bad guess still shows what names look like."""
    spelled = {other.lower(): other for other in known}
    return spelled[get_close_matches(name.lower(), spelled, n=1, cutoff=0.0)[0]]


def shown_value(value: object) -> str:
    """A value as its owner wrote it, if that fits in a line."""
    match value:
        case str() if value:
            return shorten(repr(value))
        case bool():
            return str(value).lower()
        case int() if abs(value) >= INTEGER_LIMIT:  # Python refuses to write very long ones down
            return "a number of more than 64 bits"
        case int() | float():
            return str(value)
    return value_type(value)


def value_type(value: object) -> str:
    """What sort of value it is, without the value."""
    if value == "":
        return "empty"
    sorts = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return sorts.get(type(value), "a date or time")


def one_line(name: str) -> str:
    """A name as it is, or quoted where it holds more than names usually do: TOML allows a line break in a key."""
    return shorten(name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else repr(name))


def shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"
