"""Where a text may be cut."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.text.graphemes import is_boundary, last_boundary
from tests.unit.channels.text.answers import CLUSTERS


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_nothing_is_cut_that_a_reader_takes_for_one_character(cluster: str) -> None:
    assert [place for place in range(1, len(cluster)) if is_boundary(cluster, place)] == []


@given(st.lists(st.sampled_from(CLUSTERS), max_size=30))
def test_between_two_of_them_it_may_be_cut(clusters: list[str]) -> None:
    text = "".join(clusters)
    assert [place for place in range(len(text) + 1) if is_boundary(text, place)] == list(accumulate(map(len, clusters), initial=0))


def test_flags_are_told_apart_by_counting() -> None:
    letters = "\U0001f1ee\U0001f1e9\U0001f1ef\U0001f1f5"
    assert [place for place in range(5) if is_boundary(letters, place)] == [0, 2, 4]


def test_a_line_end_of_two_is_one() -> None:
    assert not is_boundary("\r\n", 1)


def test_the_last_place_is_found_and_where_there_is_none_the_text_is_cut_anyway() -> None:
    assert last_boundary("ab👩‍🍳cd", 1, 4) == 2
    assert last_boundary("a" + "\u0301" * 50, 1, 20) == 20
