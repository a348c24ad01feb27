"""What a sentence says, as it is handed on, and the sentence without it."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.soul.fact_keys import BadValue, Op, normalize_value


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that a sentence says. A free fact has no key."""

    key: str | None
    value: str
    op: Op
    quote: str


def make_statements(key: str, value: str, op: Op, quote: str) -> list[Statement]:
    """A value in its one spelling; nothing for what the key cannot hold."""
    try:
        return [Statement(key, normalize_value(key, value), op, quote)] if value else []
    except BadValue:
        return []


def blank_out(plain: str, start: int, end: int) -> str:
    """Make a part of a sentence a mere border, so that all places stay."""
    return plain[:start] + "," * (end - start) + plain[end:]
