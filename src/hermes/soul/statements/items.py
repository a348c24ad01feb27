"""Read the items of a list in a sentence: "nuts, and the shrimps please" gives `nuts` and `shrimps`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hermes.soul.statements.language_book import LanguageBook
from hermes.soul.statements.sentences import QUOTED, Sentence

MAX_ITEM_WORDS = 4
MAX_LISTED_WORDS = 2
"""Words of an item after a mere comma: another clause may begin there."""
MAX_DENSE_CHARS = {"zh": 10, "ja": 14, "th": 24}
"""Characters of an item in languages without spaces between words."""
HIRAGANA = re.compile("[\u3040-\u309f]")
KOREAN_VERB = re.compile("[요다죠까네야어아지용세]$")
NAME_MARKS = frozenset("&+/\u00b7")
STRIP_CHARS = " .,!?:;\"'-\u2013\u2014()\u3002\u3001\uff5e~*"


@dataclass(frozen=True, slots=True)
class ListedItems:
    """The listed items, the items that the writer excluded, and where in the sentence the list ends."""

    names: tuple[str, ...]
    excluded: tuple[str, ...]
    end: int


@dataclass(frozen=True, slots=True)
class ListPart:
    """The text between two separators."""

    start: int
    end: int
    is_after_comma: bool
    """Only a comma, and no word, joins it to the part before."""


def read_items(sentence: Sentence, start: int, end: int, book: LanguageBook, *, many: bool, is_last: bool = True) -> ListedItems:
    """Read the items between two places. The list ends before the first part that is no item.

    If the verb comes after the list (not `is_last`), the last items are the sure ones: a part that is no item drops the items before it."""
    names, excluded, reached = list[str](), list[str](), start
    parts = list(parts_of(sentence.plain, start, end, book, many=many))
    for number, part in enumerate(parts):
        closed = not part.is_after_comma or any(not other.is_after_comma for other in parts[number + 1 :])
        denied = excluded_part(sentence.plain, part, book, is_first=not names)
        meant = denied or part
        place = find_item(sentence, meant, book, max_words=MAX_ITEM_WORDS if closed or not names else MAX_LISTED_WORDS)
        if place is None and not is_last and number < len(parts) - 1:
            names, excluded = [], []
            continue
        if place is None:
            return ListedItems(tuple(names), tuple(excluded), reached) if is_last else ListedItems((), (), reached)
        (excluded if denied else names).append(clean(sentence.words(*place)))
        reached = place[1]
        if not many or book.end.search(sentence.plain, place[1], meant.end):
            break
    return ListedItems(tuple(names), tuple(excluded), reached)


def items_before(sentence: Sentence, place: int, book: LanguageBook) -> tuple[str, ...]:
    """The items before a comma at a place, if the verb comes after the list: "갑각류, 견과류 알레르기". Any other part ends the list."""
    found, plain = list[str](), sentence.plain
    while plain[place : place + 1] == ",":
        start = max(plain.rfind(mark, 0, place) for mark in ",;:()") + 1
        begun = start + len(plain[start:place]) - len(plain[start:place].lstrip())
        lead = book.lead.match(plain, begun, place)
        begun = lead.end() if lead else begun
        text = plain[begun:place].strip()
        enumerates = sentence.words(place, place + 1) == "\u3001" and not HIRAGANA.search(text)
        fits = " " not in text and not KOREAN_VERB.search(text) if book.language == "ko" else enumerates
        item = find_item(sentence, ListPart(begun, place, is_after_comma=True), book, max_words=MAX_LISTED_WORDS) if fits and text else None
        if item is None or book.other.search(text):
            break
        found.insert(0, clean(sentence.words(*item)))
        place = start - 1
    return tuple(found)


def parts_of(plain: str, start: int, end: int, book: LanguageBook, *, many: bool) -> Iterator[ListPart]:
    """The parts between separators. Without `many` a mark is part of a name: "Salt & Ember"."""
    comma = True
    for found in book.separator.finditer(plain, start, end):
        if not many and found.group() in NAME_MARKS:
            continue
        if plain[start : found.start()].strip(STRIP_CHARS):
            yield ListPart(start, found.start(), comma)
            comma = True
        start, comma = found.end(), comma and found.group().strip() in {",", ";"}
    if plain[start:end].strip(STRIP_CHARS):
        yield ListPart(start, end, comma)


def excluded_part(plain: str, part: ListPart, book: LanguageBook, *, is_first: bool) -> ListPart | None:
    """The item of a part that the writer excludes ("not peanuts"); None if there is none."""
    text = plain[part.start : part.end]
    denied = book.contrast.search(text)
    if denied and not is_first and not text[: denied.start()].strip(STRIP_CHARS):
        return ListPart(part.start + denied.end(), part.end, part.is_after_comma)
    if denied and not text[denied.end() :].strip(STRIP_CHARS):
        return ListPart(part.start, part.start + denied.start(), part.is_after_comma)
    return None


def find_item(sentence: Sentence, part: ListPart, book: LanguageBook, *, max_words: int) -> tuple[int, int] | None:
    """Where the item of a part stands, without articles and the like; None if the part is no item."""
    first, text = part.start, sentence.plain[part.start : part.end]
    ending = book.end.search(text)
    if ending:
        text = text[: ending.start()]
    begin = len(text) - len(text.lstrip(STRIP_CHARS))
    text = text.strip(STRIP_CHARS)
    while found := book.edge.search(text):
        if found.start() == 0:
            begin += found.end()
            text = text[found.end() :]
        else:
            text = text[: found.start()]
        begin += len(text) - len(text.lstrip(STRIP_CHARS))
        text = text.strip(STRIP_CHARS)
    fits = len(text) <= MAX_DENSE_CHARS[book.language] if book.language in MAX_DENSE_CHARS else len(text.split()) <= max_words
    if not text or not fits or QUOTED in text or book.bad.search(text) or not any(map(str.isalpha, text)):
        return None
    return first + begin, first + begin + len(text)


def clean(text: str) -> str:
    """An item as it is kept: without symbols around it."""
    return re.sub(r"^[^\w]+|[^\w)\u0300-\u036f\u0900-\u0dff\u0e00-\u0e7f]+$", "", " ".join(text.split()))
