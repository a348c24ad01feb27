"""The catalogue: the founding tiers as they were founded, models as their vendors describe them, and every usual model has a price."""

from datetime import date

import pytest

from hermes.gateway.catalogue import DEFAULT_CATALOGUE, ModelCatalogue, ModelSpec, Tier
from hermes.gateway.prices import FREE_RATE, LIST_PRICES, Price, Prices, TokenRate
from hermes.ports.backends import Capabilities
from hermes.ports.errors import NotFound
from hermes.ports.models import UnknownPrice

TODAY = date(2026, 11, 15)


def test_the_founding_tiers_are_as_they_were_founded() -> None:
    assert DEFAULT_CATALOGUE.tiers == {
        "free": Tier(("claude-haiku",), 50_000),
        "starter": Tier(("claude-haiku", "ollama"), 200_000),
        "pro": Tier(("claude-sonnet",), 1_000_000),
        "venue-growth": Tier(("claude-sonnet", "claude-haiku"), 500_000),
    }
    assert [
        (DEFAULT_CATALOGUE.models[name].id, DEFAULT_CATALOGUE.models[name].max_tokens) for name in ("claude-haiku", "claude-sonnet")
    ] == [
        ("claude-haiku-4-5-20251001", 1_024),
        ("claude-sonnet-4-6", 2_048),
    ]


@pytest.mark.parametrize("name", ["claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5"])
def test_the_newest_claudes_think_and_take_neither_sampling_nor_a_beginning(name: str) -> None:
    model = DEFAULT_CATALOGUE.models[name]
    assert (model.backend, model.id) == ("anthropic", name)
    assert model.capabilities == Capabilities(
        tools=True, vision=True, sampling=False, prefill=False, thinking=True, context=1_000_000, cache_floor=512
    )


def test_every_usual_model_has_a_price_and_ones_own_machine_costs_nothing() -> None:
    prices = Prices(LIST_PRICES)
    rates = {name: prices.rate(model.address, TODAY, 0) for name, model in DEFAULT_CATALOGUE.models.items()}
    assert {name for name, rate in rates.items() if rate == FREE_RATE} == {"ollama", "smollm2", "claude_local", "codex_local", "scripted"}


def test_a_month_is_thirty_days_unless_it_is_something_else() -> None:
    assert [Tier(("m",), 10).month_tokens, Tier(("m",), 10, 50).month_tokens, Tier(("m",), 10, 0).month_tokens] == [300, 50, 0]


def test_a_chain_with_a_model_without_a_price_is_refused_in_one_line() -> None:
    catalogue = ModelCatalogue(
        {"t": Tier(("a", "b"), 1)}, {"a": ModelSpec("x", "a-1", 1), "b": ModelSpec("x", "b-1", 1), "c": ModelSpec("x", "c-1", 1)}
    )
    prices = Prices([Price("a-1", TODAY, FREE_RATE), Price("b-1", date(2026, 11, 16), TokenRate.usd(1, 1))])
    with pytest.raises(UnknownPrice) as refused:
        catalogue.refuse_unpriced(prices, TODAY)
    assert str(refused.value) == "tier t: there is no price for b (b-1) on 2026-11-15; add [[models.b.prices]]"
    catalogue.refuse_unpriced(prices, date(2026, 11, 16))  # c is in no chain


def test_a_tier_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(NotFound, match="there is no tier gold; there are free, starter, pro, venue-growth"):
        DEFAULT_CATALOGUE.tier("gold")
    with pytest.raises(ValueError, match="tier t: there is no model m"):
        ModelCatalogue({"t": Tier(("m",), 1)}, {})
