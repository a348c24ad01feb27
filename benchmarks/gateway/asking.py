"""The requests that everybody is sent: a system message of 520 characters and one question, answers of at most 1,024 tokens."""

from __future__ import annotations

from typing import Any

MODEL = "bench"
MAX_TOKENS = 1024
TURNS = 20
"""How many questions a growing chat has before a new one begins."""

SYSTEM = (
    "You are the concierge of a small hotel by the sea. You know the bars, the beaches and the drivers, and which of them to leave alone. "
    "Answer in the guest's language, in whole sentences, and in no more than a paragraph. Name a place only if it is open at the time that "
    "the guest asks about; say how far it is on foot, and what it costs. Where you are not sure, say so and offer to ask. Never promise a "
    "table that nobody has confirmed, and never mention one guest to another. Prices are in rupiah, and in dollars."
).ljust(520, ".")


def question(number: int) -> str:
    """A question that was never asked before, always of the same length."""
    return f"Guest {number:016d} asks: where do we watch the sunset tonight, with two children and not too much noise?"


def messages(number: int) -> list[dict[str, Any]]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question(number)}]
