"""A message as the rules see it: sentence by sentence, folded, with each place of the folded text mapped to the text as written; and the
statements that are read from a sentence.

Text in quotation marks is another person's, or only mentioned, so the rules do not see it; a quoted name is still a name. The keys that
users state in few ways (language, goal, budget, party size, hours, days, time zone) are read here, with the patterns of `habits.toml`; the
caller decides whether the writer means such a sentence (no question, supposition or report)."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

from hermes.soul import terms as soul_terms
from hermes.soul.fact_keys import BadValue, Op, normalize_value
from hermes.soul.statements.needed_texts import PatternFilter


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that a sentence says about its writer. A free fact has no key."""

    key: str | None
    value: str
    op: Op
    quote: str


def make_statements(key: str, value: str, op: Op, quote: str) -> list[Statement]:
    """A statement with the value in its one spelling; none if the key cannot hold the value."""
    try:
        return [Statement(key, normalize_value(key, value), op, quote)] if value else []
    except BadValue:
        return []


def blank_out(plain: str, start: int, end: int) -> str:
    """Replace a part of a sentence by commas, so that all other places stay."""
    return plain[:start] + "," * (end - start) + plain[end:]


QUOTED = "\u00a4"
"""Stands in the place of a quotation."""
QUOTATION = re.compile(
    '"([^"\n]*)(?:"|$)|\u201c([^\u201d\u201c\n]*)[\u201d\u201c]|\u201e([^\u201c\u201d\u201f\n]*)[\u201c\u201d\u201f]'
    "|\u00ab([^\u00bb\n]*)\u00bb|\u300c([^\u300d\n]*)\u300d|\u300e([^\u300f\n]*)\u300f|(?<![^\\W_])'([^'\n]*(?:'(?=\\w)[^'\n]*)*)'(?!\\w)",
    re.MULTILINE,
)
MAX_QUOTED_NAME_WORDS = 2
"""A quotation with at most this many words may be a name."""
MAX_DENSE_NAME_CHARS = 6
"""The same in characters, for scripts without spaces between words."""
DENSE = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
SENTENCE = re.compile(
    "[^.!?;\n\u3002\uff01\uff1f\u061f\u2026\u0964]+(?:[.](?=\\w)[^.!?;\n\u3002\uff01\uff1f\u061f\u2026\u0964]+)*[.!?;\u3002\uff01\uff1f\u061f\u2026\u0964]*"
)
SAME_LETTERS = str.maketrans(
    {
        **dict(zip("\u0131\u0623\u0625\u0622\u0671\u0649\u0629\u0901", "i\u0627\u0627\u0627\u0627\u064a\u0647\u0902", strict=True)),
        **dict(
            zip(
                "過對歡討厭愛這嗎記請關於數據刪純辣灣憶實別麼麽說話個開從來後經還樂無東",
                "过对欢讨厌爱这吗记请关于数据删纯辣湾忆实别么么说话个开从来后经还乐无东",
                strict=True,
            )
        ),
        **dict.fromkeys([*range(0x064B, 0x0653), 0x0640, 0x093C, 0x200B, 0x200C, 0x200D, 0xFE0F], None),
        "\u061f": "?",
        "\u060c": ",",
        "\u3001": ",",
        "\u3002": ".",
        "\u0964": ".",
        "\u2018": "'",
        "\u2019": "'",
        "`": "'",
    }
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence as it was written, and as the rules see it."""

    text: str
    source: str
    """The text without quotations."""
    plain: str
    """The source, folded."""
    places: tuple[int, ...]
    """For each place of `plain`, and for its end, the place in `source`."""
    quotations: tuple[str, ...]

    def words(self, start: int, end: int) -> str:
        """The source between two places of `plain`."""
        return self.source[self.places[start] : self.places[end]]


def split_sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a message in order."""
    text = unicodedata.normalize("NFC", text).replace("\u2019", "'").replace("\u02bc", "'")
    quotations = list[str]()

    def hide_quotation(found: re.Match[str]) -> str:
        inner = next((group for group in found.groups() if group is not None), "")
        is_name = len(inner.split()) <= MAX_QUOTED_NAME_WORDS and not (DENSE.search(inner) and len(inner) > MAX_DENSE_NAME_CHARS)
        if is_name and not found.group().startswith('"' if inner == "" else "\0"):
            return f" {inner} "
        quotations.append(inner)
        return f" {QUOTED} "

    hidden = QUOTATION.sub(hide_quotation, text)
    left = iter(quotations)
    for found in SENTENCE.finditer(hidden):
        source = " ".join(found.group().split())
        if any(character.isalnum() or character == QUOTED for character in source):
            own_quotations = tuple(next(left) for _ in range(source.count(QUOTED)))
            yield align_sentence(source, own_quotations)


def align_sentence(source: str, quotations: tuple[str, ...] = ()) -> Sentence:
    pieces = [fold_character(character) for character in source]
    places = [place for place, piece in enumerate(pieces) for _ in piece]
    shown = iter(quotations)
    text = re.sub(QUOTED, lambda _: f'"{next(shown)}"', source) if quotations else source
    return Sentence(text, source, "".join(pieces), (*places, len(source)), quotations)


def fold(text: str) -> str:
    """The text in one spelling: as `soul_terms.fold`, and with one form for letters that have several spellings."""
    return "".join(map(fold_character, unicodedata.normalize("NFC", text)))


@lru_cache(maxsize=1 << 13)
def fold_character(character: str) -> str:
    return soul_terms.fold(character).translate(SAME_LETTERS) if not character.isascii() or character == "`" else character.lower()


# --- habits

NEGATION_CHARS = 12
"""Characters before a statement that are searched for a negation."""
KEYS_AS_WRITTEN = frozenset({"timezone"})
"""Keys whose values keep the user's spelling."""


@dataclass(frozen=True, slots=True)
class HabitPattern:
    """One way to state a value. If `value` is None, the first group of the pattern is the value."""

    key: str
    value: str | None
    regex: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class HabitPatterns:
    patterns: tuple[HabitPattern, ...]
    filter: PatternFilter
    negated: re.Pattern[str]


def find_habits(sentence: Sentence) -> Iterator[tuple[int, str, str]]:
    """Where a key is stated, the key, and its value; for each key the first statement."""
    habits, seen = load_habits(), set[str]()
    for place in habits.filter.possible(sentence.plain):
        habit = habits.patterns[place]
        found = None if habit.key in seen else habit.regex.search(sentence.plain)
        if found is None or (
            habit.value is not None and habits.negated.search(sentence.plain[max(0, found.start() - NEGATION_CHARS) : found.end()])
        ):
            continue
        seen.add(habit.key)
        if habit.value is not None:
            yield found.start(), habit.key, habit.value
        else:
            group = next(number for number, group in enumerate(found.groups(), 1) if group)
            span = found.start(group), found.end(group)
            yield found.start(), habit.key, sentence.words(*span) if habit.key in KEYS_AS_WRITTEN else found[group]


@cache
def load_habits() -> HabitPatterns:
    data = tomllib.loads((resources.files(__package__) / "habits.toml").read_text(encoding="utf-8"))
    patterns = [
        HabitPattern(rule["key"], value, any_of(rule["after"], f".{{0,20}}?(?:{'|'.join(patterns)})"))
        for rule in data["words"]
        for value, patterns in rule["values"].items()
    ]
    patterns += [HabitPattern(rule["key"], None, any_of(rule["patterns"])) for rule in data["numbers"]]
    return HabitPatterns(tuple(patterns), PatternFilter([habit.regex for habit in patterns]), any_of(data["negated"]))


def any_of(patterns: Sequence[str], then: str = "") -> re.Pattern[str]:
    return re.compile(f"(?:{'|'.join(patterns)}){then}")
