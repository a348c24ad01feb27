"""What a user asks Hermes to forget: a value, a key, free facts about something, or everything.

Here a miss is worse than a wrong match: words that name no key are searched among the free facts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hermes.soul.fact_keys import LIST_KEYS, Op
from hermes.soul.recall_terms import terms
from hermes.soul.sanitize import scan
from hermes.soul.statements.items import STRIP_CHARS, read_items
from hermes.soul.statements.language_book import LanguageBook, common_pattern
from hermes.soul.statements.self_statements import diet_of, is_about_other
from hermes.soul.statements.sentences import QUOTED, Sentence
from hermes.soul.statements.statement import Statement, blank_out


def read_forget_statements(sentence: Sentence, book: LanguageBook, forget: re.Match[str]) -> tuple[list[Statement] | None, str]:
    """The statements of what to forget, and the sentence without them. None if the user wants to forget something that is not a fact."""
    plain = sentence.plain
    first, last = next((forget.span(name) for name, verb in forget.groupdict().items() if verb), forget.span())
    memory = book.memory.search(plain)
    if memory:
        plain = blank_out(plain, memory.start(), memory.end())
    start, end = find_object(plain, book, first, last)
    hidden = blank_out(blank_out(plain, 0, start), end, len(plain))
    reached = first_clause_end(plain, start, end, book)
    clause = blank_out(hidden, reached, len(plain))
    rest = blank_out(plain, 0, max(reached, last))
    found = list(forgotten_keys(sentence, hidden, clause, reached, book))
    if found:
        return found, rest
    whole = book.everything.search(sentence.plain)
    if book.not_facts.search(clause) or (whole and is_attack(*text_around(sentence, forget, whole))):
        return None, rest
    if whole:
        return [Statement(None, "", Op.FORGET, sentence.text)], rest
    if QUOTED in clause:
        return [
            Statement(None, quotation.strip(STRIP_CHARS), Op.FORGET, sentence.text) for quotation in sentence.quotations if quotation
        ], rest
    if memory is None and not book.fact.search(clause) and not book.other.search(clause):
        return None, rest
    text = sentence.words(*trim_bounds(clause, start, reached, book)).strip(STRIP_CHARS)
    return ([Statement(None, text, Op.FORGET, sentence.text)] if terms(text) else None), rest


def is_attack(*texts: str) -> bool:
    """Whether the text beside "forget everything" gives orders to a model: "You are now a pirate". Then the model's rules are meant."""
    return scan(" ".join(texts)) is not None


def text_around(sentence: Sentence, *parts: re.Match[str]) -> tuple[str, str]:
    """The text before some parts of a sentence, and the text after them."""
    first, last = min(part.start() for part in parts), max(part.end() for part in parts)
    return sentence.words(0, first), sentence.words(last, len(sentence.plain))


def find_object(plain: str, book: LanguageBook, first: int, last: int) -> tuple[int, int]:
    """Where the object of the verb stands: after it, or before it if the language puts it there."""
    before, after = plain[:first].strip(STRIP_CHARS), plain[last:].strip(STRIP_CHARS)
    if (book.is_object_first or not after) and (
        len(before) >= 2 and not (after and book.fact.match(after) and not book.fact.search(before))
    ):
        return 0, first
    return last, len(plain)


def first_clause_end(plain: str, start: int, end: int, book: LanguageBook) -> int:
    """Where the first clause after a place ends. A clause that is only "please" does not count."""
    begin = start + len(plain[start:end]) - len(plain[start:end].lstrip(STRIP_CHARS))
    if end < len(plain) and book.is_object_first:
        return end
    border = book.clause_end.search(plain, begin, end)
    while border and common_pattern("please").fullmatch(plain[begin : border.start()].strip()):
        border = book.clause_end.search(plain, border.end(), end)
    return border.start() if border else end


def forgotten_keys(sentence: Sentence, hidden: str, clause: str, reached: int, book: LanguageBook) -> Iterator[Statement]:
    """The keys to forget, with their values or without. A statement about another person is not about a key of the writer."""
    seen = set[str]()
    shown = Sentence(sentence.text, sentence.source, hidden, sentence.places, ())
    for pattern in (*book.tells, *book.topics):
        text = hidden if pattern in book.tells else clause
        match = pattern.regex.search(text)
        if (
            match is None
            or match.start() >= reached
            or pattern.key in seen
            or is_about_other(match, pattern, text, book, about_other=False)
        ):
            continue
        groups = match.groupdict()
        if pattern in book.topics and any(
            not common_pattern("you").fullmatch(other.group().strip(" ,")) for other in book.other.finditer(clause)
        ):
            continue
        if groups.get("d"):
            value = diet_of(match["d"], book)
        elif pattern.value is not None:
            value = pattern.value
        elif groups.get("v"):
            is_last = match.end("v") == match.end()
            items = read_items(shown, match.start("v"), match.end("v"), book, many=pattern.key in LIST_KEYS, is_last=is_last)
            value = ", ".join(items.names + items.excluded)
            if pattern in book.tells and (not value or (pattern.key == "home_area" and book.bad_place.search(match["v"]))):
                continue
        else:
            value = ""
        seen.add(pattern.key)
        yield Statement(pattern.key, value, Op.FORGET, sentence.text)


def trim_bounds(plain: str, start: int, end: int, book: LanguageBook) -> tuple[int, int]:
    """The bounds of the words, without the phrases that introduce or end them."""
    while True:
        text = plain[start:end]
        begin, last = len(text) - len(text.lstrip(STRIP_CHARS)), len(text.rstrip(STRIP_CHARS))
        trimmed = book.trim.search(text.strip(STRIP_CHARS))
        if trimmed is None or trimmed.end() == trimmed.start() or begin >= last:
            return start + begin, start + max(begin, last)
        if trimmed.start() == 0:
            start += begin + trimmed.end()
        else:
            end = start + begin + trimmed.start()
            start += begin
