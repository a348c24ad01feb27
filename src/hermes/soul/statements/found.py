"""What a sentence says, as it is handed on, and the sentence without it."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.soul.facts import BadValue, Op, typed


@dataclass(frozen=True, slots=True)
class Found:
    """Something that a sentence says. A free fact has no key."""

    key: str | None
    value: str
    op: Op
    quote: str


def spelled(key: str, value: str, op: Op, quote: str) -> list[Found]:
    """A value in its one spelling; nothing for what the key cannot hold."""
    try:
        return [Found(key, typed(key, value), op, quote)] if value else []
    except BadValue:
        return []


def hide(plain: str, start: int, end: int) -> str:
    """Make a part of a sentence a mere border, so that all places stay."""
    return plain[:start] + "," * (end - start) + plain[end:]
