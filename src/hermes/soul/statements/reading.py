"""Read a message: what is to be forgotten, what is to be remembered, and what its writer says of themselves.

Each sentence is read with the book of its language: first which act it is (tell, remember, forget), then whether it is meant (no
question, supposition or report), then which person it is about, and only then the key and the value. What is not sure is left out: a
fact that was missed can be told again, a wrong one is believed. What is to be forgotten is the exception."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hermes.soul.excerpt import excerpt
from hermes.soul.facts import LISTS, BadValue, Op, typed
from hermes.soul.recall_terms import terms
from hermes.soul.sanitize import scan
from hermes.soul.statements.book import OPS, Book, Pattern, book_of, languages_of
from hermes.soul.statements.habits import habits_in
from hermes.soul.statements.items import STRIPPED, Items, items_of, listed_before
from hermes.soul.statements.spelling import QUOTED, Sentence, sentences

PET = re.compile(
    r"\b(?:dogs?|cats?|pets?|perr|gat|mascota|cachorr|cao\b|chien|chat|hund|katze|kater|hond|kat\b|poes|can[ei]\b|gatt|собак|пес|кош|кот|kope|kedi|anjing|kucing)"
    "|강아지|고양이|개|कुत्त|बिल्ल|كلب|قط|狗|猫|犬|ペット|หมา|แมว"
)
TASTES = frozenset({"interests", "dislikes"})
THAT = re.compile(r"(?:that|que|qu'|dass|che|dat|bahwa|kalau|kalo|что|ki|कि|ان|اني|انني|こと.{0,2}|の.?|거.?|ว่า)\W*$")
"""Folded, at the end of "don't forget that"."""
PLEASE = re.compile("please|pls|por favor|porfa|s'il (?:te|vous) plait|stp|svp|bitte|per favore|alsjeblieft|aub|пожалуиста|lutfen|من فضلك|कृपया|प्लीज|请|tolong")
"""Folded, between the verb and what is to be forgotten."""
MOST_OF_A_KEY = 3
"""Statements that one pattern may find in a sentence."""


@dataclass(frozen=True, slots=True)
class Found:
    """Something that a sentence says. A free fact has no key."""

    key: str | None
    value: str
    op: Op
    quote: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a book makes of a sentence. `is_blocked`: it knew the words, and they are not meant of the writer."""

    found: tuple[Found, ...]
    is_blocked: bool = False
    names_other: bool = False
    rest: str = ""
    """The folded sentence without what was read in it."""

    @property
    def is_weak(self) -> bool:
        """Whether it is only known that something is to be forgotten; another language may know what."""
        return bool(self.found) and all(each.key is None and each.value and each.op is Op.FORGET for each in self.found)


def read_statements(text: str) -> list[Found]:
    """Return what a message says of its writer, sentence by sentence. Of a long one its beginning and its end are read.

    A value to forget is given in the writer's words; `same_item` says which known one it is. An empty one means all that the key holds,
    and without a key everything; what an attack on the prompt stands beside asks for no such thing."""
    found, about_other = list[Found](), False
    read = list(sentences(excerpt(text)))
    for sentence in read:
        readings = list[Reading]()
        for language in languages_of(sentence.plain):
            reading = read_sentence(sentence, book_of(language), about_other=about_other)
            if reading.found or reading.is_blocked:
                readings.append(reading)
                if not reading.is_weak:
                    break
        if not any(reading.is_blocked for reading in readings):
            found += read_habits(sentence)
        if readings:
            best = next((reading for reading in readings if reading.found and not reading.is_weak), readings[0])
            found += best.found
            about_other = about_other or best.names_other
    if any(is_everything(each) and is_attack(*(sentence.text for sentence in read if sentence.text != each.quote)) for each in found):
        found = [each for each in found if not is_everything(each)]
    return list(dict.fromkeys(found))


def is_everything(found: Found) -> bool:
    return found.op is Op.FORGET and not found.key and not found.value


def is_attack(*texts: str) -> bool:
    """Whether what stands beside "forget everything" gives a model orders: "You are now a pirate". Then its own rules are meant."""
    return scan(" ".join(texts)) is not None


def read_sentence(sentence: Sentence, book: Book, *, about_other: bool = False) -> Reading:
    """Read one sentence with the book of one language. `about_other`: an earlier one named another person."""
    plain, is_asked_for, is_other_thing = sentence.plain, False, False
    found = list[Found]()
    kept = book.keep.search(plain)
    if kept:
        plain, is_asked_for = hide(plain, kept.start(), kept.end()), True
    elif (forget := book.forget.search(plain)) and not book.forgot.search(sentence.source.lower()):
        forgotten, plain = read_forgotten(sentence, book, forget)
        is_other_thing = forgotten is None
        found += forgotten or ()
    elif remember := book.remember.search(plain):
        plain, is_asked_for = hide(plain, remember.start(), remember.end()), True
    if is_asked_for:
        plain = plain.replace("?", ".")  # "Can you remember that I am vegan?" is polite, and asks nothing.
    told = read_told(sentence, plain, book, about_other=about_other)
    found += told.found
    if told.found:
        # "I'm vegan and allergic to nuts": behind what the writer said of themselves, a statement without a subject is about them too.
        again = read_told(sentence, told.rest, book, about_other=False)
        found += [each for each in again.found if each.key not in {known.key for known in found}]
    if is_asked_for and not found and (kept is None or book.fact.search(plain) or THAT.search(kept.group())):
        found += read_free(sentence, plain, book)
    return Reading(tuple(found), told.is_blocked or is_other_thing, book.other.search(sentence.plain) is not None)


def hide(plain: str, start: int, end: int) -> str:
    """Make a part of a sentence a mere border, so that all places stay."""
    return plain[:start] + "," * (end - start) + plain[end:]


# --- telling


def read_told(sentence: Sentence, plain: str, book: Book, *, about_other: bool) -> Reading:
    found, is_blocked, taken = list[tuple[int, Found]](), False, list[tuple[int, int, str]]()
    for pattern in book.tells:
        start = 0
        for _ in range(MOST_OF_A_KEY):
            match = pattern.regex.search(plain, start)
            if match is None:
                break
            start = max(match.start() + 1, match.end("lead") if pattern.is_bare else 0)
            if is_of_other(match, pattern, plain, book, about_other=about_other) or not is_meant(match, plain, book):
                is_blocked = True
                continue
            said, end = statements_in(sentence, plain, match, pattern, book)
            if end >= len(plain.rstrip(" ?!.")) and "?" in plain[-3:]:
                said = []
            if said and not any(first < end and match.start() < last and key == pattern.key for first, last, key in taken):
                taken.append((match.start(), end, pattern.key))
                found += [(match.start(), each) for each in said]
                start = max(start, end)
    rest = plain
    for first, last, _ in taken:
        rest = hide(rest, first, last)
    return Reading(tuple(each for _, each in sorted(found, key=lambda placed: placed[0])), is_blocked, rest=rest)


def is_of_other(match: re.Match[str], pattern: Pattern, plain: str, book: Book, *, about_other: bool) -> bool:
    """Whether a statement without a subject may be about another person: one is named in it, or was before."""
    if not pattern.is_bare:
        return False
    end = match.end("v") if "v" in match.groupdict() and match["v"] else match.end()
    if names_other(plain, max(0, match.end("lead") - 1), end, pattern.key, book):
        return True
    return not book.me.search(match["lead"]) and (about_other or book.other.search(plain, 0, match.start()) is not None)


def names_other(plain: str, start: int, end: int, key: str, book: Book) -> bool:
    """Whether another person is named between two places. Who likes dogs speaks of no dog."""
    return any(key not in TASTES or not PET.search(found.group()) for found in book.other.finditer(plain, start, end))


def is_meant(match: re.Match[str], plain: str, book: Book) -> bool:
    """Whether the writer says it, and does not ask, suppose or report it."""
    start = match.end("lead") if "lead" in match.groupdict() else match.start()
    if book.supposes.search(plain, 0, max(start, 0)) or book.reports.search(plain, 0, start):
        return False
    if book.supposes.search(match.group()) or (not book.is_spaced and (book.reports.search(plain) or book.supposes.search(plain))):
        return False
    tail = book.border.search(plain, match.end("v") - len(match["v"]) if "v" in match.groupdict() and match["v"] else match.end())
    clause_end = tail.start() if tail else len(plain)
    if book.asks.search(plain[:clause_end]) or (book.is_object_first and (book.reports.search(plain) or book.supposes.search(plain))):
        return False
    if "?" not in plain[-3:]:
        return True
    last = max((border.end() for border in book.border.finditer(plain)), default=0)
    opened = plain.rfind("\u00bf")
    return last > start and (opened > start or len(plain[last:].split()) > 2 or (not book.is_spaced and len(plain) - last > 4))


def statements_in(sentence: Sentence, plain: str, match: re.Match[str], pattern: Pattern, book: Book) -> tuple[list[Found], int]:
    """What one match says, and where it ends."""
    groups, key = match.groupdict(), pattern.key
    is_denied = any(groups.get(name) for name in ("no", "neg", "neg2"))
    if not is_denied and not pattern.is_bare and book.denied.search(plain[: match.start() + 1].rstrip() + " "):
        if key == "interests":
            return [], match.end()
        is_denied = True
    op = Op.REMOVE if is_denied else OPS.get(key, Op.SET)
    if pattern.value is not None:
        return spelled(key, pattern.value, op, sentence.text), match.end()
    if groups.get("d"):
        return spelled(key, diet_of(match["d"], book), op, sentence.text), match.end("d")
    shown = Sentence(sentence.text, sentence.source, plain, sentence.places, ())
    is_last = match.end("v") == match.end()
    items = items_of(shown, match.start("v"), match.end("v"), book, many=key in LISTS, is_last=is_last)
    if pattern.is_bare and not is_last and key in LISTS and items.names:
        items = Items(listed_before(shown, match.start(), book) + items.names, items.excluded, items.end)
    if key in TASTES and names_other(plain, max(0, match.start("v") - 1), items.end, key, book):
        return [], items.end  # "I love my wife"
    if key == "home_area" and book.bad_place.search(match["v"]):
        return [], items.end
    if op is Op.REMOVE:
        items = Items(items.names + items.excluded, (), items.end)
    elif key == "interests" and items.excluded and not items.names:
        key, items = "dislikes", Items(items.excluded, (), items.end)
    found = spelled(key, ", ".join(items.names), op, sentence.text)
    if items.excluded and key in LISTS:
        found += spelled(key, ", ".join(items.excluded), Op.REMOVE, sentence.text)
    return found, items.end if is_last else match.end()


def diet_of(words: str, book: Book) -> str:
    return next(value for value, regex in book.diets if regex.fullmatch(words))


def spelled(key: str, value: str, op: Op, quote: str) -> list[Found]:
    """A value in its one spelling; nothing for what the key cannot hold."""
    try:
        return [Found(key, typed(key, value), op, quote)] if value else []
    except BadValue:
        return []


def read_habits(sentence: Sentence) -> list[Found]:
    if "?" in sentence.plain[-3:]:
        return []
    books = [book_of(language) for language in languages_of(sentence.plain)[:1]]
    return [
        found
        for start, key, value in habits_in(sentence)
        if not any(book.supposes.search(sentence.plain, 0, start) or book.reports.search(sentence.plain, 0, start) for book in books)
        for found in spelled(key, value, Op.SET, sentence.text)
    ]


def read_free(sentence: Sentence, plain: str, book: Book) -> list[Found]:
    """What a user asks to be remembered, in their own words."""
    if book.asks.search(plain) or "?" in plain[-3:] or book.supposes.search(plain):
        return []
    start, end = bounds(plain, 0, len(plain), book)
    text = sentence.words(start, end).strip(STRIPPED)
    return [Found(None, text, Op.SET, sentence.text)] if len(terms(text)) > 1 else []


def bounds(plain: str, start: int, end: int, book: Book) -> tuple[int, int]:
    """Where the words stand, without what introduces or ends them."""
    while True:
        text = plain[start:end]
        begin, last = len(text) - len(text.lstrip(STRIPPED)), len(text.rstrip(STRIPPED))
        trimmed = book.trim.search(text.strip(STRIPPED))
        if trimmed is None or trimmed.end() == trimmed.start() or begin >= last:
            return start + begin, start + max(begin, last)
        if trimmed.start() == 0:
            start += begin + trimmed.end()
        else:
            end = start + begin + trimmed.start()
            start += begin


# --- forgetting


def read_forgotten(sentence: Sentence, book: Book, forget: re.Match[str]) -> tuple[list[Found] | None, str]:
    """What is to be forgotten, and the sentence without it. None where something else is to be forgotten than facts."""
    plain = sentence.plain
    start, end = object_of(plain, book, forget)
    hidden = hide(hide(plain, 0, start), end, len(plain))
    reached = first_clause(plain, start, end, book)
    clause = hide(hidden, reached, len(plain))
    rest = hide(plain, 0, max(reached, forget.end())) if start >= forget.end() or not book.is_object_first else hide(plain, 0, forget.end())
    found = list(forgotten_keys(sentence, hidden, clause, reached, book))
    if found:
        return found, rest
    whole = book.everything.search(plain)
    if book.not_facts.search(clause) or (whole and is_attack(*beside(sentence, forget, whole))):
        return None, rest
    if whole:
        return [Found(None, "", Op.FORGET, sentence.text)], rest
    if QUOTED in clause:
        return [Found(None, quotation.strip(STRIPPED), Op.FORGET, sentence.text) for quotation in sentence.quotations if quotation], rest
    if not book.fact.search(clause):
        return None, rest
    first, last = bounds(clause, start, reached, book)
    text = sentence.words(first, last).strip(STRIPPED)
    return ([Found(None, text, Op.FORGET, sentence.text)] if terms(text) else None), rest


def beside(sentence: Sentence, *parts: re.Match[str]) -> tuple[str, str]:
    """What stands before some parts of a sentence, and what stands behind them."""
    first, last = min(part.start() for part in parts), max(part.end() for part in parts)
    return sentence.words(0, first), sentence.words(last, len(sentence.plain))


def object_of(plain: str, book: Book, forget: re.Match[str]) -> tuple[int, int]:
    """Where that stands which is to be forgotten: behind the verb, or before it where the language puts it there."""
    before, after = plain[: forget.start()].strip(STRIPPED), plain[forget.end() :].strip(STRIPPED)
    if (book.is_object_first or not after) and (len(before) >= 2 and not (after and book.fact.match(after) and not book.fact.search(before))):
        return 0, forget.start()
    return forget.end(), len(plain)


def first_clause(plain: str, start: int, end: int, book: Book) -> int:
    """Where the first thought behind a place ends: not behind a mere "please", or right behind the verb."""
    begin = start + len(plain[start:end]) - len(plain[start:end].lstrip(STRIPPED))
    if end < len(plain) and book.is_object_first:
        return end
    border = book.clause_end.search(plain, begin, end)
    while border and PLEASE.fullmatch(plain[begin : border.start()].strip()):
        border = book.clause_end.search(plain, border.end(), end)
    return border.start() if border else end


def forgotten_keys(sentence: Sentence, hidden: str, clause: str, reached: int, book: Book) -> Iterator[Found]:
    """The keys that are to be forgotten, with their values or without. What is said of another person is no key of the writer."""
    seen = set[str]()
    shown = Sentence(sentence.text, sentence.source, hidden, sentence.places, ())
    for pattern in (*book.tells, *book.topics):
        text = hidden if pattern in book.tells else clause
        match = pattern.regex.search(text)
        if match is None or match.start() >= reached or pattern.key in seen or is_of_other(match, pattern, text, book, about_other=False):
            continue
        groups = match.groupdict()
        if pattern in book.topics and book.other.search(clause) and not book.me.search(match.group()):
            continue
        if groups.get("d"):
            value = diet_of(match["d"], book)
        elif pattern.value is not None:
            value = pattern.value
        elif groups.get("v"):
            is_last = match.end("v") == match.end()
            items = items_of(shown, match.start("v"), match.end("v"), book, many=pattern.key in LISTS, is_last=is_last)
            value = ", ".join(items.names + items.excluded)
            if pattern in book.tells and (not value or (pattern.key == "home_area" and book.bad_place.search(match["v"]))):
                continue
        else:
            value = ""
        seen.add(pattern.key)
        yield Found(pattern.key, value, Op.FORGET, sentence.text)


