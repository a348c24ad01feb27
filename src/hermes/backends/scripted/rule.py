"""A rule of a script: when it applies to a request, and its answer. Values in, answer out.

The texts of an answer have places to fill in:

    {name}          the value of this place
    {name|text}     the same, or the text where the value is empty
    {{name}}        the plain text {name}

A value is filled in as it is: places in it are not filled again. Other braces stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from hermes.backends.scripted.dates_and_times import last_match
from hermes.backends.scripted.request_view import ANY_TOOL, MAX_WORDS_CHARS, RequestView
from hermes.backends.scripted.statements import Confirmation, calls_for, confirm_results, language_of

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{(\w+)(?:\|([^{}]*))?\}")
_LEFT_OUT = object()


def fill_text(text: str, places: Mapping[str, str]) -> str:
    """A text with its places filled in. An unknown place stays as it is."""

    def filled(found: re.Match[str]) -> str:
        if found[1] is not None:
            return f"{{{found[1]}}}"
        return places.get(found[2], found[0]) or found[3] or ""

    return _PLACEHOLDER.sub(filled, text)


def fill_arguments(arguments: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    """The same for all texts in a table, at any depth. A text that becomes empty is left out, and so is a table of such texts."""
    return {key: value for key, value in ((key, _fill_value(item, places)) for key, item in arguments.items()) if value is not _LEFT_OUT}


def _fill_value(value: Any, places: Mapping[str, str]) -> Any:
    match value:
        case str():
            text = fill_text(value, places)
            return text if text.strip() or not value else _LEFT_OUT
        case Mapping():
            table = fill_arguments(value, places)
            return table if table or not value else _LEFT_OUT
        case list():
            return [item for item in (_fill_value(item, places) for item in value) if item is not _LEFT_OUT]
    return value


def placeholder_names(text: str) -> Iterator[str]:
    """The names of the places of a text."""
    return (found[2] for found in _PLACEHOLDER.finditer(text) if found[2] is not None)


def visit_texts(value: Any, look: Callable[[str], Any]) -> None:
    """Call `look` for every text in a value of lists and tables; not for keys."""
    match value:
        case str():
            look(value)
        case Mapping():
            for item in value.values():
                visit_texts(item, look)
        case list():
            for item in value:
                visit_texts(item, look)


TextsByLanguage = Mapping[str, str]
"""A text by language; under the empty name, one text for all languages."""
PatternsByLanguage = Mapping[str, re.Pattern[str]]
"""A pattern by language; under the empty name, one pattern for all languages."""


class ScriptFault(StrEnum):
    """The ways in which a script can make a model fail."""

    OVERLOADED = "overloaded"
    RATE_LIMITED = "rate_limited"
    UNREACHABLE = "unreachable"
    GARBLED = "garbled"
    UNAUTHORIZED = "unauthorized"
    BAD_REQUEST = "bad_request"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptToolCall:
    """A tool call; the texts in its arguments may have places to fill in."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptAnswer:
    """What the scripted model does: answer with text, call tools, or fail."""

    say: str = ""
    calls: tuple[ScriptToolCall, ...] = ()
    reasoning: str = ""
    fail: ScriptFault | None = None
    retry_after_s: float | None = None
    cut_after: int | None = None
    """Words after which a stream breaks off."""
    delay_s: float = 0.0
    is_otherwise: bool = False
    """No rule applies."""

    def with_places(self, places: Mapping[str, str]) -> ScriptAnswer:
        """The same answer with its places filled in."""
        return replace(
            self,
            say=fill_text(self.say, places),
            calls=tuple(ScriptToolCall(name=call.name, arguments=fill_arguments(call.arguments, places)) for call in self.calls),
            reasoning=fill_text(self.reasoning, places),
        )


@dataclass(frozen=True, slots=True)
class UserWords:
    """The user's words as one reading takes them: the last message alone, or joined with those before it."""

    words: str
    language: str
    places: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retelling:
    """How a rule puts a tool's result into words: a pattern that is found again and again, and a line for each match."""

    each: re.Pattern[str]
    line: str

    def lines(self, result: str) -> str:
        """The lines for a result; the result itself if the pattern finds nothing in it."""
        found = enumerate(self.each.finditer(result), 1)
        return "\n".join(fill_text(self.line, {**each.groupdict(""), "number": str(number)}) for number, each in found) or result


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRule:
    """An answer and its conditions. The rule applies if all of its conditions hold; without conditions, always.

    A rule that calls a tool does not apply after a tool's result: the last user message is still the same, and the rule would call for
    ever. The exceptions are `then`, its text for its own tool's result, and `after_tool`."""

    answer: ScriptAnswer
    say: TextsByLanguage = field(default_factory=dict)
    then: TextsByLanguage = field(default_factory=dict)
    ask: Mapping[str, TextsByLanguage] = field(default_factory=dict)
    """Questions by the place that their answer fills. The script asks them in this order, instead of the answer."""
    retelling: Retelling | None = None
    when: PatternsByLanguage = field(default_factory=dict)
    """The language whose pattern is found is the language of the answer."""
    find: Mapping[str, PatternsByLanguage] = field(default_factory=dict)
    """Further patterns for the user's words, by the place that they fill."""
    system: re.Pattern[str] | None = None
    before: re.Pattern[str] | None = None
    result: re.Pattern[str] | None = None
    spelled: Mapping[str, str] = field(default_factory=dict)
    tools: frozenset[str] = frozenset()
    after_tool: frozenset[str] = frozenset()
    must: str | None = None
    is_for_pictures: bool = False
    is_weak: bool = False
    statements: bool = False
    """The rule is for users' statements about themselves. It calls the tools that note or forget them, or answers with `say` instead."""
    confirmations: tuple[Confirmation, ...] = ()
    """The texts for the results of this round."""
    turn: int | None = None

    @property
    def is_sure(self) -> bool:
        """Whether the rule may take a message that could also be the answer to a question."""
        return not self.is_weak and (self.statements or bool(self.when) or self.before is not None or self.result is not None)

    def answer_to(self, view: RequestView, reading: UserWords) -> ScriptAnswer | None:
        """The answer, filled in; None if the rule does not apply."""
        is_after = view.after_tool is not None and bool(self.then) and view.after_tool in self._called_tools
        if not is_after and not self._applies(view):
            return None
        if self.turn not in (None, view.turn) or (self.is_for_pictures and not view.has_picture):
            return None
        if self.statements:
            return self._answer_statement(view)
        found = self._match(view, reading)
        return None if found is None else self._answer_with(view, *found, is_after=is_after)

    def _answer_with(self, view: RequestView, language: str, places: Mapping[str, str], *, is_after: bool) -> ScriptAnswer | None:
        if self.confirmations:
            spoken_in = language_of(view.user, language)
            text = confirm_results(
                view.results, self.confirmations, lambda texts, what: fill_text(text_in_language(texts, spoken_in), {"what": what})
            )
            return ScriptAnswer(say=text) if text else None
        if is_after:
            return ScriptAnswer(say=self._fill_texts(self.then, language, places))
        missing = next((question for name, question in self.ask.items() if not places[name].strip()), None)
        if missing is not None:
            return ScriptAnswer(say=text_in_language(missing, language))
        return replace(self.answer.with_places(places), say=self._fill_texts(self.say, language, places))

    def _answer_statement(self, view: RequestView) -> ScriptAnswer | None:
        """The calls for a user's statements about themselves, or the rule's own text instead; None if the message has no statement, or if
        a tool for it is not offered."""
        calls = calls_for(view.user[:MAX_WORDS_CHARS], sure=not self.is_weak)
        if view.must is not None or not calls or (self.system is not None and self.system.search(view.system) is None):
            return None
        if self.say:
            return replace(self.answer, say=text_in_language(self.say, language_of(view.user, "en")))
        if not {name for name, _ in calls} <= view.offered:
            return None
        return replace(self.answer, calls=tuple(ScriptToolCall(name=name, arguments=arguments) for name, arguments in calls))

    @property
    def _called_tools(self) -> set[str]:
        return {call.name for call in self.answer.calls}

    def _applies(self, view: RequestView) -> bool:
        if not self.tools <= view.offered or (view.after_tool is None and not self._may_answer(view.must)):
            return False
        if not self.after_tool:
            return view.after_tool is None or not (self.answer.calls or self.statements)
        return view.after_tool is not None and not self.after_tool.isdisjoint({ANY_TOOL, view.after_tool})

    def _may_answer(self, must: str | None) -> bool:
        """If the request forces a tool, only a rule that calls this tool or has it as `must` may answer."""
        if must is None:
            return self.must is None
        if self.must is not None:
            return self.must in (ANY_TOOL, must)
        return must in self._called_tools or (must == ANY_TOOL and bool(self._called_tools))

    def _match(self, view: RequestView, reading: UserWords) -> tuple[str, dict[str, str]] | None:
        """The language and the values of all places; None if a pattern is not found."""
        language, groups = reading.language, dict[str, str]()
        if self.when:
            spoken_in = ((name, found) for name, pattern in self.when.items() if (found := pattern.search(reading.words)) is not None)
            name, found = next(spoken_in, ("", None))
            if found is None:
                return None
            language = name or language
            groups = {str(number): text for number, text in enumerate(found.groups(""), 1)} | found.groupdict("")
        matched: dict[str, str] = {}
        # For `then`, a rule matches the same earlier result as when it called its tool.
        result = view.tool if self.after_tool else view.tool_before
        for pattern, text in ((self.system, view.system), (self.before, view.before), (self.result, result)):
            if pattern is not None:
                found = pattern.search(text)
                if found is None:
                    return None
                matched |= found.groupdict("")
        found_last = {
            name: find_last(reading.words, patterns.get(language) or next(iter(patterns.values()))) for name, patterns in self.find.items()
        }
        own = {name: self.spelled.get(text.strip().casefold(), text) for name, text in {**matched, **found_last, **groups}.items()}
        return language, {**reading.places, **own}

    def _fill_texts(self, texts: TextsByLanguage, language: str, places: Mapping[str, str]) -> str:
        lines = {"lines": self.retelling.lines(places["tool"])} if self.retelling else {}
        return fill_text(text_in_language(texts, language), {**places, **lines})


def find_last(words: str, pattern: re.Pattern[str]) -> str:
    """The last match of a pattern: its first group that is not empty, or the whole match if it has no groups; empty without a match."""
    found = last_match(pattern, words)
    if found is None:
        return ""
    return next((group for group in found.groups() if group), "") if pattern.groups else found[0]


def text_in_language(texts: TextsByLanguage, language: str) -> str:
    """The text in this language, or in the first language if there is none."""
    return texts.get(language) or next(iter(texts.values()), "")
