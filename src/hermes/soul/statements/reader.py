"""Read a message: what to forget, what to remember, and what its writer says about themselves.

Each sentence is read with the book of its language: first the act (tell, remember, forget), then whether the writer means it (no
question, supposition or report), then the person it is about, and only then the key and the value. An unsure reading is left out: the user
can repeat a fact that was missed, but a wrong fact is believed. A request to forget is the exception: there a miss is worse."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.soul.excerpt import excerpt
from hermes.soul.fact_keys import Op
from hermes.soul.recall_terms import terms
from hermes.soul.statements.forget_statements import is_attack, read_forget_statements, trim_bounds
from hermes.soul.statements.habits import find_habits
from hermes.soul.statements.items import STRIP_CHARS
from hermes.soul.statements.language_book import LanguageBook, common_pattern, likely_languages, load_book
from hermes.soul.statements.self_statements import read_self_statements
from hermes.soul.statements.sentences import Sentence, split_sentences
from hermes.soul.statements.statement import Statement, blank_out, make_statements


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


def is_everything(found: Statement) -> bool:
    return found.op is Op.FORGET and not found.key and not found.value


def read_sentence(sentence: Sentence, book: LanguageBook, *, about_other: bool = False) -> SentenceReading:
    """Read one sentence with the book of one language. `about_other`: an earlier sentence named another person."""
    plain, is_asked_for, is_other_thing = sentence.plain, False, False
    found = list[Statement]()
    kept = book.keep.search(plain)
    if kept:
        plain, is_asked_for = blank_out(plain, kept.start(), kept.end()), True
    elif (forget := book.forget.search(plain)) and not book.forgot.search(sentence.source.lower()):
        forgotten, plain = read_forget_statements(sentence, book, forget)
        is_other_thing = forgotten is None
        found += forgotten or ()
    elif remember := book.remember.search(plain):
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
