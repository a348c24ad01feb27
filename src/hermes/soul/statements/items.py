"""The items of what was said: "nuts, and the shrimps please" are `nuts` and `shrimps`. And whether two words name one item."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hermes.soul.statements.book import Book
from hermes.soul.statements.spelling import DENSE, QUOTED, Sentence, fold

MOST_WORDS = 4
MOST_LISTED_WORDS = 2
"""Words of an item that only a comma sets apart: behind it there may be another thought."""
MOST_DENSE = {"zh": 10, "ja": 14, "th": 24}
"""Characters of an item where words are not set apart."""
HIRAGANA = re.compile("[\u3040-\u309f]")
KOREAN_VERB = re.compile("[요다죠까네야어아지용세]$")
STRIPPED = " .,!?:;\"'-\u2013\u2014()\u3002\u3001\uff5e~*"


@dataclass(frozen=True, slots=True)
class Items:
    """What was listed, what was said not to be meant, and where in the sentence the list ends."""

    names: tuple[str, ...]
    excluded: tuple[str, ...]
    end: int


def items_of(sentence: Sentence, start: int, end: int, book: Book, *, many: bool, is_last: bool = True) -> Items:
    """Read the items between two places. Ends before the first that is none; without any where the first is none.

    Where the verb comes behind (not `is_last`), the last items are sure, so what is none ends the list towards its beginning."""
    names, excluded, reached = list[str](), list[str](), start
    parts = list(parts_of(sentence.plain, start, end, book))
    for number, (first, last, is_comma) in enumerate(parts):
        closed = any(not comma for _, _, comma in parts[number + 1 :]) or not is_comma
        text = sentence.plain[first:last]
        denied = book.contrast.search(text)
        if denied and names and not text[: denied.start()].strip(STRIPPED):
            first += denied.end()
        elif denied and not text[denied.end() :].strip(STRIPPED):
            last = first + denied.start()
        elif denied:
            break
        place = item_in(sentence, first, last, book, most=MOST_WORDS if closed or not names else MOST_LISTED_WORDS)
        if place is None and not is_last and number < len(parts) - 1:
            names, excluded = [], []
            continue
        if place is None:
            return Items((), (), reached) if not is_last else Items(tuple(names), tuple(excluded), reached)
        (excluded if denied else names).append(clean(sentence.words(*place)))
        reached = place[1]
        if not many or place[1] < last - len(text) + len(text.rstrip(STRIPPED)) and book.end.search(sentence.plain[place[1] : last]):
            break
    return Items(tuple(names), tuple(excluded), reached)


def listed_before(sentence: Sentence, place: int, book: Book) -> tuple[str, ...]:
    """The items before a comma at a place, where the verb comes behind: "갑각류, 견과류 알레르기". What else may stand there ends them."""
    found, plain = list[str](), sentence.plain
    while plain[place : place + 1] == ",":
        start = max(plain.rfind(mark, 0, place) for mark in ",;:()") + 1
        begun = start + len(plain[start:place]) - len(plain[start:place].lstrip())
        lead = book.lead.match(plain, begun, place)
        begun = lead.end() if lead else begun
        text = plain[begun:place].strip()
        enumerates = sentence.words(place, place + 1) == "\u3001" and not HIRAGANA.search(text)
        fits = " " not in text and not KOREAN_VERB.search(text) if book.language == "ko" else enumerates
        item = item_in(sentence, begun, place, book, most=MOST_LISTED_WORDS) if fits and text else None
        if item is None or book.other.search(text):
            break
        found.insert(0, clean(sentence.words(*item)))
        place = start - 1
    return tuple(found)


def parts_of(plain: str, start: int, end: int, book: Book) -> Iterator[tuple[int, int, bool]]:
    """The parts between separators, each with whether a bare comma stands before it."""
    comma = True
    for found in book.separator.finditer(plain, start, end):
        if plain[start : found.start()].strip(STRIPPED):
            yield start, found.start(), comma
            comma = True
        start, comma = found.end(), comma and found.group().strip() in {",", ";"}
    if plain[start:end].strip(STRIPPED):
        yield start, end, comma


def item_in(sentence: Sentence, first: int, last: int, book: Book, *, most: int) -> tuple[int, int] | None:
    """Where the item of a part stands, without what is no part of it; None where it is none."""
    text = sentence.plain[first:last]
    ending = book.end.search(text)
    if ending:
        text = text[: ending.start()]
    begin = len(text) - len(text.lstrip(STRIPPED))
    text = text.strip(STRIPPED)
    while found := book.edge.search(text):
        if found.start() == 0:
            begin += found.end()
            text = text[found.end() :]
        else:
            text = text[: found.start()]
        begin += len(text) - len(text.lstrip(STRIPPED))
        text = text.strip(STRIPPED)
    fits = len(text) <= MOST_DENSE[book.language] if book.language in MOST_DENSE else len(text.split()) <= most
    if not text or not fits or QUOTED in text or book.bad.search(text) or not any(map(str.isalpha, text)):
        return None
    return first + begin, first + begin + len(text)


def clean(text: str) -> str:
    """An item as it is kept: without symbols around it."""
    return re.sub(r"^[^\w]+|[^\w)\u0300-\u036f\u0900-\u0dff\u0e00-\u0e7f]+$", "", " ".join(text.split()))


# --- whether two words name one item

ARTICLES = frozenset(
    "the a an any all my some el la los las un una le les l du de des der die das den dem ein eine einen meine mein il lo i gli o os as um uma "
    "het een mijn mi mis mon ma mes il mio mia meu minha allergy allergie allergies alergi alergia".split()
)
ENDINGS = frozenset(
    # en, de, nl, the Romance languages, tr
    "s es e en n er a o i u as os is ns ies y ie ren nen 's eren ya ye yi yu a e da de ta te dan den tan ten la le ler lar leri lari lere lara in un nin nun "
    "lerine larina sina sine si su gi ga ge gu gini gina ki k ni na ne yla yle m im um lerden lardan lerde ine ini ina "
    "ao oes aes ais eis ces z ques x aux "
    # ru
    "а у ы и ой ою е о ам ами ах ов ев ю я ей ом ем ям ями ях ь ью ии ию ия ый ая ую ое ые ого ому ых ым ки ку ка ке кой ек ок "
    # hi
    "ा े ो ी ों ें ियों ियां ाओं ".split()
)
DIFFERENT = frozenset({("pesca", "pesce")})
KOREAN = re.compile("(?<=.)(?:을|를|이|가|은|는|에|도|랑|하고|의|류)$")
ARABIC = re.compile("^(?:و|ب|ل)?(?:ال|لل)")
SHORTEST = 3


def same_item(one: str, other: str) -> bool:
    """Whether two wordings name one item: a plural, a case or an article makes no difference. "peanut" is "the peanuts", not "pea"."""
    first, second = tokens(one), tokens(other)
    return bool(first) and len(first) == len(second) and all(map(is_same_word, first, second))


def tokens(text: str) -> Sequence[str]:
    plain = re.sub(r"[\"(){}\[\].,!?:;]", " ", fold(text)).split()
    kept = [word for word in plain if word not in ARTICLES] or plain
    words = [re.sub(r"^(?:l|d|dell|all|un)'(?=\w)", "", word) for word in kept]
    words = [ARABIC.sub("", word) if len(word) > 4 else word for word in words]
    return ["".join(words)] if words and all(DENSE.search(word) and not "\uac00" <= word[0] <= "\ud7af" for word in words) else words


def is_same_word(one: str, other: str) -> bool:
    if one == other:
        return True
    if "\uac00" <= one[:1] <= "\ud7af":
        return KOREAN.sub("", one) == KOREAN.sub("", other)
    if DENSE.search(one) or (min(one, other), max(one, other)) in DIFFERENT:
        return False
    one, other = (word.split("'")[0] if "'" in word[2:] else word for word in (one, other))
    common = next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other)))
    # The ending begins where the words differ, or a letter or two before: "кинза", "кинзу"; "noot", "noten".
    for kept in range(common, max(SHORTEST - 1, common - 3), -1):
        if {one[kept:], other[kept:]} <= ENDINGS | {""}:
            return True
    bare = undoubled(one), undoubled(other)
    return bare != (one, other) and len(min(bare, key=len)) >= SHORTEST and is_plural(*sorted(bare, key=len))


def is_plural(short: str, long: str) -> bool:
    return long.startswith(short) and long[len(short) :] in ENDINGS | {""}


def undoubled(word: str) -> str:
    """Dutch writes noot and noten, bes and bessen."""
    return re.sub(r"([a-z])\1(?=[^aeiou]?$|en$)", r"\1", word)
