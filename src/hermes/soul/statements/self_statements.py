"""What a writer says about themselves in a sentence: first whether they mean it, then the person, and only then the key and the value. A
value may be a list of items: "nuts, and the shrimps please" gives `nuts` and `shrimps`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hermes.soul.fact_keys import LIST_KEYS, Op
from hermes.soul.statements.language_book import OPS, KeyPattern, LanguageBook, common_pattern
from hermes.soul.statements.sentences import QUOTED, Sentence, Statement, blank_out, make_statements

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


TASTES = frozenset({"interests", "dislikes"})
MAX_PER_PATTERN = 3
"""Statements that one pattern may find in a sentence."""
MAX_TAG_WORDS, MAX_TAG_CHARS = 2, 4
"""The longest question tag: "right?"."""


@dataclass(frozen=True, slots=True)
class SelfStatements:
    """The statements, whether the book knew words that state nothing about the writer, and the folded sentence without what was read."""

    found: tuple[Statement, ...]
    is_blocked: bool
    rest: str


def read_self_statements(sentence: Sentence, plain: str, book: LanguageBook, *, about_other: bool) -> SelfStatements:
    found, is_blocked, taken = list[tuple[int, Statement]](), False, list[tuple[int, int, str]]()
    for pattern in book.tells_in(plain):
        start = 0
        for _ in range(MAX_PER_PATTERN):
            match = pattern.regex.search(plain, start)
            if match is None:
                break
            start = max(match.start() + 1, match.end("lead") if pattern.is_bare else 0)
            if is_about_other(match, pattern, plain, book, about_other=about_other) or not is_meant(match, plain, book):
                is_blocked = True
                continue
            stated, end = statements_in(sentence, plain, match, pattern, book)
            if end >= len(plain.rstrip(" ?!.")) and "?" in plain[-3:]:
                stated = []
            if stated and not any(first < end and match.start() < last and key == pattern.key for first, last, key in taken):
                taken.append((match.start(), end, pattern.key))
                place = next((match.start(name) for name in ("v", "d") if match.groupdict().get(name)), match.start())
                found += [(place, each) for each in stated]
                start = max(start, end)
    rest = plain
    for first, last, _ in taken:
        rest = blank_out(rest, first, last)
    return SelfStatements(tuple(each for _, each in sorted(found, key=lambda placed: placed[0])), is_blocked, rest)


def is_about_other(match: re.Match[str], pattern: KeyPattern, plain: str, book: LanguageBook, *, about_other: bool) -> bool:
    """Whether a statement without a subject may be about another person: it or an earlier part names one."""
    if not pattern.is_bare:
        return False
    end = match.end("v") if match.groupdict().get("v") else match.end()
    if mentions_other(plain, max(0, match.end("lead") - 1), end, pattern.key, book):
        return True
    return not book.me.search(match["lead"]) and (about_other or book.other.search(plain, 0, match.start()) is not None)


def mentions_other(plain: str, start: int, end: int, key: str, book: LanguageBook) -> bool:
    """Whether another person is named between two places. A pet counts as one, but not in a list: "I like dogs" names no certain dog."""
    return any(key not in LIST_KEYS or not common_pattern("pet").search(found.group()) for found in book.other.finditer(plain, start, end))


def is_meant(match: re.Match[str], plain: str, book: LanguageBook) -> bool:
    """Whether the writer states it, and does not ask, suppose or report it."""
    start = match.end("lead") if "lead" in match.groupdict() else match.start()
    # If the verb comes last or words run together, the word that makes it a question or a report may come later.
    read_to = start if book.is_spaced and not book.is_object_first else len(plain)
    if book.supposes.search(plain, 0, read_to) or book.reports.search(plain, 0, read_to) or book.supposes.search(match.group()):
        return False
    tail = book.border.search(plain, match.start("v") if match.groupdict().get("v") else match.end())
    if book.asks.search(plain[: tail.start() if tail else len(plain)]):
        return False
    return "?" not in plain[-3:] or asks_later(plain, start, book)


def asks_later(plain: str, start: int, book: LanguageBook) -> bool:
    """Whether a sentence asks only in a later clause: "I'm vegan, what can I eat?", but not "I'm vegan, right?"."""
    last = max((border.end() for border in book.border.finditer(plain)), default=0)
    is_clause = len(plain[last:].split()) > MAX_TAG_WORDS if book.is_spaced else len(plain) - last > MAX_TAG_CHARS
    return last > start and (is_clause or plain.rfind("\u00bf") > start)


def statements_in(
    sentence: Sentence, plain: str, match: re.Match[str], pattern: KeyPattern, book: LanguageBook
) -> tuple[list[Statement], int]:
    """The statements of one match, and where it ends."""
    groups, key = match.groupdict(), pattern.key
    is_denied = any(groups.get(name) for name in ("no", "neg", "neg2"))
    if not is_denied and not pattern.is_bare and book.denied.search(plain[: match.start() + 1].rstrip() + " "):
        if key == "interests":
            return [], match.end()
        is_denied = True
    op = Op.REMOVE if is_denied else OPS.get(key, Op.SET)
    if pattern.value is not None:
        return make_statements(key, pattern.value, op, sentence.text), match.end()
    if groups.get("d"):
        return make_statements(key, diet_of(match["d"], book), op, sentence.text), match.end() if is_denied else match.end("d")
    shown = Sentence(sentence.text, sentence.source, plain, sentence.places, ())
    is_last = match.end("v") == match.end()
    items = read_items(shown, match.start("v"), match.end("v"), book, many=key in LIST_KEYS, is_last=is_last)
    if pattern.is_bare and not is_last and key in LIST_KEYS and items.names:
        items = ListedItems(items_before(shown, match.start(), book) + items.names, items.excluded, items.end)
    if key in TASTES and mentions_other(plain, max(0, match.start("v") - 1), items.end, key, book):
        return [], items.end  # "I love my wife"
    if key == "home_area" and book.bad_place.search(match["v"]):
        return [], items.end
    if op is Op.REMOVE:
        items = ListedItems(items.names + items.excluded, (), items.end)
    elif key == "interests" and items.excluded and not items.names:
        key, items = "dislikes", ListedItems(items.excluded, (), items.end)
    found = make_statements(key, ", ".join(items.names), op, sentence.text)
    if items.excluded and key in LIST_KEYS:
        found += make_statements(key, ", ".join(items.excluded), Op.REMOVE, sentence.text)
    return found, items.end if is_last else match.end()


def diet_of(words: str, book: LanguageBook) -> str:
    return next(value for value, regex in book.diets if regex.fullmatch(words))
