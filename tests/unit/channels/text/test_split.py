"""Documents cut to a limit."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.text import (
    RichText,
    SizeFunction,
    Span,
    SpanKind,
    count_characters,
    count_utf8_bytes,
    count_utf16_units,
    read_markdown,
    split,
)
from hermes.graphemes import find_boundaries
from tests.unit.channels.text.answers import ANSWERS, CLUSTERS, MARKDOWN, PROSE, UNHURRIED
from tests.unit.channels.text.stopwatch import assert_linear


def with_marks(document: RichText) -> int:
    """The size of a text that marks are written into, and a sign before each line of a quote."""
    quotes = [document.text[span.start : span.end] for span in document.spans if span.kind is SpanKind.QUOTE]
    return len(document.text) + 2 * len(document.spans) + sum(2 * (quote.count("\n") + 1) for quote in quotes)


SIZES = st.sampled_from([count_characters, count_utf8_bytes, count_utf16_units])
LIMITS = st.integers(64, 400)
BLANK = "\u200d\u00a0 \n\t"


def texts(parts: Sequence[RichText]) -> list[str]:
    return [part.text for part in parts]


# --- for every answer, limit and unit


@UNHURRIED
@given(ANSWERS.map(read_markdown), LIMITS, SIZES | st.just(with_marks))
def test_every_part_is_within_the_limit_and_none_is_blank(document: RichText, limit: int, size: SizeFunction) -> None:
    for part in split(document, limit, size):
        assert size(part) <= limit
        assert part.text.strip(BLANK)


@UNHURRIED
@given(ANSWERS.map(read_markdown), LIMITS, SIZES)
def test_only_white_space_at_the_joins_is_lost(document: RichText, limit: int, size: SizeFunction) -> None:
    at = 0
    for part in split(document, limit, size):
        found = document.text.index(part.text, at)
        assert not document.text[at:found].strip(BLANK)
        assert part == document.slice(found, found + len(part.text))
        at = found + len(part.text)
    assert not document.text[at:].strip(BLANK)


@UNHURRIED
@given(st.lists(st.sampled_from([*CLUSTERS, " ", " ", ".", "\n"]), max_size=400), st.integers(40, 100), SIZES)
def test_no_character_is_broken(clusters: list[str], limit: int, size: SizeFunction) -> None:
    text = "".join(clusters)
    ends = set(accumulate(map(len, clusters)))
    at = 0
    for part in split(RichText(text), limit, size):
        start = text.index(part.text, at)
        at = start + len(part.text)
        assert start in ends | {0}
        assert at in ends


@UNHURRIED
@given(MARKDOWN.map(read_markdown), LIMITS, SIZES)
def test_nothing_is_cut_through_that_fits_into_a_part(document: RichText, limit: int, size: SizeFunction) -> None:
    at, boundaries = 0, find_boundaries(document.text)
    for part in split(document, limit, size):
        at = document.text.index(part.text, at) + len(part.text)
        for span in document.spans:
            if span.start < at < span.end and span.start in boundaries and span.end in boundaries:
                assert size(document.slice(span.start, span.end)) > limit


@UNHURRIED
@given(PROSE, LIMITS, SIZES)
def test_there_are_not_many_more_parts_than_it_takes(text: str, limit: int, size: SizeFunction) -> None:
    document = RichText(text)
    assert len(split(document, limit, size)) <= 1 + 4 * size(document) / limit


# --- where it is cut


def test_what_fits_is_one_part() -> None:
    document = read_markdown("**hello**\n\nworld")
    assert split(document, 16, count_characters) == [document]


@pytest.mark.parametrize("text", ["", " \n\t ", "\u200b\u200b", "\u2800", " " * 100])
def test_what_cannot_be_seen_is_no_part(text: str) -> None:
    assert split(RichText(text), 16, count_characters) == []


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One two. Three\nfour five.\n\nSix seven eight nine", ["One two. Three\nfour five.", "Six seven eight nine"]),
        ("One two three four\nfive six seven eight nine", ["One two three four", "five six seven eight nine"]),
        ("One two three four. Five six seven", ["One two three four.", "Five six seven"]),
        ('He said "so it is." Then he went home', ['He said "so it is."', "Then he went home"]),
        ("One two three four five six seven", ["One two three four five six", "seven"]),
        ("漢字" * 7 + "。" + "漢字" * 10, ["漢字" * 7 + "。", "漢字" * 10]),
        ("x" * 70, ["x" * 30, "x" * 30, "x" * 10]),
        ("Look: " + "x" * 70, ["Look: " + "x" * 24, "x" * 30, "x" * 16]),
        ("Look at it: https://example.org/12345", ["Look at it:", "https://example.org/12345"]),
        ("one two\u00a0three\u00a0four\u00a0five\u00a0thirteen", ["one", "two\u00a0three\u00a0four\u00a0five\u00a0thirteen"]),
        ("• one two three\n• four five six seven\n• eight", ["• one two three", "• four five six seven\n• eight"]),
        ("12345678901234567890\n• 123456789", ["12345678901234567890", "• 123456789"]),
    ],
)
def test_it_is_cut_at_the_end_of_what_belongs_together(text: str, parts: list[str]) -> None:
    assert texts(split(RichText(text), 30, count_characters)) == parts


def test_a_sign_that_belongs_to_the_space_after_it_goes_with_that_space() -> None:
    """The Arabic number sign and what follows are one character, also a space: the space is no end of a word then."""
    text = "x" * 15 + "\u0600 " + "y" * 9
    assert texts(split(RichText(text), 16, count_characters)) == ["x" * 15, "\u0600 " + "y" * 9]


def test_a_heading_stays_with_what_it_is_the_heading_of() -> None:
    document = read_markdown("Some words before.\n\n## Next\n\nAnd the words after it")
    assert texts(split(document, 30, count_characters)) == ["Some words before.", "Next\n\nAnd the words after it"]


def test_a_block_of_code_that_fits_begins_the_next_part() -> None:
    parts = split(read_markdown("Words before it\n\n```py\na = 1\n\n  b = 2\n```\n\nand after"), 24, count_characters)
    assert texts(parts) == ["Words before it", "a = 1\n\n  b = 2", "and after"]
    assert parts[1].spans == [Span(SpanKind.BLOCK, 0, 14, "py")]


def test_a_longer_one_is_closed_and_opened_again_with_its_language() -> None:
    parts = split(read_markdown("```py\ndef f():\n    a = 1\n\n    return a + 2\n```"), 20, count_characters)
    assert parts == [
        RichText("def f():\n    a = 1", [Span(SpanKind.BLOCK, 0, 18, "py")]),
        RichText("    return a + 2", [Span(SpanKind.BLOCK, 0, 16, "py")]),
    ]


def test_a_longer_mark_is_closed_and_opened_again() -> None:
    parts = split(read_markdown("so **one two three four five** it is"), 20, count_characters)
    assert parts == [
        RichText("so one two three", [Span(SpanKind.BOLD, 3, 16)]),
        RichText("four five it is", [Span(SpanKind.BOLD, 0, 9)]),
    ]


def test_a_link_goes_whole_to_the_next_part() -> None:
    parts = split(read_markdown("words and words [a longer link](https://example.org)"), 24, count_characters)
    assert texts(parts) == ["words and words", "a longer link"]


def test_a_character_larger_than_the_limit_is_the_only_one_that_is_broken() -> None:
    pile = "a" + "\u0301" * 40
    assert texts(split(RichText(f"b {pile} c"), 16, count_utf8_bytes)) == ["b", "a" + "\u0301" * 7, *["\u0301" * 8] * 4, "\u0301 c"]


@pytest.mark.parametrize(("size", "longest"), [(count_characters, 20), (count_utf16_units, 10), (count_utf8_bytes, 5)])
def test_each_unit_counts_for_itself(size: SizeFunction, longest: int) -> None:
    assert [len(part.text) for part in split(RichText("😀" * 40), 20, size)] == [longest] * (40 // longest)


def test_a_limit_in_which_nothing_could_be_written_is_refused() -> None:
    with pytest.raises(ValueError, match="a limit of 15 is too small"):
        split(RichText("x"), 15, count_characters)


@pytest.mark.parametrize(
    "bit",
    [
        "x",
        "漢",
        "a ",
        "a\n",
        "\n",
        "A. ",
        "😀",
        "👨‍",
        "a\u0301",
        "\u0301",
        "\U0001f1e6",
        "क्",
        "\u200b",
        "**a** ",
        "`a`",
        "- a\n",
        "[a](https://x.example) ",
        "**a *b ",
    ],
)
def test_time_grows_with_the_text_and_no_faster(bit: str) -> None:
    assert_linear(lambda length: partial(split, read_markdown((bit * length)[:length]), 256, count_utf8_bytes))
