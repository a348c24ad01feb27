"""A filter of patterns leaves out only patterns that cannot match."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.soul.statements.language_book import load_book
from hermes.soul.statements.needed_texts import PatternFilter, needed_texts
from hermes.soul.statements.sentences import load_habits, split_sentences

ROWS = Path(__file__).parent / "statements"


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("nuts", {"nuts"}),
        (r"\bi (?:love|adore) it", {"love", "adore"}),
        (r"i (?:love )?peanuts", {"peanuts"}),
        (r"i (?:love )*a", {"i ", "a"}),
        (r"(?:ab|cde)+", {"ab", "cde"}),
        (r"(?P<place>.+)?", None),
        (r"(?:ab|\w+)", None),
        (r"(?=ab)\w+", None),
        (r"(?i:nuts)", None),
    ],
)
def test_a_match_has_one_of_the_needed_texts(pattern: str, texts: set[str] | None) -> None:
    found = needed_texts(re.compile(pattern))
    assert found == texts or (found is not None and texts is not None and len(found) == 1 and found <= texts)


def test_nothing_is_known_of_patterns_that_ignore_case() -> None:
    assert needed_texts(re.compile("nuts", re.IGNORECASE)) is None


def test_the_possible_patterns_come_in_their_order() -> None:
    patterns = [re.compile(text) for text in ("sea|lake", r"\w", "the sea", "hills")]
    assert PatternFilter(patterns).possible("by the sea") == [0, 1, 2]
    assert PatternFilter(patterns).possible("") == [1]


def sentences() -> Iterator[str]:
    """What people say in sixteen languages, as the tests of the rules have it."""
    for file in sorted(ROWS.glob("*.rows")):
        for line in file.read_text(encoding="utf-8").splitlines():
            yield from (sentence.plain for sentence in split_sentences(line))


@pytest.mark.parametrize("language", ["en", "id", "es", "fr", "de", "it", "pt", "nl", "ru", "zh", "ja", "ko", "ar", "hi", "th", "tr"])
def test_the_filters_of_the_books_leave_out_nothing_that_matches(language: str) -> None:
    book, habits = load_book(language), load_habits()
    acts = (book.keep, book.forget, book.remember)
    for plain in list(sentences())[::3]:
        for filter_, patterns in (
            (book.tells_filter, [tell.regex for tell in book.tells]),
            (book.acts_filter, acts),
            (habits.filter, [habit.regex for habit in habits.patterns]),
        ):
            possible = set(filter_.possible(plain))
            missed = [pattern.pattern for place, pattern in enumerate(patterns) if place not in possible and pattern.search(plain)]
            assert missed == []
