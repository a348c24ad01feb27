"""Our table of prices says what genai-prices says today, kind by kind, and on both sides of every cliff."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from hermes.gateway.prices import FREE_RATE, LIST_PRICES, Prices
from hermes.ports.backends import Usage
from hermes.ports.models import ModelAddress

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs

NOW = datetime.now(UTC)
OURS = Prices(LIST_PRICES)
BILLED = [model for _, model in OURS.table() if OURS.rate(ModelAddress("anthropic", model), NOW.date(), 0) != FREE_RATE]
LENGTHS = [1_000, 100_000, 100_001, 200_000, 200_001, 500_000]
"""Prompts on both sides of every length from which a vendor asks for more."""


@pytest.fixture
def theirs() -> Any:
    return pytest.importorskip("genai_prices", reason="needs genai-prices: pip install genai-prices")


def in_usd(theirs: Any, model: str, **usage: int) -> Decimal:
    price: Decimal = theirs.calc_price(theirs.Usage(**usage), model, provider_id="anthropic", genai_request_timestamp=NOW).total_price
    return price


@pytest.mark.parametrize("model", BILLED)
@pytest.mark.parametrize("length", LENGTHS)
def test_every_kind_of_token_costs_what_others_say(theirs: Any, model: str, length: int) -> None:
    rate = OURS.rate(ModelAddress("anthropic", model), NOW.date(), length)
    plain = in_usd(theirs, model, input_tokens=length)
    costs = {
        "input": (Usage(tokens_in=length), plain),
        "output": (Usage(tokens_in=length, tokens_out=1_000), in_usd(theirs, model, input_tokens=length, output_tokens=1_000)),
        "cache_read": (Usage(tokens_in=length, cache_read=length), in_usd(theirs, model, input_tokens=length, cache_read_tokens=length)),
        "cache_write": (Usage(tokens_in=length, cache_write=length), in_usd(theirs, model, input_tokens=length, cache_write_tokens=length)),
        "cache_write_1h": (
            Usage(tokens_in=length, cache_write_1h=length),
            in_usd(theirs, model, input_tokens=length, cache_write_tokens=length, cache_write_1h_tokens=length),
        ),
    }
    ours = {kind: Decimal(rate.cost(usage)) / 1_000_000 for kind, (usage, _) in costs.items()}
    assert ours == {kind: usd.quantize(Decimal("0.000001"), rounding="ROUND_CEILING") for kind, (_, usd) in costs.items()}


def test_a_long_prompt_of_haiku_is_dearer_from_its_first_token_on(theirs: Any) -> None:
    at, beyond = (in_usd(theirs, "claude-haiku-5-5", input_tokens=tokens) for tokens in (100_000, 100_001))
    assert (at, beyond) == (Decimal("0.01"), Decimal("0.0500005"))


def test_they_know_every_model_that_we_bill(theirs: Any) -> None:
    assert BILLED
    for model in BILLED:
        in_usd(theirs, model, input_tokens=1)
