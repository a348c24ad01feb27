"""Prices: whole micro-dollars, by model and day, and no price means no call."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway.prices import LIST_PRICES, Price, Prices, TokenRate
from hermes.ports.backends import Usage
from hermes.ports.models import ModelAddress, UnknownPrice

TODAY = date(2026, 11, 15)
HAIKU, SONNET = "claude-haiku-4-5-20251001", "claude-sonnet-4-6"
M = ModelAddress("a", "m")


@pytest.mark.parametrize(
    ("model", "usage", "micro_usd"),
    [
        (HAIKU, Usage(tokens_in=1_000_000, tokens_out=1_000_000), 6_000_000),
        (HAIKU, Usage(tokens_in=1, tokens_out=0), 1),
        (SONNET, Usage(tokens_in=1_000, tokens_out=100), 4_500),
        (SONNET, Usage(tokens_in=10_000, tokens_out=0, cache_read=10_000), 3_000),
        (SONNET, Usage(tokens_in=10_000, tokens_out=0, cache_write=4_000, cache_write_1h=1_000), 5_000 * 3 + 4_000 * 3.75 + 1_000 * 6),
        ("claude-haiku-5-5", Usage(tokens_in=100_000, tokens_out=0), 10_000),
        ("claude-haiku-5-5", Usage(tokens_in=100_001, tokens_out=0), 50_001),
        (HAIKU, Usage(), 0),
    ],
)
def test_a_call_costs_what_its_vendor_bills(model: str, usage: Usage, micro_usd: int) -> None:
    rate = Prices(LIST_PRICES).rate(ModelAddress("anthropic", model), TODAY, usage.tokens_in)
    assert rate.cost(usage) == micro_usd


def test_a_long_prompt_reprices_all_of_its_tokens() -> None:
    price = Price("m", TODAY, TokenRate.usd(1, 1), over=(10, TokenRate.usd(5, 5)))
    assert [Prices([price]).rate(M, TODAY, length).tokens_in for length in (10, 11)] == [1_000_000, 5_000_000]


def test_the_price_of_the_day_counts() -> None:
    prices = Prices([Price("m", date(2026, 6, 1), TokenRate.usd(2, 2)), Price("m", date(2026, 1, 1), TokenRate.usd(1, 1))])
    assert [prices.rate(M, day, 0).tokens_in for day in (date(2026, 5, 31), date(2026, 6, 1))] == [1_000_000, 2_000_000]
    with pytest.raises(UnknownPrice, match="no price for m of a on 2025-12-31"):
        prices.rate(M, date(2025, 12, 31), 0)


def test_an_unknown_model_has_no_price() -> None:
    with pytest.raises(UnknownPrice):
        Prices(LIST_PRICES).rate(ModelAddress("openai", "gpt-nobody"), TODAY, 0)


def test_a_rate_is_kept_with_a_call_in_whole_micro_dollars() -> None:
    assert TokenRate.usd(0.8, 4.0, read=0.08).to_dict() == {
        "tokens_in": 800_000,
        "tokens_out": 4_000_000,
        "cache_read": 80_000,
        "cache_write": 800_000,
        "cache_write_1h": 800_000,
    }


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 100))
def test_a_cost_is_never_below_the_exact_one_and_less_than_one_above(tokens_in: int, tokens_out: int, share: int) -> None:
    rate = TokenRate.usd(3.0, 15.0, read=0.3)
    read = tokens_in * share // 100
    exact = ((tokens_in - read) * 3_000_000 + read * 300_000 + tokens_out * 15_000_000) / 1_000_000
    assert 0 <= rate.cost(Usage(tokens_in=tokens_in, tokens_out=tokens_out, cache_read=read)) - exact < 1
