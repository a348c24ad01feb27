"""What a call costs: its tokens, and their price in whole micro-dollars. Prices are dated data; a call keeps the rate that was used.

A price belongs to a model at a backend: the same weights may be free on a server of your own and cost money at a host.

Knows no backend. An unknown model has no price and its calls are refused: a call without a price cannot be budgeted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from typing import Any

from hermes.graph.tool_schemas import once
from hermes.ports.backends import ChatMessage, ModelRequest, Usage
from hermes.ports.models import ModelAddress, UnknownPrice

PER_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRate:
    """Micro-dollars for a million tokens of each kind. 3 USD per million is 3,000,000 here, and 3 micro-dollars for one token."""

    tokens_in: int
    tokens_out: int
    cache_read: int
    cache_write: int
    cache_write_1h: int

    @classmethod
    def usd(
        cls, tokens_in: float, tokens_out: float, *, read: float | None = None, write: float | None = None, hour: float | None = None
    ) -> TokenRate:
        """Take prices as vendors print them, in dollars per million tokens. A vendor without a cache charges every prompt token alike."""
        return cls(
            tokens_in=to_micro_usd(tokens_in),
            tokens_out=to_micro_usd(tokens_out),
            cache_read=to_micro_usd(tokens_in if read is None else read),
            cache_write=to_micro_usd(tokens_in if write is None else write),
            cache_write_1h=to_micro_usd(tokens_in if hour is None else hour),
        )

    def cost(self, usage: Usage) -> int:
        """Return the price of a call, rounded up: never a fraction below what the vendor bills."""
        plain = usage.tokens_in - usage.cache_read - usage.cache_write - usage.cache_write_1h
        total = (
            max(0, plain) * self.tokens_in
            + usage.cache_read * self.cache_read
            + usage.cache_write * self.cache_write
            + usage.cache_write_1h * self.cache_write_1h
            + usage.tokens_out * self.tokens_out
        )
        return -(-total // PER_MILLION)

    def max_cost(self, tokens_in: int, tokens_out: int) -> int:
        """Return the most that a call of this size can cost: as if its whole prompt were written into the dearest cache."""
        dearest = max(self.tokens_in, self.cache_read, self.cache_write, self.cache_write_1h)
        return -(-(tokens_in * dearest + tokens_out * self.tokens_out) // PER_MILLION)

    def to_dict(self) -> dict[str, int]:
        """Return the rate as it is stored with a call."""
        return {name: getattr(self, name) for name in RATE_FIELDS}


RATE_FIELDS = tuple(field.name for field in fields(TokenRate))


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs from a day on."""

    model: str
    since: date
    rate: TokenRate
    over: tuple[int, TokenRate] | None = None
    """A prompt longer than this number of tokens costs this rate: for all of its tokens, not only for those beyond."""
    backend: str | None = None
    """None: wherever the model runs, unless the backend has prices of its own for it."""

    def rate_for(self, tokens_in: int) -> TokenRate:
        return self.over[1] if self.over is not None and tokens_in > self.over[0] else self.rate


class Prices:
    """A table of prices by backend, model and day."""

    def __init__(self, prices: Iterable[Price]) -> None:
        self._table: dict[tuple[str | None, str], list[Price]] = {}
        for price in sorted(prices, key=lambda price: price.since):
            self._table.setdefault((price.backend, price.model), []).append(price)

    def rate(self, model: ModelAddress, day: date, tokens_in: int) -> TokenRate:
        """Return the rate of a model on a day, for a prompt of this length. Raises UnknownPrice."""
        price = self.price(model, day)
        if price is None:
            raise UnknownPrice(f"there is no price for {model.model} of {model.backend} on {day.isoformat()}; add it to the settings")
        return price.rate_for(tokens_in)

    def price(self, model: ModelAddress, day: date) -> Price | None:
        """Return the price of a model on a day; None if there is none."""
        prices = self._table.get((model.backend, model.model)) or self._table.get((None, model.model), [])
        return next((price for price in reversed(prices) if price.since <= day), None)

    def table(self) -> Mapping[tuple[str | None, str], Sequence[Price]]:
        """All prices by backend and model, the oldest first."""
        return self._table


def to_micro_usd(usd: float) -> int:
    """Dollars as whole micro-dollars, exactly: prices have at most six decimals."""
    return round(usd * PER_MILLION)


EARLIEST_DAY = date(2025, 1, 1)

FREE_RATE = TokenRate.usd(0, 0)
"""For a model on this machine, or one that a subscription pays: no vendor bills these tokens."""

LIST_PRICES: tuple[Price, ...] = (
    Price("claude-haiku-4-5-20251001", date(2025, 10, 1), TokenRate.usd(1.00, 5.00, read=0.10, write=1.25, hour=2.00)),
    Price("claude-haiku-4-5", date(2025, 10, 1), TokenRate.usd(1.00, 5.00, read=0.10, write=1.25, hour=2.00)),
    Price(
        "claude-sonnet-4-5",
        date(2025, 9, 29),
        TokenRate.usd(3.00, 15.00, read=0.30, write=3.75, hour=6.00),
        over=(200_000, TokenRate.usd(6.00, 22.50, read=0.60, write=7.50, hour=12.00)),
    ),
    Price("claude-sonnet-4-6", EARLIEST_DAY, TokenRate.usd(3.00, 15.00, read=0.30, write=3.75, hour=6.00)),
    Price(
        "claude-haiku-5-5",
        date(2026, 10, 7),
        TokenRate.usd(0.10, 0.50, read=0.01, write=0.125, hour=0.20),
        over=(100_000, TokenRate.usd(0.50, 2.50, read=0.05, write=0.625, hour=1.00)),
    ),
    Price("claude-sonnet-5-5", EARLIEST_DAY, TokenRate.usd(2.00, 10.00, read=0.10, write=2.50, hour=4.00)),
    Price("claude-opus-5-5", EARLIEST_DAY, TokenRate.usd(4.00, 20.00, read=0.20, write=5.00, hour=8.00)),
    Price("llama3.2", EARLIEST_DAY, FREE_RATE),
    Price("smollm2-135m-instruct", EARLIEST_DAY, FREE_RATE),
    Price("claude_local", EARLIEST_DAY, FREE_RATE),
    Price("codex_local", EARLIEST_DAY, FREE_RATE),
    Price("scripted", EARLIEST_DAY, FREE_RATE),
)
"""List prices as their vendor printed them on 2026-11-15."""

FOUNDING_RATES: Mapping[str, TokenRate] = {
    "claude-haiku-4-5-20251001": TokenRate.usd(0.80, 4.00, read=0.08, write=1.00, hour=1.60),
    "claude-haiku-4-5": TokenRate.usd(0.80, 4.00, read=0.08, write=1.00, hour=1.60),
}
"""The prices that the founding documents name for Haiku. They are those of Haiku 3.5, which is retired; `llm.prices = "founding"` counts
with them, for an account whose contract has them or to compare with old reports."""


# --- tokens, where the vendor gave no count: rather too many than too few

BYTES_PER_TOKEN = 3
"""Most text has four bytes to a token; Chinese, Japanese and Thai have about three."""
TOKENS_PER_IMAGE = 4_800
"""The tokens of the largest image; every image counts as much."""
TOKENS_PER_MESSAGE = 8
"""Tokens that a template adds around each message."""


def prompt_tokens(ask: ModelRequest) -> int:
    """An upper bound for the whole request."""
    tools = once(ask.tools, schema_bytes)
    images = sum(1 for message in ask.messages for part in parts_of(message) if part.get("type") == "image_url")
    size = tools + sum(message_bytes(message) for message in ask.messages)
    return -(-size // BYTES_PER_TOKEN) + images * TOKENS_PER_IMAGE + len(ask.messages) * TOKENS_PER_MESSAGE


def schema_bytes(tools: Sequence[Mapping[str, Any]]) -> int:
    """The bytes of tool schemas as a model reads them."""
    return sum(len(json.dumps(tool, ensure_ascii=False).encode("utf-8", "replace")) for tool in tools)


def answer_tokens(message: ChatMessage, max_tokens: int) -> int:
    """An upper bound for a model's answer; never more than `max_tokens`."""
    return min(max_tokens, -(-message_bytes(message) // BYTES_PER_TOKEN))


def message_bytes(message: ChatMessage) -> int:
    """The bytes of a message that a model reads or writes as text."""
    content = message.get("content")
    texts = [content] if isinstance(content, str) else [part.get("text") for part in parts_of(message)]
    texts += [message.get("reasoning") or message.get("reasoning_content"), message.get("refusal")]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        texts += [function.get("name"), function.get("arguments")]
    return sum(len(text.encode("utf-8", "replace")) for text in texts if isinstance(text, str))


def parts_of(message: ChatMessage) -> Sequence[Mapping[str, Any]]:
    """The parts of a content that is a list; a plain text has no parts."""
    content = message.get("content")
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list | tuple) else ()


def micro_usd_of(usd: float | None) -> int | None:
    """Return a limit of the settings in micro-dollars; None if there is none."""
    return None if usd is None else to_micro_usd(usd)
