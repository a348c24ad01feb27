"""A script: which answer it gives to which request. Read from TOML; a wrong script is refused with one clear line.

    [[transcript]]   the next answer, whatever the request, until there are no more
    [[rule]]         the first rule whose conditions all hold answers
    otherwise        the answer if no rule holds

    dates_and_times  days and hours in a user's words
    request_view     the parts of a request that a script sees
    statements       users' statements about themselves: the tool calls for them, and the confirmations
    rule             when a rule applies, its answer, and texts with places to fill in

Pure: knows neither time nor tokens, and does not remember how far a transcript has come."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

from hermes.backends.scripted.request_view import REQUEST_PLACES, RequestView
from hermes.backends.scripted.rule import (
    PatternsByLanguage,
    Retelling,
    ScriptAnswer,
    ScriptFault,
    ScriptRule,
    ScriptToolCall,
    TextsByLanguage,
    UserWords,
    fill_text,
    placeholder_names,
    text_in_language,
    visit_texts,
)
from hermes.backends.scripted.statements import Confirmation
from hermes.ports.backends import ModelRequest

DEFAULT_OTHERWISE = "I am sorry, I do not have an answer to that. Could you say it in other words?"

SCRIPT_KEYS = ("rule", "transcript", "otherwise", "languages", "spelled", "pieces", "instead")
ANSWER_KEYS = ("say", "call", "reasoning", "fail", "retry_after_s", "cut_after", "delay_s")
CONDITION_KEYS = ("when", "system", "before", "result", "tools", "after_tool", "must", "picture", "turn", "weak", "statements")
RULE_KEYS = ("part", "name", *CONDITION_KEYS, "find", "ask", "then", "each", "line", "confirm", *ANSWER_KEYS)

PARTS = ("hermes", "results", "rooms", "answers", "errands", "memory", "requests", "unawaited", "talk", "pictures")
"""The parts of a script that is made of several files, in their order: within a part, the rules of packs come first.

    hermes      requests of Hermes itself              memory      what Hermes knows about the user
    results     results of tools                       requests    all other requests
    rooms       rooms that several people share        unawaited   the result of a tool that no rule called
    answers     yes and no                             talk        small talk
    errands     requests that go before the memory     pictures    pictures"""
DEFAULT_PART = "requests"

PIECE_NAME = re.compile(r"\{([a-z_]+)\}")
"""A piece in a pattern. A repetition such as `{1,3}` has digits, so it is no piece."""
NOT_TEXTS = "must be a table of texts"
NOT_TEXT_OR_TABLE = "must be a text, or a table with one for each language"


class BadScript(ValueError):
    """The script is wrong. The message is one line: where, what, and the nearest correct name."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """Rules and a transcript, read and checked."""

    rules: tuple[ScriptRule, ...] = ()
    transcript: tuple[ScriptAnswer, ...] = ()
    otherwise: TextsByLanguage = field(default_factory=lambda: {"": DEFAULT_OTHERWISE})
    languages: PatternsByLanguage = field(default_factory=dict)
    """The words by which a language is recognised, where no rule tells the language."""

    @classmethod
    def default(cls, packs: Sequence[tuple[str, str]] = ()) -> Script:
        """The script that ships with Hermes, with those of packs, each with its name and text. In all sixteen languages it greets, and
        notes, corrects and forgets what users say about themselves. Raises BadScript."""
        own = (resources.files(__package__) / "default.toml").read_text(encoding="utf-8")
        return cls.parse(own, where="default.toml", packs=packs)

    @classmethod
    def load(cls, path: str | Path) -> Script:
        """Read a script from a file. Raises BadScript, also where the file cannot be read."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise BadScript(f"{path}: cannot be read ({error.strerror})") from error
        except UnicodeDecodeError as error:
            raise BadScript(f"{path}: is not UTF-8 text") from error
        return cls.parse(text, where=str(path))

    @classmethod
    def parse(cls, text: str, *, where: str = "script", packs: Sequence[tuple[str, str]] = ()) -> Script:
        """Read a script from its text, and with it those of packs, each with its name and text; `where` names it in errors. Raises
        BadScript.

        A pack's script may use the pieces of the first one. Its rules go before those of the first one, part by part (PARTS). It may have
        its own text for `otherwise`, and under `instead` its own texts for rules of the first script that have a name."""
        own = open_table(text, where)
        others = [open_table(other, name, own.pieces) for name, other in packs]
        instead = {name: texts for other in others for name, texts in read_instead(other).items()}
        rules = [rule for table in (*others, own) for rule in read_rules(table, instead if table is own else {})]
        otherwise = [texts for table in (*others, own) if (texts := table.texts_by_language("otherwise", REQUEST_PLACES))]
        return cls(
            rules=tuple(rule for part in PARTS for in_part, rule in rules if in_part == part),
            transcript=tuple(read_transcript(answer) for answer in own.tables("transcript", ANSWER_KEYS)),
            otherwise=otherwise[0] if otherwise else {"": DEFAULT_OTHERWISE},
            languages=own.patterns("languages"),
        )

    def answer(self, ask: ModelRequest, *, given: int = 0) -> ScriptAnswer:
        """The answer to a request, after `given` earlier answers.

        Raises KeyError, TypeError, IndexError or AttributeError for malformed messages."""
        view = RequestView.of(ask, self._questions)
        *alone, joined = (UserWords(words, self._language_of(words), view.places(words)) for words in view.readings())
        if given < len(self.transcript):
            return self.transcript[given].with_places(joined.places)
        # A message that may answer a question goes first to the rules that are sure of it.
        sure = [rule for rule in self.rules if rule.is_sure] if alone else []
        passes = [*((sure, each) for each in (*alone, joined)), (self.rules, joined)]
        answers = (rule.answer_to(view, each) for rules, each in passes for rule in rules)
        otherwise = ScriptAnswer(say=fill_text(text_in_language(self.otherwise, joined.language), joined.places), is_otherwise=True)
        return next((answer for answer in answers if answer is not None), otherwise)

    @cached_property
    def _questions(self) -> frozenset[str]:
        return frozenset(text.strip() for rule in self.rules for texts in rule.ask.values() for text in texts.values())

    def _language_of(self, words: str) -> str:
        return next((name for name, pattern in self.languages.items() if pattern.search(words)), next(iter(self.otherwise)))


# --- reading


def open_table(text: str, where: str, pieces: Mapping[str, str] | None = None) -> ScriptTable:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadScript(f"{where}: is not TOML: {error}") from error
    table = ScriptTable(data, f"{where}: ", SCRIPT_KEYS, pieces)
    table.add_pieces("pieces")
    return table


def read_rules(table: ScriptTable, instead: Mapping[str, TextsByLanguage]) -> list[tuple[str, ScriptRule]]:
    """The rules of one file, each with its part; those with a name in `instead` say that instead."""
    spelled = {word.casefold(): stands_for for word, stands_for in table.named_texts("spelled").items()}
    rules = []
    for each in table.tables("rule", RULE_KEYS):
        rule, part = read_rule(each, spelled), each.text("part") or DEFAULT_PART
        if part not in PARTS:
            each.refuse("part", f'there is no part "{part}"; did you mean "{nearest(part, PARTS)}"?')
        texts = instead.get(each.text("name") or "")
        rules.append((part, rule if texts is None else replace(rule, say=texts)))
    return rules


def read_instead(table: ScriptTable) -> dict[str, TextsByLanguage]:
    within = table.table("instead", table.keys("instead"))
    return {name: within.texts_by_language(name, REQUEST_PLACES) for name in table.keys("instead")}


class ScriptTable:
    """One table of a script. Refuses unknown keys and wrong values."""

    def __init__(self, data: Mapping[str, Any], where: str, known: Collection[str], pieces: Mapping[str, str] | None = None) -> None:
        """`pieces` are the patterns that replace `{name}` in a pattern."""
        self._data, self._where = data, where
        self.pieces = dict(pieces or {})
        for key in data:
            if key not in known:
                raise BadScript(f'{where}{key}: unknown key; did you mean "{nearest(key, known)}"?')

    def add_pieces(self, key: str) -> None:
        """Use these pieces in the patterns of this table and of the tables in it. A piece may use those before it."""
        for name in self.keys(key):
            if PIECE_NAME.fullmatch(f"{{{name}}}") is None:
                self.refuse(f"{key}.{name}", "a piece is named with small letters")
            self.pieces[name] = f"(?:{self._compile(f'{key}.{name}', self._data[key][name]).pattern})"

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def refuse(self, key: str, what: str) -> NoReturn:
        raise BadScript(f"{self._where}{key}: {what}")

    def text(self, key: str) -> str | None:
        value = self._data.get(key)
        return value if value is None or isinstance(value, str) else self.refuse(key, "must be a text")

    def template(self, key: str, places: Collection[str]) -> str:
        """A text whose places are all known; empty if the key is missing."""
        self._check_places(key, text := self.text(key) or "", places)
        return text

    def templates(self, key: str, places: Collection[str]) -> dict[str, Any]:
        """A table with texts at any depth."""
        value = self._data.get(key, {})
        if not isinstance(value, dict):
            self.refuse(key, "must be a table")
        visit_texts(value, lambda text: self._check_places(key, text, places))
        try:
            json.dumps(value, allow_nan=False, default=str)
        except ValueError:
            self.refuse(key, "has a number that JSON does not have")
        return value

    def texts_by_language(self, key: str, places: Collection[str], languages: Collection[str] = ()) -> TextsByLanguage:
        """A text, or one for each language; then it must have these `languages`."""
        value = self._data.get(key)
        if value is None:
            return {}
        if isinstance(value, str):
            return {"": self.template(key, places)}
        texts = self.named_texts(key, NOT_TEXT_OR_TABLE)
        self._check_languages(key, texts, languages)
        for name, text in texts.items():
            self._check_places(f"{key}.{name}", text, places)
        return texts

    def patterns(self, key: str, *, or_one: bool = False, languages: Collection[str] = ()) -> PatternsByLanguage:
        """Regular expressions by name; with `or_one` also a single one, under the empty name. A table must have these `languages`."""
        value = self._data.get(key, {})
        if or_one and not isinstance(value, dict):
            return {"": self._compile(key, value)}
        if not isinstance(value, dict):
            self.refuse(key, NOT_TEXTS)
        self._check_languages(key, value, languages if key in self else ())
        return {name: self._compile(f"{key}.{name}", source) for name, source in value.items()}

    def pattern(self, key: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str] | None:
        return self._compile(key, self._data[key], flags) if key in self else None

    def named_texts(self, key: str, what: str = NOT_TEXTS) -> dict[str, str]:
        value = self._data.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            self.refuse(key, what)
        return value

    def number(self, key: str) -> float | None:
        value = self._data.get(key)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value) or value < 0:
            self.refuse(key, "must be a number of seconds, 0 or more")
        return float(value)

    def count(self, key: str) -> int | None:
        value = self._data.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
            return value
        return self.refuse(key, "must be a whole number, 1 or more")

    def boolean(self, key: str) -> bool:
        value = self._data.get(key, False)
        return value if isinstance(value, bool) else self.refuse(key, "must be true or false")

    def texts(self, key: str) -> list[str]:
        value = self._data.get(key, [])
        is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return list(value) if is_list else self.refuse(key, 'must be a list of texts, as in ["venue_search"]')

    def names(self, key: str) -> list[str]:
        """A text or a list of texts, as a list."""
        return [self._data[key]] if isinstance(self._data.get(key), str) else self.texts(key)

    def tables(self, key: str, known: Collection[str], *, or_one: bool = False) -> list[ScriptTable]:
        value = self._data.get(key, [])
        items: Sequence[Any] = [value] if or_one and isinstance(value, dict) else value
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            self.refuse(key, "must be a table, or a list of them" if or_one else f"must be tables, each under a line [[{key}]]")
        return [ScriptTable(item, f"{self._where}{key}[{number}].", known, self.pieces) for number, item in enumerate(items, 1)]

    def table(self, key: str, known: Collection[str]) -> ScriptTable:
        value = self._data.get(key, {})
        return (
            ScriptTable(value, f"{self._where}{key}.", known, self.pieces)
            if isinstance(value, dict)
            else self.refuse(key, "must be a table")
        )

    def keys(self, key: str) -> list[str]:
        """The names in a table, in their order."""
        value = self._data.get(key, {})
        return list(value) if isinstance(value, dict) else self.refuse(key, "must be a table")

    def _compile(self, key: str, value: Any, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
        """Compile a pattern, or a list of patterns of which one must be found."""
        sources = value if isinstance(value, list) else [value]
        if not sources or not all(isinstance(each, str) for each in sources):
            self.refuse(key, "must be a regular expression, or a list of them")
        source = "|".join(sources)
        try:
            return re.compile(self._insert_pieces(key, source), re.IGNORECASE | flags)
        except re.error as error:
            self.refuse(key, f"is no regular expression: {error}")

    def _insert_pieces(self, key: str, source: str) -> str:
        for found in PIECE_NAME.finditer(source):
            if found[1] not in self.pieces:
                near = f"; did you mean {{{nearest(found[1], self.pieces)}}}?" if self.pieces else ""
                self.refuse(key, f"there is no piece {{{found[1]}}}{near}")
        return PIECE_NAME.sub(lambda found: self.pieces[found[1]], source)

    def _check_languages(self, key: str, given: Collection[str], languages: Collection[str]) -> None:
        """Check that a key has the same languages as `when`, if `when` has any."""
        for name in given:
            if languages and name not in languages:
                self.refuse(f"{key}.{name}", f'"when" has no such language; did you mean "{nearest(name, languages)}"?')
        for name in languages:
            if name not in given:
                self.refuse(key, f'has nothing in "{name}", which "when" has')

    def _check_places(self, key: str, text: str, places: Collection[str]) -> None:
        for name in placeholder_names(text):
            if name not in places:
                self.refuse(
                    key, f"there is no place {{{name}}} here; did you mean {{{nearest(name, places)}}}? {{{{{name}}}}} is the text itself"
                )


# --- rules


def read_rule(table: ScriptTable, spelled: Mapping[str, str]) -> ScriptRule:
    when = table.patterns("when", or_one=True)
    languages = [name for name in when if name]
    find = {name: table.table("find", table.keys("find")).patterns(name, or_one=True, languages=languages) for name in table.keys("find")}
    system, before, result = table.pattern("system"), table.pattern("before"), table.pattern("result", re.MULTILINE)
    places = [
        *REQUEST_PLACES,
        *find,
        *groups_of(table, when),
        *(name for each in (system, before, result) if each for name in each.groupindex),
    ]
    each = table.pattern("each", re.MULTILINE)
    places_to_say = [*places, "lines"] if each is not None else places
    say = table.texts_by_language("say", places_to_say, languages)
    rule = ScriptRule(
        answer=read_answer(table, say, places),
        say=say,
        then=table.texts_by_language("then", places_to_say, languages),
        ask=read_questions(table, places, languages),
        retelling=None if each is None else read_retelling(table, each),
        when=when,
        find=find,
        system=system,
        before=before,
        result=result,
        spelled=spelled,
        tools=frozenset(table.texts("tools")),
        after_tool=frozenset(table.names("after_tool")),
        must=table.text("must"),
        is_for_pictures=table.boolean("picture"),
        is_weak=table.boolean("weak"),
        statements=table.boolean("statements"),
        confirmations=tuple(read_confirmation(each, languages) for each in table.tables("confirm", ("result", "say"))),
        turn=table.count("turn"),
    )
    if rule.then and not rule.answer.calls:
        table.refuse("then", 'needs "call": it is the text for the tool\'s result')
    if rule.confirmations and not rule.after_tool:
        table.refuse("confirm", 'needs "after_tool": it has the texts for results')
    if rule.then and rule.after_tool:
        table.refuse("then", 'cannot be used together with "after_tool"')
    if each is None and "line" in table:
        table.refuse("line", 'needs "each", which finds the lines')
    return rule


def groups_of(table: ScriptTable, when: PatternsByLanguage) -> list[str]:
    """The groups of `when`. All languages have the same named groups, because they fill the same places. Numbered groups fill places only
    if there is one language."""
    first, *others = when.values() if when else (re.compile(""),)
    for name, pattern in list(when.items())[1:]:
        if pattern.groupindex.keys() != first.groupindex.keys():
            names = ", ".join(sorted(first.groupindex)) or "none"
            table.refuse(f"when.{name}", f"must have the same named groups as the first language ({names})")
    return [*first.groupindex, *([] if others else map(str, range(1, first.groups + 1)))]


def read_questions(table: ScriptTable, places: Collection[str], languages: Collection[str]) -> dict[str, TextsByLanguage]:
    """The questions. They have no places: the script recognises an answer by the question before it, word for word."""
    names = table.keys("ask")
    for name in names:
        if name not in places:
            table.refuse(f"ask.{name}", f'there is no place {{{name}}} here; did you mean "{nearest(name, places)}"?')
    within = table.table("ask", names)
    questions = {name: within.texts_by_language(name, places, languages) for name in names}
    for name, texts in questions.items():
        for text in texts.values():
            if not text.strip():
                within.refuse(name, "is empty")
            if has := next(placeholder_names(text), None):
                within.refuse(name, f"has a place, {{{has}}}; a question has none, because the script recognises it word for word")
    return questions


def read_confirmation(table: ScriptTable, languages: Collection[str]) -> Confirmation:
    pattern = table.pattern("result", re.MULTILINE)
    if pattern is None:
        table.refuse("result", "is missing; it is the pattern for a result of this kind")
    places = tuple(pattern.groupindex)
    if places not in ((), ("what",)):
        table.refuse("result", "may have one named group at most, with the name what")
    return Confirmation(result=pattern, say=table.texts_by_language("say", places, languages) or table.refuse("say", "is missing"))


def read_retelling(table: ScriptTable, each: re.Pattern[str]) -> Retelling:
    if "line" not in table:
        table.refuse("line", 'is missing; it is the text for each match of "each"')
    return Retelling(each=each, line=table.template("line", (*each.groupindex, "number")))


# --- answers


def read_transcript(table: ScriptTable) -> ScriptAnswer:
    say = table.template("say", REQUEST_PLACES)
    return read_answer(table, {"": say} if say else {}, REQUEST_PLACES, say=say)


def read_answer(table: ScriptTable, texts: TextsByLanguage, places: Collection[str], *, say: str = "") -> ScriptAnswer:
    """An answer. A rule chooses its texts by language later, so `texts` are only checked here."""
    answer = ScriptAnswer(
        say=say,
        calls=tuple(read_call(call, places) for call in table.tables("call", ("name", "arguments"), or_one=True)),
        reasoning=table.template("reasoning", places),
        fail=read_fault(table),
        retry_after_s=table.number("retry_after_s"),
        cut_after=table.count("cut_after"),
        delay_s=table.number("delay_s") or 0.0,
    )
    if answer.fail is None and not any(key in table for key in ("say", "call", "statements", "confirm")):
        table.refuse("say", 'is missing; an answer has "say", "call" or "fail"')
    for key in ("say", "call", "reasoning", "cut_after"):
        if answer.fail is not None and key in table:
            table.refuse(key, 'cannot be used together with "fail": a failure has no text')
    if answer.retry_after_s is not None and answer.fail is not ScriptFault.RATE_LIMITED:
        table.refuse("retry_after_s", 'needs fail = "rate_limited"')
    if answer.cut_after is not None and not any(text.strip() for text in texts.values()):
        table.refuse("cut_after", 'needs words to cut, in "say"')
    return answer


def read_call(table: ScriptTable, places: Collection[str]) -> ScriptToolCall:
    return ScriptToolCall(name=table.text("name") or table.refuse("name", "is missing"), arguments=table.templates("arguments", places))


def read_fault(table: ScriptTable) -> ScriptFault | None:
    name = table.text("fail")
    if name is not None and name not in list(ScriptFault):
        table.refuse("fail", f'no such failure; did you mean "{nearest(name, list(ScriptFault))}"?')
    return None if name is None else ScriptFault(name)


def nearest(name: str, known: Collection[str]) -> str:
    """The most similar known name; a bad guess still shows what names look like."""
    return get_close_matches(name, known, n=1, cutoff=0.0)[0]
