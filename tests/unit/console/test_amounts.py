"""How amounts are written."""

import pytest

from hermes.console.amounts import show_round_usd


@pytest.mark.parametrize(
    ("micro_usd", "shown"),
    [
        (0, "$0.00"),
        (1, "$0.000001"),
        (36, "$0.000036"),
        (1_073, "$0.0011"),
        (9_960, "$0.01"),
        (10_049, "$0.0100"),
        (128_450, "$0.1285"),
        (1_000_000, "$1.00"),
        (1_284_194_999, "$1,284.19"),
    ],
)
def test_dollars_are_rounded_to_what_a_person_says_and_never_to_nothing(micro_usd: int, shown: str) -> None:
    assert show_round_usd(micro_usd) == shown
