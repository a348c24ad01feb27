"""A script: what is answered, and to what. Read from TOML, refused with one clear line where it is wrong.

    [[transcript]]   the next answer, whatever is asked, until there are no more
    [[rule]]         the first whose conditions all hold
    otherwise        what is said without any of them

Pure: knows neither time nor tokens, and does not remember how far a transcript has come."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn, Self

from hermes.backends.tool_calls import paired
from hermes.gateway.estimate import parts_of
from hermes.ports.backends import Ask, Message

OTHERWISE = "I am sorry, I do not have an answer to that. Could you say it in other words?"
ANY_TOOL = "*"
TOOL_TEXT_LIMIT = 500
"""Characters of a tool's result that `{tool}` stands for."""
_PLACE = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")


class BadScript(ValueError):
    """The script cannot be followed. One line: where, what, and the nearest thing that would be right."""


class Fault(StrEnum):
    """The ways in which a script can have a model fail."""

    OVERLOADED = "overloaded"
    RATE_LIMITED = "rate_limited"
    UNREACHABLE = "unreachable"
    GARBLED = "garbled"
    UNAUTHORIZED = "unauthorized"
    BAD_REQUEST = "bad_request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call; the texts in its arguments may have places to fill in."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the model does: speak, call tools, or fail."""

    say: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    fail: Fault | None = None
    retry_after_s: float | None = None
    cut_after: int | None = None
    """Words after which a stream breaks off."""
    delay_s: float = 0.0

    def filled(self, places: Mapping[str, str]) -> Answer:
        """The same answer with its places filled in. What is filled in is text, and is not looked at again."""
        return Answer(
            say=fill(self.say, places),
            calls=tuple(Call(name=call.name, arguments=fill_all(call.arguments, places)) for call in self.calls),
            reasoning=fill(self.reasoning, places),
            fail=self.fail,
            retry_after_s=self.retry_after_s,
            cut_after=self.cut_after,
            delay_s=self.delay_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the conditions of a rule look at."""

    user: str
    """The last user message's text."""
    turn: int
    """How many messages the user has written."""
    offered: frozenset[str]
    """The names of the tools that may be called."""
    after_tool: str | None
    """The tool whose result is the last message."""
    tool: str
    """The text of the last tool result."""

    @classmethod
    def of(cls, ask: Ask) -> Self:
        messages = paired(ask.messages)
        users = [text_of(message) for message in messages if message["role"] == "user"]
        results = [text_of(message) for message in messages if message["role"] == "tool"]
        tools = () if ask.tool_choice == "none" else ask.tools
        last = messages[-1]
        return cls(
            user=users[-1] if users else "",
            turn=len(users),
            offered=frozenset(tool["function"]["name"] for tool in tools),
            after_tool=last.get("name") or "" if last["role"] == "tool" else None,
            tool=results[-1] if results else "",
        )

    @property
    def places(self) -> dict[str, str]:
        return {"user": self.user, "tool": self.tool[:TOOL_TEXT_LIMIT]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An answer, and when it is given: if every condition that it has holds. Without conditions, always.

    A rule that calls a tool is not for the moment after a result, unless it says `after_tool`: the user's message is still the
    last one then, and the rule would call for ever."""

    answer: Answer
    when: re.Pattern[str] | None = None
    tools: frozenset[str] = frozenset()
    after_tool: str | None = None
    turn: int | None = None

    def answer_to(self, scene: Scene) -> Answer | None:
        """The answer, filled in; None if this rule is not for this scene."""
        if self.turn not in (None, scene.turn) or not self.tools <= scene.offered or not self._is_time(scene.after_tool):
            return None
        if self.when is None:
            return self.answer.filled(scene.places)
        found = self.when.search(scene.user)
        if found is None:
            return None
        groups = {str(number): text for number, text in enumerate(found.groups(""), 1)} | found.groupdict("")
        return self.answer.filled(scene.places | groups)

    def _is_time(self, after_tool: str | None) -> bool:
        if self.after_tool is None:
            return after_tool is None or not self.answer.calls
        return after_tool is not None and self.after_tool in (ANY_TOOL, after_tool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Rules and a transcript, ready to be followed."""

    rules: tuple[Rule, ...] = ()
    transcript: tuple[Answer, ...] = ()
    otherwise: str = OTHERWISE

    @classmethod
    def usual(cls) -> Script:
        """The script that ships with Hermes: a friendly concierge in a few rules."""
        return cls.parse((resources.files(__package__) / "usual.toml").read_text(encoding="utf-8"), where="usual.toml")

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
    def parse(cls, text: str, *, where: str = "script") -> Script:
        """Read a script from its text; `where` is what errors call it. Raises BadScript."""
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise BadScript(f"{where}: is not TOML: {error}") from error
        table = Table(data, f"{where}: ", ("rule", "transcript", "otherwise"))
        return cls(
            rules=tuple(read_rule(rule) for rule in table.tables("rule", RULE_KEYS)),
            transcript=tuple(read_answer(answer, SCENE_PLACES) for answer in table.tables("transcript", ANSWER_KEYS)),
            otherwise=table.template("otherwise", SCENE_PLACES) or OTHERWISE,
        )

    def answer(self, ask: Ask, *, given: int = 0) -> Answer:
        """What is answered when so many answers have been given. Raises KeyError, TypeError or AttributeError for what is no chat."""
        scene = Scene.of(ask)
        if given < len(self.transcript):
            return self.transcript[given].filled(scene.places)
        answers = (rule.answer_to(scene) for rule in self.rules)
        return next((answer for answer in answers if answer is not None), Answer(say=fill(self.otherwise, scene.places)))


# --- reading


ANSWER_KEYS = ("say", "call", "reasoning", "fail", "retry_after_s", "cut_after", "delay_s")
RULE_KEYS = ("when", "tools", "after_tool", "turn", *ANSWER_KEYS)
SCENE_PLACES = ("user", "tool")


class Table:
    """One table of a script. Every value is what it should be, or BadScript says where it is not."""

    def __init__(self, data: Mapping[str, Any], where: str, known: Collection[str]) -> None:
        self._data, self._where = data, where
        for key in data:
            if key not in known:
                raise BadScript(f'{where}{key}: unknown key; did you mean "{nearest(key, known)}"?')

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def refuse(self, key: str, what: str) -> NoReturn:
        raise BadScript(f"{self._where}{key}: {what}")

    def text(self, key: str) -> str | None:
        value = self._data.get(key)
        return value if value is None or isinstance(value, str) else self.refuse(key, "must be a text")

    def template(self, key: str, places: Collection[str]) -> str:
        """A text whose places are all known; empty where there is none."""
        self._check_places(key, text := self.text(key) or "", places)
        return text

    def templates(self, key: str, places: Collection[str]) -> dict[str, Any]:
        """A table with texts at any depth."""
        value = self._data.get(key, {})
        if not isinstance(value, dict):
            self.refuse(key, "must be a table")
        each_text(value, lambda text: self._check_places(key, text, places))
        try:
            json.dumps(value, allow_nan=False, default=str)
        except ValueError:
            self.refuse(key, "has a number that JSON does not have")
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

    def texts(self, key: str) -> list[str]:
        value = self._data.get(key, [])
        is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return list(value) if is_list else self.refuse(key, 'must be a list of texts, as in ["venue_search"]')

    def tables(self, key: str, known: Collection[str], *, or_one: bool = False) -> list[Table]:
        value = self._data.get(key, [])
        items: Sequence[Any] = [value] if or_one and isinstance(value, dict) else value
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            self.refuse(key, "must be a table, or a list of them" if or_one else f"must be tables, each under a line [[{key}]]")
        return [Table(item, f"{self._where}{key}[{number}].", known) for number, item in enumerate(items, 1)]

    def _check_places(self, key: str, text: str, places: Collection[str]) -> None:
        for found in _PLACE.finditer(text):
            if (name := found[2]) is not None and name not in places:
                self.refuse(
                    key, f"nothing is called {{{name}}} here; did you mean {{{nearest(name, places)}}}? {{{{{name}}}}} is the text itself"
                )


def read_rule(table: Table) -> Rule:
    when = read_pattern(table)
    groups = [str(number) for number in range(1, when.groups + 1)] + list(when.groupindex) if when else []
    return Rule(
        answer=read_answer(table, (*groups, *SCENE_PLACES)),
        when=when,
        tools=frozenset(table.texts("tools")),
        after_tool=table.text("after_tool"),
        turn=table.count("turn"),
    )


def read_pattern(table: Table) -> re.Pattern[str] | None:
    source = table.text("when")
    try:
        return None if source is None else re.compile(source, re.IGNORECASE)
    except re.error as error:
        table.refuse("when", f"is no regular expression: {error}")


def read_answer(table: Table, places: Collection[str]) -> Answer:
    answer = Answer(
        say=table.template("say", places),
        calls=tuple(read_call(call, places) for call in table.tables("call", ("name", "arguments"), or_one=True)),
        reasoning=table.template("reasoning", places),
        fail=read_fault(table),
        retry_after_s=table.number("retry_after_s"),
        cut_after=table.count("cut_after"),
        delay_s=table.number("delay_s") or 0.0,
    )
    if answer.fail is None and not {"say", "call"} & {key for key in ANSWER_KEYS if key in table}:
        table.refuse("say", 'is missing; an answer has "say", "call" or "fail"')
    for key in ("say", "call", "reasoning", "cut_after"):
        if answer.fail is not None and key in table:
            table.refuse(key, 'cannot stand beside "fail": what fails says nothing')
    if answer.retry_after_s is not None and answer.fail is not Fault.RATE_LIMITED:
        table.refuse("retry_after_s", 'needs fail = "rate_limited"')
    if answer.cut_after is not None and not answer.say.strip():
        table.refuse("cut_after", 'needs words to cut, in "say"')
    return answer


def read_call(table: Table, places: Collection[str]) -> Call:
    return Call(name=table.text("name") or table.refuse("name", "is missing"), arguments=table.templates("arguments", places))


def read_fault(table: Table) -> Fault | None:
    name = table.text("fail")
    if name is not None and name not in list(Fault):
        table.refuse("fail", f'no such failure; did you mean "{nearest(name, list(Fault))}"?')
    return None if name is None else Fault(name)


def nearest(name: str, known: Collection[str]) -> str:
    """The known name that looks most like this one; a bad guess still shows what names look like."""
    return get_close_matches(name, known, n=1, cutoff=0.0)[0]


# --- texts and their places


def fill(text: str, places: Mapping[str, str]) -> str:
    """A text with `{name}` filled in, and `{{name}}` as the plain text `{name}`. Other braces are left alone."""
    return _PLACE.sub(lambda found: f"{{{found[1]}}}" if found[1] is not None else places.get(found[2], found[0]), text)


def fill_all(value: Any, places: Mapping[str, str]) -> Any:
    """The same for all texts in a value, at any depth."""
    return each_text(value, lambda text: fill(text, places))


def each_text(value: Any, change: Callable[[str], Any]) -> Any:
    """A value made of the same lists and tables, with every text in it changed; keys stay."""
    match value:
        case str():
            return change(value)
        case Mapping():
            return {key: each_text(item, change) for key, item in value.items()}
        case list():
            return [each_text(item, change) for item in value]
    return value


def text_of(message: Message) -> str:
    """The text of a message, whether it is one or a list of parts."""
    content = message.get("content")
    return content if isinstance(content, str) else "".join(part.get("text") or "" for part in parts_of(message))
