"""Where a text may be cut, and that memory and channels cut it at the same places."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.text import RichText, count_characters, split
from hermes.graphemes import find_boundaries, grapheme_ends
from hermes.soul.sanitize.scan import truncate
from tests.unit.channels.text.answers import CLUSTERS

SAMPLES = [
    *CLUSTERS,  # flags, families, Korean letters and syllables, keycaps, skin tones
    "\r\n",
    "\u0915\u094d\u200d\u0937",  # a virama and a joiner between two consonants (GB9c)
    "\u0915\u094d\u094d\u0924",  # two viramas
    "\u0d15\u0d4d\u0d24",
    "\u0a95\u0acd\u0a95",
    "\u1100\u1161\u11a8\u0301",
    "#\ufe0f\u20e3",
    "🫱🏻‍🫲🏿",
    "a\u0308\u0323",
]


@pytest.mark.parametrize("cluster", SAMPLES, ids=ascii)
def test_nothing_is_cut_that_a_reader_takes_for_one_character(cluster: str) -> None:
    assert list(grapheme_ends(cluster)) == [len(cluster)]


@given(st.lists(st.sampled_from(SAMPLES), max_size=30))
def test_between_two_of_them_it_may_be_cut(clusters: list[str]) -> None:
    text = "".join(clusters)
    assert sorted(find_boundaries(text)) == list(accumulate(map(len, clusters), initial=0))


def test_flags_are_told_apart_by_counting() -> None:
    assert list(grapheme_ends("a\U0001f1ee\U0001f1e9\U0001f1ef\U0001f1f5\U0001f1ef")) == [1, 3, 5, 6]


def test_an_ascii_text_may_be_cut_everywhere_but_within_a_line_end() -> None:
    assert (list(find_boundaries("ab\n")), sorted(find_boundaries("a\r\nb"))) == ([0, 1, 2, 3], [0, 1, 3, 4])


@pytest.mark.parametrize("cluster", [sample for sample in SAMPLES if len(sample) <= 8 and sample.strip()], ids=ascii)
def test_memory_and_channels_cut_at_the_same_places(cluster: str) -> None:
    text = cluster * 40
    assert truncate(text, 3) == cluster * 3
    parts = [part.text for part in split(RichText(text), 16, count_characters)]
    assert "".join(parts) == text
    assert [part.replace(cluster, "") for part in parts] == [""] * len(parts)


def test_a_character_that_is_larger_than_a_part_is_cut_anyway() -> None:
    pile = "a" + "\u0301" * 50
    assert [len(part.text) for part in split(RichText(pile), 20, count_characters)] == [20, 20, 11]
