"""What a call costs, in whole micro-dollars. Prices are dated data; the rate that was used is kept with the call.

Knows no backend. An unknown model has no price and its calls are refused: a call without a price cannot be budgeted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import date

from hermes.ports.backends import Usage
from hermes.ports.models import UnknownPrice

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

    def to_dict(self) -> dict[str, int]:
        """Return the rate as it is stored with a call."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs from a day on."""

    model: str
    since: date
    rate: TokenRate
    over: tuple[int, TokenRate] | None = None
    """A prompt longer than this number of tokens costs this rate: for all of its tokens, not only for those beyond."""

    def rate_for(self, tokens_in: int) -> TokenRate:
        return self.over[1] if self.over is not None and tokens_in > self.over[0] else self.rate


class Prices:
    """A table of prices by model and day."""

    def __init__(self, prices: Iterable[Price]) -> None:
        self._by_model: dict[str, list[Price]] = {}
        for price in sorted(prices, key=lambda price: price.since):
            self._by_model.setdefault(price.model, []).append(price)

    def rate(self, model: str, day: date, tokens_in: int) -> TokenRate:
        """Return the rate of a model on a day, for a prompt of this length. Raises UnknownPrice."""
        known = [price for price in self._by_model.get(model, ()) if price.since <= day]
        if not known:
            raise UnknownPrice(f"there is no price for {model} on {day.isoformat()}; add it to the settings")
        return known[-1].rate_for(tokens_in)

    def models(self) -> Mapping[str, list[Price]]:
        """All prices, the oldest first."""
        return {model: list(prices) for model, prices in self._by_model.items()}


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
"""List prices as their vendor printed them on 2026-11-15. The founding pair of 0.80 / 4.00 USD belonged to Haiku 3.5, which is retired."""
