"""Read without a model, in 16 languages, what a message says about its writer, corrects, or asks to forget.

Each sentence is read with the book of its language: first the act (tell, remember, forget), then whether the writer means it (no
question, supposition or report), then the person it is about, and only then the key and the value. An unsure reading is left out: the user
can repeat a fact that was missed, but a wrong fact is believed. A request to forget is the exception: there a miss is worse than a wrong
match, so words that name no key are searched among the free facts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hermes.soul.fact_keys import LIST_KEYS, Op
from hermes.soul.sanitize import scan
from hermes.soul.statements.language_book import BOOKS, LanguageBook, common_pattern, likely_languages, load_book
from hermes.soul.statements.self_statements import STRIP_CHARS, diet_of, is_about_other, read_items, read_self_statements
from hermes.soul.statements.sentences import QUOTED, Sentence, Statement, blank_out, find_habits, make_statements, split_sentences
from hermes.soul.terms import excerpt, terms


@dataclass(frozen=True, slots=True)
class SentenceReading:
    """What a book reads in a sentence. `is_blocked`: it knew the words, but they do not state something about the writer."""

    found: tuple[Statement, ...]
    is_blocked: bool

    @property
    def is_weak(self) -> bool:
        """Whether the book only knows that something is to be forgotten; the book of another language may know what."""
        return bool(self.found) and all(each.key is None and each.value and each.op is Op.FORGET for each in self.found)


def read_statements(text: str) -> list[Statement]:
    """Return what a message says about its writer, sentence by sentence. Of a long message its beginning and its end are read.

    A value to forget is in the writer's words; `same_item` says which known value it is. An empty value means all that the key holds, and
    without a key everything; but not if an attack on the prompt stands beside it."""
    found, about_other = list[Statement](), False
    read = list(split_sentences(excerpt(text)))
    for sentence in read:
        books = [load_book(language) for language in likely_languages(sentence.plain)]
        readings = list[SentenceReading]()
        for book in books:
            reading = read_sentence(sentence, book, about_other=about_other)
            if reading.found or reading.is_blocked:
                readings.append(reading)
                if not reading.is_weak:
                    break
        best = next((reading for reading in readings if reading.found and not reading.is_weak), next(iter(readings), None))
        found += best.found if best else ()
        if not any(reading.is_blocked for reading in readings):
            found += read_habits(sentence, books[0])
        about_other = about_other or books[0].other.search(sentence.plain) is not None
    if any(is_everything(each) and is_attack(*(sentence.text for sentence in read if sentence.text != each.quote)) for each in found):
        found = [each for each in found if not is_everything(each)]
    return list(dict.fromkeys(found))


def can_read_at_once(text: str) -> bool:
    """Whether this process has loaded every book that reading a message may need. If not, reading it takes a second."""
    return bool(BOOKS) and all(BOOKS.keys() >= {*likely_languages(sentence.plain)} for sentence in split_sentences(excerpt(text)))


def is_everything(found: Statement) -> bool:
    return found.op is Op.FORGET and not found.key and not found.value


def read_sentence(sentence: Sentence, book: LanguageBook, *, about_other: bool = False) -> SentenceReading:
    """Read one sentence with the book of one language. `about_other`: an earlier sentence named another person."""
    plain, is_asked_for, is_other_thing = sentence.plain, False, False
    found = list[Statement]()
    kept, forget, remember = book.acts_in(plain)
    if kept:
        plain, is_asked_for = blank_out(plain, kept.start(), kept.end()), True
    elif forget and not book.forgot.search(sentence.source.lower()):
        forgotten, plain = read_forget_statements(sentence, book, forget)
        is_other_thing = forgotten is None
        found += forgotten or ()
    elif remember:
        plain, is_asked_for = blank_out(plain, remember.start(), remember.end()), True
    if is_asked_for:
        plain = plain.replace("?", ".")  # "Can you remember that I am vegan?" is a polite request, and no question.
    own = read_self_statements(sentence, plain, book, about_other=about_other)
    found += own.found
    if own.found:
        # "I'm vegan and allergic to nuts": after a statement about the writer, one without a subject is about the writer too.
        again = read_self_statements(sentence, own.rest, book, about_other=False)
        found += [each for each in again.found if (each.key, each.op) not in {(known.key, known.op) for known in found}]
    if is_asked_for and not found and (kept is None or book.fact.search(plain) or common_pattern("that").search(kept.group())):
        found += read_free(sentence, plain, book)
    return SentenceReading(tuple(found), own.is_blocked or is_other_thing)


def read_habits(sentence: Sentence, book: LanguageBook) -> list[Statement]:
    if "?" in sentence.plain[-3:]:
        return []
    return [
        found
        for start, key, value in find_habits(sentence)
        if not book.supposes.search(sentence.plain, 0, start) and not book.reports.search(sentence.plain, 0, start)
        for found in make_statements(key, value, Op.SET, sentence.text)
    ]


def read_free(sentence: Sentence, plain: str, book: LanguageBook) -> list[Statement]:
    """What a user asks Hermes to remember, in the user's own words."""
    if book.asks.search(plain) or "?" in plain[-3:] or book.supposes.search(plain):
        return []
    start, end = trim_bounds(plain, 0, len(plain), book)
    text = sentence.words(start, end).strip(STRIP_CHARS)
    return [Statement(None, text, Op.SET, sentence.text)] if len(terms(text)) > 1 else []


# --- what to forget


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
