"""A rule of a script: when it is for a request, and what is answered then. Values in, answer out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from hermes.backends.scripted.dates_and_times import last_match
from hermes.backends.scripted.placeholders import fill_arguments, fill_text
from hermes.backends.scripted.request_view import ANY_TOOL, MAX_WORDS_CHARS, RequestView
from hermes.backends.scripted.statements import Confirmation, calls_for, confirm_results, language_of

TextsByLanguage = Mapping[str, str]
"""A text in some languages; under the empty name, one for all of them."""
PatternsByLanguage = Mapping[str, re.Pattern[str]]
"""Likewise."""


class ScriptFault(StrEnum):
    """The ways in which a script can have a model fail."""

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
    """What the model does: speak, call tools, or fail."""

    say: str = ""
    calls: tuple[ScriptToolCall, ...] = ()
    reasoning: str = ""
    fail: ScriptFault | None = None
    retry_after_s: float | None = None
    cut_after: int | None = None
    """Words after which a stream breaks off."""
    delay_s: float = 0.0

    def filled(self, places: Mapping[str, str]) -> ScriptAnswer:
        """The same answer with its places filled in."""
        return replace(
            self,
            say=fill_text(self.say, places),
            calls=tuple(ScriptToolCall(name=call.name, arguments=fill_arguments(call.arguments, places)) for call in self.calls),
            reasoning=fill_text(self.reasoning, places),
        )


@dataclass(frozen=True, slots=True)
class UserWords:
    """One reading of what the user said."""

    words: str
    language: str
    places: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retelling:
    """How a tool's result is put into words: what is found in it again and again, and what is said of each."""

    each: re.Pattern[str]
    line: str

    def lines(self, result: str) -> str:
        """What is said of a result; the result itself where nothing is found in it."""
        found = enumerate(self.each.finditer(result), 1)
        return "\n".join(fill_text(self.line, {**each.groupdict(""), "number": str(number)}) for number, each in found) or result


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRule:
    """An answer, and when it is given: if every condition that it has holds. Without conditions, always.

    A rule that calls a tool is not for the moment after a result: the user's message is still the last one then, and the rule would call
    for ever. Unless it has `then`, which is what it says of its own tool's result, or `after_tool`."""

    answer: ScriptAnswer
    say: TextsByLanguage = field(default_factory=dict)
    then: TextsByLanguage = field(default_factory=dict)
    ask: Mapping[str, TextsByLanguage] = field(default_factory=dict)
    """Questions by the place that they are to fill: asked, in this order, in place of the answer."""
    retelling: Retelling | None = None
    when: PatternsByLanguage = field(default_factory=dict)
    """The language whose pattern is found is the language of the answer."""
    find: Mapping[str, PatternsByLanguage] = field(default_factory=dict)
    """What else is looked for in the user's words, by the place that it fills."""
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
    """It is for what users say of themselves. It calls the tools that note or forget it, unless it has something to say instead."""
    confirmations: tuple[Confirmation, ...] = ()
    """What is said of the results of this round."""
    turn: int | None = None

    @property
    def is_sure(self) -> bool:
        """Whether it knows what it hears, also where that may be an answer to a question."""
        return not self.is_weak and (self.statements or bool(self.when) or self.before is not None or self.result is not None)

    def answer_to(self, scene: RequestView, heard: UserWords) -> ScriptAnswer | None:
        """The answer, filled in; None if this rule is not for this scene."""
        is_after = scene.after_tool is not None and bool(self.then) and scene.after_tool in self._called
        if not is_after and not self._is_time(scene):
            return None
        if self.turn not in (None, scene.turn) or (self.is_for_pictures and not scene.has_picture):
            return None
        if self.statements:
            return self._noting(scene)
        found = self._found(scene, heard)
        return None if found is None else self._saying(scene, *found, is_after=is_after)

    def _saying(self, scene: RequestView, language: str, places: Mapping[str, str], *, is_after: bool) -> ScriptAnswer | None:
        if self.confirmations:
            spoken_in = language_of(scene.user, language)
            said = confirm_results(
                scene.results, self.confirmations, lambda texts, what: fill_text(text_in_language(texts, spoken_in), {"what": what})
            )
            return ScriptAnswer(say=said) if said else None
        if is_after:
            return ScriptAnswer(say=self._told(self.then, language, places))
        missing = next((question for name, question in self.ask.items() if not places[name].strip()), None)
        if missing is not None:
            return ScriptAnswer(say=text_in_language(missing, language))
        return replace(self.answer.filled(places), say=self._told(self.say, language, places))

    def _noting(self, scene: RequestView) -> ScriptAnswer | None:
        """The calls for what the user says of themselves, or what the rule says instead of them; None where the user says nothing of the
        kind, or where a tool for it is not offered."""
        calls = calls_for(scene.user[:MAX_WORDS_CHARS], sure=not self.is_weak)
        if scene.must is not None or not calls or (self.system is not None and self.system.search(scene.system) is None):
            return None
        if self.say:
            return replace(self.answer, say=text_in_language(self.say, language_of(scene.user, "en")))
        if not {name for name, _ in calls} <= scene.offered:
            return None
        return replace(self.answer, calls=tuple(ScriptToolCall(name=name, arguments=arguments) for name, arguments in calls))

    @property
    def _called(self) -> set[str]:
        return {call.name for call in self.answer.calls}

    def _is_time(self, scene: RequestView) -> bool:
        if not self.tools <= scene.offered or (scene.after_tool is None and not self._may_answer(scene.must)):
            return False
        if not self.after_tool:
            return scene.after_tool is None or not (self.answer.calls or self.statements)
        return scene.after_tool is not None and not self.after_tool.isdisjoint({ANY_TOOL, scene.after_tool})

    def _may_answer(self, must: str | None) -> bool:
        """Where a tool must be called, only a rule that calls it, or one that is made for that moment, has a say."""
        if must is None:
            return self.must is None
        if self.must is not None:
            return self.must in (ANY_TOOL, must)
        return must in self._called or (must == ANY_TOOL and bool(self._called))

    def _found(self, scene: RequestView, heard: UserWords) -> tuple[str, dict[str, str]] | None:
        """The language, and all that can be filled in; None where a pattern is not found."""
        language, groups = heard.language, dict[str, str]()
        if self.when:
            spoken_in = ((name, found) for name, pattern in self.when.items() if (found := pattern.search(heard.words)) is not None)
            name, found = next(spoken_in, ("", None))
            if found is None:
                return None
            language = name or language
            groups = {str(number): text for number, text in enumerate(found.groups(""), 1)} | found.groupdict("")
        looked_at: dict[str, str] = {}
        # What a rule says of its own tool's result is said for the same reason for which it called.
        result = scene.tool if self.after_tool else scene.tool_before
        for pattern, text in ((self.system, scene.system), (self.before, scene.before), (self.result, result)):
            if pattern is not None:
                found = pattern.search(text)
                if found is None:
                    return None
                looked_at |= found.groupdict("")
        sought = {
            name: find_last(heard.words, patterns.get(language) or next(iter(patterns.values()))) for name, patterns in self.find.items()
        }
        own = {name: self.spelled.get(text.strip().casefold(), text) for name, text in {**looked_at, **sought, **groups}.items()}
        return language, {**heard.places, **own}

    def _told(self, texts: TextsByLanguage, language: str, places: Mapping[str, str]) -> str:
        lines = {"lines": self.retelling.lines(places["tool"])} if self.retelling else {}
        return fill_text(text_in_language(texts, language), {**places, **lines})


def find_last(words: str, pattern: re.Pattern[str]) -> str:
    """What a pattern finds last: its first group that holds something, or all of it where it has none; empty where it is not found."""
    found = last_match(pattern, words)
    if found is None:
        return ""
    return next((group for group in found.groups() if group), "") if pattern.groups else found[0]


def text_in_language(texts: TextsByLanguage, language: str) -> str:
    """A text in a language; in the first one where it does not exist in that."""
    return texts.get(language) or next(iter(texts.values()), "")
