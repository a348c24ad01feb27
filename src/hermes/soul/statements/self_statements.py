"""What a writer says about themselves in a sentence: first whether they mean it, then the person, and only then the key and the value."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hermes.soul.fact_keys import LIST_KEYS, Op
from hermes.soul.statements.items import ListedItems, items_before, read_items
from hermes.soul.statements.language_book import OPS, KeyPattern, LanguageBook, common_pattern
from hermes.soul.statements.sentences import Sentence
from hermes.soul.statements.statement import Statement, blank_out, make_statements

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
    for pattern in book.tells:
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
