"""The sixteen kinds of attack, each as combinations of concepts in one clause; and where the concepts of a text stand.

"Ignore the previous booking" has an action and a scope, "ignore the previous instructions" has the object too: a combination
is an attack only if the clause has a concept for each of its needs, close together, in one language (English words count in all).

    (IGNORE, INSTRUCTIONS, PRIOR | ALL | YOUR), at most 2 unknown words in between, in any order

Any word order counts, because sixteen languages differ in it; distance and the object decide. A clause ends with a sentence, a colon or an
empty line: no match goes beyond its end. Positions are words in languages that separate words by spaces, and characters in the others; a
word that the language's list does not have counts as unknown.

Linear: each word is looked up a bounded number of times, and no pattern has a loop."""

# ruff: noqa: RUF001  # sentence ends of sixteen languages look like other characters

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate

from hermes.soul.sanitize.lexicon import (
    ALL_LANGUAGES,
    CHARACTERS_PER_WORD,
    CLAUSE_END,
    KnownWord,
    find_word,
    spaced_lexicon,
    split_contractions,
    unspaced_patterns,
)
from hermes.soul.sanitize.views import to_simplified_chinese


class AttackFamily(StrEnum):
    """What an attack tells the model."""

    OVERRIDE = "override"
    """To drop its instructions."""
    MODE_SWITCH = "mode_switch"
    """To enter a mode in which its instructions do not hold: system override, developer mode, DAN mode."""
    JAILBREAK = "jailbreak"
    """The word jailbreak itself, or "do anything now"."""
    PERSONA = "persona"
    """That it is another character now."""
    NO_LIMITS = "no_limits"
    """That it has no limits, or to answer without any."""
    DISABLE_SAFETY = "disable_safety"
    """To turn its safeguards off."""
    EXTRACT_PROMPT = "extract_prompt"
    """To show its instructions."""
    EXTRACT_SECRET = "extract_secret"  # noqa: S105  # the name of a family, not a password
    """To show a key or a password."""
    AUTHORITY = "authority"
    """That the writer is its developer."""
    ROLE_MARKER = "role_marker"
    """Text that imitates a system message."""
    NEW_INSTRUCTIONS = "new_instructions"
    """That it has new instructions."""
    OBEY = "obey"
    """To do whatever the writer says, never to refuse, to follow hidden text."""
    ADDRESS_MODEL = "address_model"
    """A text for people that addresses the model that reads it."""
    EXFILTRATE = "exfiltrate"
    """To send a user's data away."""
    OUTPUT_HIJACK = "output_hijack"
    """To say exactly this."""
    PERSIST = "persist"
    """To do something in every answer from now on, or without telling the user."""


@dataclass(frozen=True, slots=True)
class AttackRule:
    """Concepts that make an attack together in one clause: one for each need, in any order, with few unknown words in between."""

    family: AttackFamily
    needs: tuple[frozenset[str], ...]
    unknown: int
    """How many unknown words may stand between the first and the last concept."""


@lru_cache(maxsize=1 << 14)
def rules_for(concepts: frozenset[str]) -> tuple[AttackRule, ...]:
    """The rules whose needs are all among these concepts. Cached, because most texts have the same few concepts."""
    return tuple(rule for rule in RULES if all(not need.isdisjoint(concepts) for need in rule.needs))


def make_rule(family: AttackFamily, *needs: str, unknown: int = 2) -> AttackRule:
    return AttackRule(family, tuple(frozenset(need.split("|")) for need in needs), unknown)


RULES = (
    make_rule(AttackFamily.OVERRIDE, "ignore|drop", "instructions", "prior|weak_prior|all|your|system"),
    make_rule(AttackFamily.OVERRIDE, "ignore|drop", "rules", "prior|weak_prior|your|system", unknown=1),
    make_rule(AttackFamily.OVERRIDE, "ignore|drop", "rules", "all", unknown=0),
    make_rule(AttackFamily.OVERRIDE, "follow", "not", "instructions|rules", "prior|your|system", unknown=1),
    make_rule(AttackFamily.OVERRIDE, "ignore", "loose", "prior", "all", unknown=1),
    make_rule(AttackFamily.OVERRIDE, "ignore", "loose", "prior", "reveal|assert|now"),
    make_rule(AttackFamily.OVERRIDE, "ignore", "above", unknown=1),
    make_rule(AttackFamily.OVERRIDE, "ignore", "everything", "told|prior"),
    make_rule(AttackFamily.MODE_SWITCH, "override"),
    make_rule(AttackFamily.MODE_SWITCH, "overriding", "operator"),
    make_rule(AttackFamily.MODE_SWITCH, "bad_mode"),
    make_rule(AttackFamily.MODE_SWITCH, "mode", "enter|you|now|ai", unknown=3),
    make_rule(AttackFamily.JAILBREAK, "jailbreak"),
    make_rule(AttackFamily.PERSONA, "you_now"),
    make_rule(AttackFamily.PERSONA, "pretend", "ai", "unbound", unknown=4),
    make_rule(AttackFamily.NO_LIMITS, "you|answer", "no_limits"),
    make_rule(AttackFamily.NO_LIMITS, "ai", "unbound", unknown=1),
    make_rule(AttackFamily.DISABLE_SAFETY, "disable", "safeguard"),
    make_rule(AttackFamily.DISABLE_SAFETY, "disable", "limits", "your", unknown=1),
    make_rule(AttackFamily.EXTRACT_PROMPT, "reveal|what", "instructions", "your|system"),
    make_rule(AttackFamily.EXTRACT_PROMPT, "reveal", "instructions", "prior"),
    make_rule(AttackFamily.EXTRACT_PROMPT, "reveal|what|you|your|continue", "system_prompt", unknown=3),
    make_rule(AttackFamily.EXTRACT_PROMPT, "reveal", "above", unknown=1),
    make_rule(AttackFamily.EXTRACT_SECRET, "reveal|what", "secret", "your|system", unknown=1),
    make_rule(AttackFamily.AUTHORITY, "authority"),
    make_rule(AttackFamily.NEW_INSTRUCTIONS, "new", "instructions", "your|system", unknown=1),
    make_rule(AttackFamily.NEW_INSTRUCTIONS, "new", "instructions", "follow", "now", unknown=1),
    make_rule(AttackFamily.OBEY, "obey"),
    make_rule(AttackFamily.OBEY, "decode", "run_it", unknown=6),
    make_rule(AttackFamily.ADDRESS_MODEL, "address_ai"),
    make_rule(AttackFamily.ADDRESS_MODEL, "instead"),
    make_rule(AttackFamily.EXFILTRATE, "send", "private", unknown=3),
    make_rule(AttackFamily.EXFILTRATE, "reveal|what|send", "user_data"),
    make_rule(AttackFamily.OUTPUT_HIJACK, "say_only", "quote", unknown=1),
    make_rule(AttackFamily.OUTPUT_HIJACK, "stop_all", "say_only|assert|reveal", unknown=4),
    make_rule(AttackFamily.OUTPUT_HIJACK, "ignore", "assert", unknown=3),
    make_rule(AttackFamily.PERSIST, "conceal"),
    make_rule(AttackFamily.PERSIST, "every_answer", "always", unknown=3),
)


Span = tuple[int, int]
Spans = dict[str, list[Span]]
CLAUSE_END_WEIGHT = 1_000
"""How many unknown words the end of a clause counts for."""


@dataclass(frozen=True, slots=True)
class ClauseReading:
    """A text as one language reads it. Counts are cumulative: one for each position and one for the end."""

    language: str
    found: Spans
    """The places of each concept."""
    unknown: Sequence[int]
    own: Sequence[int] | None = None
    """Words that the language knows, if English was read along with it; else None."""
    english: Sequence[int] | None = None

    def meets(self, rule: AttackRule, *, max_unknown: int, limits: frozenset[int] | None) -> bool:
        """Whether the rule's needs have places close enough together. `limits` are the positions where a match may begin and end."""
        places = sorted(
            (span, number) for number, need in enumerate(rule.needs) for concept in need for span in self.found.get(concept, ())
        )
        last: dict[int, Span] = {}
        for span, number in places:
            last[number] = span
            if len(last) == len(rule.needs):
                start, end = min(span[0] for span in last.values()), max(span[1] for span in last.values())
                if self.unknown[end] - self.unknown[start] <= min(rule.unknown, max_unknown) and self._is_own_language(start, end):
                    return limits is None or {start, end} <= limits
        return False

    def _is_own_language(self, start: int, end: int) -> bool:
        """False for English in which one word is also a word of this language: "was" is German, but "was your password" is not."""
        if self.own is None or self.english is None:
            return True
        return self.own[end] - self.own[start] >= self.english[end] - self.english[start]


def find_rule(folded: str) -> tuple[AttackRule, str] | None:
    """The first rule that a folded text meets, and the language in which it meets it."""
    found = find_rule_by_characters(folded) if _UNSPACED.search(folded) else None
    if found is None and _SPACED.search(folded):
        found = find_rule_by_words(_WORD.findall(split_contractions(_END.sub(f" {CLAUSE_END} ", folded))))
    return found


def find_rule_squeezed(folded: str) -> tuple[AttackRule, str] | None:
    """The same for English without its spaces and punctuation: finds words that were split or run together.

    No unknown word may stand in between, and a match must begin and end where a written word does: "you are nowhere"
    is not "you are now"."""
    written = _LATIN_WORD.findall(folded)
    letters = "".join(written)
    if not any(letters.count(sign) > folded.count(sign) for sign in _SIGNS) and _RUN_TOGETHER.search(folded) is None:
        return None
    book, words, starts, place = spaced_lexicon(), [], [], 0
    while place < len(letters):
        longest = min(book.longest_english, len(letters) - place)
        length = next((size for size in range(longest, 1, -1) if letters[place : place + size] in book.english), 1)
        starts.append(place)
        words.append(letters[place : place + length])
        place += length
    starts.append(place)
    ends = set(accumulate(map(len, written), initial=0))
    return find_rule_by_words(words, max_unknown=0, limits=frozenset(number for number, start in enumerate(starts) if start in ends))


def find_rule_by_words(
    words: list[str], *, max_unknown: int = CLAUSE_END_WEIGHT - 1, limits: frozenset[int] | None = None
) -> tuple[AttackRule, str] | None:
    """The first rule that the words meet, in any language that knows one of them as more than a filler; English words count in all."""
    known = [find_word(word) for word in words]
    found = find_concepts(known)
    shared, english = found.pop(ALL_LANGUAGES, {}), found.pop("en", {})
    for language, own in (("en", english), *found.items()):
        sources = (own, shared) if language == "en" else (own, shared, english)
        rules = rules_for(frozenset().union(*sources))
        if rules:
            reading = read_words(language, sources, known)
            for rule in rules:
                if reading.meets(rule, max_unknown=max_unknown, limits=limits):
                    return rule, language
    return None


def find_concepts(known: list[KnownWord]) -> dict[str, Spans]:
    """The places of each concept, by language; without fillers."""
    text = " ".join([word.form for word in known])
    offsets = list(accumulate([len(word.form) + 1 for word in known], initial=0))
    number_at = {offset: number for number, offset in enumerate(offsets)}
    found: dict[str, Spans] = defaultdict(lambda: defaultdict(list))
    for number, word in enumerate(known):
        for language, concept in word.concepts:
            found[language][concept].append((number, number + 1))
        for match, language, concept in word.phrases:
            if (phrase := match(text, offsets[number])) is not None:
                found[language][concept].append((number, number_at[phrase.end() + 1]))
    return found


def read_words(language: str, sources: Sequence[Spans], known: list[KnownWord]) -> ClauseReading:
    """Several sources as one reading; concepts inside an innocent phrase (a wifi password) are left out."""
    own = [language in word.languages for word in known]
    english = ["en" in word.languages for word in known]
    weights = [
        CLAUSE_END_WEIGHT if word.form == CLAUSE_END else not (is_own or is_english)
        for word, is_own, is_english in zip(known, own, english, strict=True)
    ]
    for source in sources:
        for spans in source.values():
            for start, end in spans:
                weights[start:end] = [0] * (end - start)
    found = drop_innocent_spans(sources, len(known))
    unknown = list(accumulate(weights, initial=0))
    if language == "en":
        return ClauseReading(language, found, unknown)
    return ClauseReading(language, found, unknown, list(accumulate(own, initial=0)), list(accumulate(english, initial=0)))


def drop_innocent_spans(sources: Sequence[Spans], length: int) -> Spans:
    """The places of each concept in all sources, without those inside innocent phrases."""
    is_innocent = bytearray(length)
    for source in sources:
        for start, end in source.get("none", ()):
            is_innocent[start:end] = b"\x01" * (end - start)
    found: Spans = defaultdict(list)
    for source in sources:
        for concept, spans in source.items():
            found[concept] += [(start, end) for start, end in spans if not (is_innocent[start] and is_innocent[end - 1])]
    return found


def find_rule_by_characters(text: str) -> tuple[AttackRule, str] | None:
    """The first rule that a text meets in the languages of its scripts. Japanese has kana; a text without kana is read as Chinese."""
    unspaced = _SPACE.sub("", text)
    has_kana = _KANA.search(text) is not None
    texts = {
        "ko": text if _HANGUL.search(text) else "",
        "th": unspaced if _THAI.search(text) else "",
        "ja": unspaced if has_kana else "",
        "zh": to_simplified_chinese(unspaced) if _HAN.search(text) and not has_kana else "",
    }
    for language, written in texts.items():
        if written and (rule := find_unspaced_rule(language, written)) is not None:
            return rule, language
    return None


def find_unspaced_rule(language: str, text: str) -> AttackRule | None:
    """The first rule that a text without spaces between words meets."""
    patterns = unspaced_patterns(language)
    found = {
        concept: spans for concept, pattern in patterns.items() if (spans := [match.span() for match in pattern.finditer(text) if match[0]])
    }
    rules = rules_for(frozenset(found))
    if not rules:
        return None
    reading = ClauseReading(language, drop_innocent_spans([found], len(text)), unknown_characters(language, text, found))
    return next((rule for rule in rules if reading.meets(rule, max_unknown=CLAUSE_END_WEIGHT - 1, limits=None)), None)


def unknown_characters(language: str, text: str, found: Spans) -> list[int]:
    """Unknown words before each character: CHARACTERS_PER_WORD characters count as a word, and a Latin word as one."""
    weights = [0.0 if character in " ,、，" else 1 / CHARACTERS_PER_WORD[language] for character in text]
    for match in _LATIN_WORD.finditer(text):
        weights[match.start() : match.end()] = [1 / len(match[0])] * len(match[0])
    for start, end in (span for spans in found.values() for span in spans):
        weights[start:end] = [0.0] * (end - start)
    for match in _END.finditer(text):
        weights[match.start()] = CLAUSE_END_WEIGHT
    return [int(weight + 0.5) for weight in accumulate(weights, initial=0.0)]


_END = re.compile(r"(?<![.…])[.!?;:。！？；：…।؟۔]+(?=\s|$|[\"'”’»)\]}<])|[。！？；।؟۔]|[!?;:]+|\n\s*\n")
_WORD = re.compile(rf"(?:[^\W_]|[\u0900-\u0963\u0e31-\u0e4e])+|[\"'“”„«»「」『』{CLAUSE_END}]")
_LATIN_WORD = re.compile(r"[a-z]+")
_SPACE = re.compile(r"\s+")
_SPACED = re.compile(r"[a-z\u0400-\u04ff\u0621-\u064a\u0900-\u097f]")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_HANGUL = re.compile(r"[\uac00-\ud7a3]")
_THAI = re.compile(r"[\u0e00-\u0e7f]")
_KANA = re.compile(r"[\u3040-\u30fa]")
_HAN = re.compile(r"[\u3400-\u9fff]")
# Parts of the words that English attacks use. If the text without its spaces has more of them, its words were split.
_SIGNS = (
    "ignor",
    "disreg",
    "forget",
    "instru",
    "promp",
    "overrid",
    "youarenow",
    "jailb",
    "reveal",
    "restri",
    "system",
    "previou",
    "obey",
)
_RUN_TOGETHER = re.compile(r"[a-z]{14}")
