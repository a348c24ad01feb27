"""The words and patterns of each language, read from `languages/`, one file for each.

A pattern is a regular expression over folded text (see `sentences`) with names in braces: `{v}` is a value, `{d}` a diet, `{no}` a negation
of the statement, and a file may define more of them under `[macros]`. A pattern that begins with `~` does not name its subject, so it
counts only at the beginning of a clause, after words that name no other person (`lead`)."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from hermes.soul.fact_keys import Op
from hermes.soul.statements.needed_texts import PatternFilter
from hermes.soul.statements.sentences import fold

LATIN = ("en", "id", "es", "fr", "de", "it", "pt", "nl", "tr", "hi")
SCRIPTS: Mapping[str, re.Pattern[str]] = {
    "ru": re.compile("[\u0400-\u04ff]"),
    "ar": re.compile("[\u0600-\u06ff]"),
    "hi": re.compile("[\u0900-\u097f]"),
    "th": re.compile("[\u0e00-\u0e7f]"),
    "ko": re.compile("[\uac00-\ud7af]"),
    "ja": re.compile("[\u3040-\u30ff]"),
    "zh": re.compile("[\u3400-\u9fff]"),
}
MIN_SURE_WORDS = 3
"""So many known words decide the language; with fewer, all languages are tried."""
LATIN_WEIGHT = 2520
"""Weight of a word that one language has. Divisible by every number of languages that may share a word."""
UNSPACED = frozenset({"zh", "ja", "ko", "th"})
VALUE_KEYS = ("allergies", "diet", "home_area", "dislikes", "interests", "favorite_venue")
OPS = {"allergies": Op.ADD, "dislikes": Op.ADD, "interests": Op.ADD}
NEVER_MATCHES = "(?!)"
CLOSED_SYLLABLE = "[" + "".join(f"{chr(first + 1)}-{chr(first + 27)}" for first in range(0xAC00, 0xD7A4, 28)) + "]"
"""A Korean syllable that ends with a consonant; the forms of particles depend on it."""
MAX_LEAD_WORDS = 8
"""Words that may come before a statement without a subject."""


@dataclass(frozen=True, slots=True)
class KeyPattern:
    """One way to state the value of a key."""

    key: str
    regex: re.Pattern[str]
    value: str | None = None
    """The value, if the pattern itself implies it."""
    is_bare: bool = False
    """The pattern does not name the subject."""


@dataclass(frozen=True, slots=True, repr=False)
class LanguageBook:
    """The patterns of one language."""

    language: str
    words: frozenset[str]
    """Common words that distinguish the language from others of its script."""
    tells: tuple[KeyPattern, ...]
    tells_filter: PatternFilter
    topics: tuple[KeyPattern, ...]
    """How a user names a key to forget, with its value or without."""
    diets: tuple[tuple[str, re.Pattern[str]], ...]
    asks: re.Pattern[str]
    supposes: re.Pattern[str]
    reports: re.Pattern[str]
    other: re.Pattern[str]
    """Another person."""
    lead: re.Pattern[str]
    """Words that may come before a statement that does not name its subject."""
    me: re.Pattern[str]
    keep: re.Pattern[str]
    """A request not to forget something."""
    remember: re.Pattern[str]
    forget: re.Pattern[str]
    acts_filter: PatternFilter
    """Of `keep`, `forget` and `remember`, in this order."""
    forgot: re.Pattern[str]
    """The writer forgot something. Matched against the text with its accents."""
    memory: re.Pattern[str]
    """The memory of Hermes, from which to forget something."""
    everything: re.Pattern[str]
    not_facts: re.Pattern[str]
    """Things to forget that are not facts about a user: a booking, an instruction."""
    fact: re.Pattern[str]
    """A sign that the thing to forget is a fact: a conjunction, a possessive."""
    trim: re.Pattern[str]
    """Words around the fact: that, about, what I said about."""
    separator: re.Pattern[str]
    """Between two items: a comma or a word."""
    conjunction: re.Pattern[str]
    end: re.Pattern[str]
    """A word that ends a list of items."""
    edge: re.Pattern[str]
    """Words at the beginning or end of an item that are not part of it: articles, particles."""
    bad: re.Pattern[str]
    """Words that are no item, or that show that a phrase is none."""
    bad_place: re.Pattern[str]
    """The beginning of a phrase that is not the name of a place: "a small town"."""
    contrast: re.Pattern[str]
    """Words before or after an item that exclude it."""
    denied: re.Pattern[str]
    """A negation right before a statement."""
    clause_end: re.Pattern[str]
    border: re.Pattern[str]
    is_spaced: bool
    is_object_first: bool

    def tells_in(self, plain: str) -> Iterator[KeyPattern]:
        """Those of `tells` that may match a text or a part of it."""
        return (self.tells[place] for place in self.tells_filter.possible(plain))

    def acts_in(self, plain: str) -> Sequence[re.Match[str] | None]:
        """Where a sentence asks to keep, to forget and to remember something."""
        possible = self.acts_filter.possible(plain)
        if not possible:
            return None, None, None
        patterns = (self.keep, self.forget, self.remember)
        return [pattern.search(plain) if place in possible else None for place, pattern in enumerate(patterns)]


BOOKS: dict[str, LanguageBook] = {}
"""The books that this process has loaded."""


def load_book(language: str) -> LanguageBook:
    """The book of a language. The first call reads its file and compiles its patterns, for a tenth of a second or more."""
    if language not in BOOKS:
        BOOKS[language] = read_book(language)
    return BOOKS[language]


def has_latin_books() -> bool:
    """Whether this process has loaded the books of Latin script. The first sentence needs all of them, and they take up to a second."""
    return BOOKS.keys() >= set(LATIN)


def read_book(language: str) -> LanguageBook:
    data = load_table(language)
    macros = {name: fold_pattern(pattern) for name, pattern in data.get("macros", {}).items()}
    macros["closed"] = CLOSED_SYLLABLE
    is_spaced = language not in UNSPACED
    diets = tuple((value, re.compile(expand_pattern(pattern, macros))) for value, pattern in data["diets"].items())
    every_diet = "|".join(f"(?:{regex.pattern})" for _, regex in diets)
    macros["d"] = f"(?P<d>{every_diet}){expand_pattern(data.get('after_diet', ''), macros)}"
    macros["no"] = f"(?P<no>{expand_pattern(data['no'], macros)})?"
    border = r"[,:;()\u00a1\u00bf]|\s[-\u2013\u2014]+\s" + ("" if language != "th" else r"|\s")
    known = {expand_pattern(word, macros) for word in data["lead"]}
    # A phrase whose single words are known is left out: with two ways to read a lead, the search would take too long.
    lead_words = "|".join(sorted((word for word in known if " " not in word or not known.issuperset(word.split())), key=len, reverse=True))
    between = r"(?:\s+|$|(?<='))" if is_spaced or language == "ko" else r"\s*"
    lead = f"(?:(?:{lead_words}){between}){{0,{MAX_LEAD_WORDS}}}"

    def pattern_of(key: str, text: str, value: str | None = None) -> KeyPattern:
        bare = text.startswith("~")
        body = expand_pattern(text.removeprefix("~"), macros)
        body = re.sub(r"\{v\}$", "(?P<v>.+)", body).replace("{v}", "(?P<v>[^,;:()]{1,60}?)")
        return KeyPattern(key, re.compile(rf"(?:^|{border})\s*(?P<lead>{lead}){body}" if bare else body), value, bare)

    def any_of(name: str, join: str = "|") -> re.Pattern[str]:
        listed = data.get(name, [])
        return re.compile(join.join(expand_pattern(text, macros) for text in listed) if listed else NEVER_MATCHES)

    edges = "|".join(expand_pattern(text, macros) for text in data["edge"])
    tails = "|".join(expand_pattern(text, macros) for text in data.get("tail", data["edge"]))
    glue = r"(?:\s+|$|(?<='))" if is_spaced else r"\s*"
    tells = [pattern_of(key, text) for key in VALUE_KEYS for text in data.get(key, [])]
    tells += [pattern_of("diet", text, value) for value, listed in data.get("sayings", {}).items() for text in listed]
    keep, forget, remember = any_of("keep"), any_of("forget"), any_of("remember")
    return LanguageBook(
        language=language,
        words=frozenset(fold(data.get("words", "")).split()),
        tells=tuple(tells),
        tells_filter=PatternFilter([tell.regex for tell in tells]),
        topics=tuple(pattern_of(key, text) for key, listed in data["topics"].items() for text in listed),
        diets=diets,
        asks=any_of("asks"),
        supposes=any_of("supposes"),
        reports=any_of("reports"),
        other=any_of("other"),
        lead=re.compile(lead),
        me=any_of("me"),
        keep=keep,
        remember=remember,
        forget=forget,
        acts_filter=PatternFilter([keep, forget, remember]),
        forgot=re.compile("|".join(data.get("forgot", [])) or NEVER_MATCHES),
        memory=any_of("memory"),
        everything=any_of("everything"),
        not_facts=any_of("not_facts"),
        fact=any_of("fact"),
        trim=any_of("trim"),
        separator=re.compile("[,;&+/\u00b7]|" + "|".join(expand_pattern(text, macros) for text in data["and"])),
        conjunction=any_of("and"),
        end=any_of("end"),
        edge=re.compile(rf"^(?:(?:{edges}){glue})+" + "|" + (rf"(?:\s+(?:{tails}))+$" if is_spaced else rf"(?<=.)(?:{tails})$")),
        bad=any_of("bad"),
        bad_place=any_of("bad_place"),
        contrast=any_of("contrast"),
        denied=re.compile(rf"(?:^|[\s,])(?:{expand_pattern(data['no'], macros)})$"),
        clause_end=re.compile(r"[,;:()]|\s[-\u2013\u2014]+\s|" + expand_pattern(data.get("clause_end", NEVER_MATCHES), macros)),
        border=re.compile(border),
        is_spaced=is_spaced,
        is_object_first=bool(data.get("is_object_first", False)),
    )


@cache
def common_pattern(name: str) -> re.Pattern[str]:
    """A pattern for all languages together; see `common.toml`."""
    data = tomllib.loads((resources.files(__package__) / "common.toml").read_text(encoding="utf-8"))
    return re.compile("|".join(fold_pattern(pattern) for pattern in data[name]))


def expand_pattern(pattern: str, macros: Mapping[str, str]) -> str:
    """A pattern with the names in braces replaced, and folded in the same way as the text."""
    return re.sub(r"\{(\w+)\}", lambda found: macros.get(found[1], found[0]), fold_pattern(pattern))


def fold_pattern(pattern: str) -> str:
    parts = re.findall(r"\\.|\(\?P<|[^\\(]+|\(", re.sub(r"\n\s*", "", pattern))
    return "".join(part if part.startswith(("\\", "(?P<")) else fold(part) for part in parts)


def load_table(language: str) -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / "languages" / f"{language}.toml").read_text(encoding="utf-8"))


def likely_languages(plain: str) -> Sequence[str]:
    """The languages that a folded sentence may be in, the likeliest first. The script decides, and for Latin script the common words."""
    by_script = [language for language, script in SCRIPTS.items() if script.search(plain)]
    if "ja" in by_script:
        by_script = [language for language in by_script if language != "zh"]
    if by_script and not re.search(r"[a-z]{2}.*\s[a-z]{2}", plain):
        return by_script
    tokens = re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", plain)
    scores: Counter[str] = Counter()
    for token in tokens:
        sharing = languages_by_word().get(token, ())
        for language in sharing:
            scores[language] += LATIN_WEIGHT // len(sharing)
    likely = [language for language, _ in scores.most_common()]
    if sum(scores.values()) < MIN_SURE_WORDS * LATIN_WEIGHT:
        likely += [language for language in LATIN if language not in scores]
    return [*by_script, *(language for language in likely if language not in by_script)]


@cache
def languages_by_word() -> Mapping[str, Sequence[str]]:
    """The common words of the languages in Latin script, each with the languages that have it: the fewer, the more it counts."""
    known = {language: load_book(language).words for language in LATIN}
    return {word: [language for language in LATIN if word in known[language]] for word in frozenset().union(*known.values())}
