"""A statement that was read from a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.soul.fact_keys import BadValue, Op, normalize_value


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that a sentence says about its writer. A free fact has no key."""

    key: str | None
    value: str
    op: Op
    quote: str


def make_statements(key: str, value: str, op: Op, quote: str) -> list[Statement]:
    """A statement with the value in its one spelling; none if the key cannot hold the value."""
    try:
        return [Statement(key, normalize_value(key, value), op, quote)] if value else []
    except BadValue:
        return []


def blank_out(plain: str, start: int, end: int) -> str:
    """Replace a part of a sentence by commas, so that all other places stay."""
    return plain[:start] + "," * (end - start) + plain[end:]
