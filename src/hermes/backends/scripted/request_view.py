"""What a script sees of a request: the user's own words, what was said before them, what a tool brought, what may be called."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from hermes.backends.scripted.dates_and_times import read_moment
from hermes.backends.tool_calls import pair_tool_results
from hermes.gateway.token_estimate import parts_of
from hermes.ports.backends import ChatMessage, ModelRequest
from hermes.router.speakers import strip_label

ANY_TOOL = "*"
MAX_TOOL_TEXT_CHARS = 2_000
"""Characters of a tool's result that `{tool}` stands for."""
MAX_WORDS_CHARS = 2_000
"""Characters of a message in which rules look for words: what somebody wants is not hidden behind two pages."""
MAX_EARLIER_QUESTIONS = 5
"""How many questions in a row are answered together."""

ROUTER_NOTE = re.compile(r"(?:\s*<(context|picture|attachment)>\n(?:[^\n]{0,20000}\n){0,200}?</\1>\s*){1,3}")
"""What the router puts before the user's words: the time, what comes to mind, what to do with a picture. It is not what the user said."""
NOTE_CLOCK = re.compile(r"\s*<context>\nIt is \w{1,12}, (\d{4}-\d\d-\d\d \d\d:\d\d)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """What the conditions of a rule look at."""

    system: str
    """The system message."""
    user: str
    """The last user message's text, without the router's note."""
    earlier: tuple[str, ...]
    """What the user said before, if the last message answers a question of the script's; the oldest first."""
    before: str
    """What the user was told last before that message."""
    turn: int
    """How many messages the user has written."""
    has_picture: bool
    """Whether the last user message has one."""
    offered: frozenset[str]
    """The names of the tools that may be called."""
    must: str | None
    """The tool that must be called; `*` for any."""
    after_tool: str | None
    """The tool whose result is the last message."""
    tool: str
    """The text of the last tool result."""
    results: tuple[str, ...]
    """The texts of all tool results since the last user message."""
    tool_before: str
    """The text of the last tool result before the last user message."""
    now: datetime | None
    """The user's local time, where a note says it."""

    @classmethod
    def of(cls, ask: ModelRequest, questions: Collection[str] = ()) -> Self:
        """Look at a request. Raises KeyError, TypeError, IndexError or AttributeError for what is no chat."""
        messages = pair_tool_results(ask.messages)
        last = messages[-1]
        said = [at for at, message in enumerate(messages) if message["role"] == "user"]
        question = text_of(messages[said[-1]]) if said else ""
        clock = NOTE_CLOCK.match(question)
        return cls(
            system=next((text_of(message) for message in messages if message["role"] == "system"), ""),
            user=own_words(question),
            earlier=tuple(reversed(list(earlier_words(messages, said, questions)))),
            before=last_text(messages[: said[-1]] if said else (), "assistant"),
            turn=len(said),
            has_picture=bool(said) and any(part.get("type") == "image_url" for part in parts_of(messages[said[-1]])),
            offered=frozenset(tool["function"]["name"] for tool in (() if ask.tool_choice == "none" else ask.tools)),
            must=forced_tool(ask.tool_choice),
            after_tool=last.get("name") or "" if last["role"] == "tool" else None,
            tool=last_text(messages, "tool"),
            results=tuple(text_of(message) for message in messages[said[-1] :] if message["role"] == "tool") if said else (),
            tool_before=last_text(messages[: said[-1]] if said else (), "tool"),
            now=read_clock(clock[1]) if clock else None,
        )

    def readings(self) -> Iterator[str]:
        """The words to look at: the last message alone, and then, if it is an answer, together with what it answers."""
        yield plain_words(self.user)
        if self.earlier:
            yield "\n".join(map(plain_words, (*self.earlier, self.user)))

    def places(self, words: str) -> dict[str, str]:
        """What every rule can fill in."""
        moment = read_moment(words, self.now)
        return {
            "user": self.user,
            "words": words,
            "tool": clip_text(self.tool, MAX_TOOL_TEXT_CHARS),
            "day": moment.day,
            "time": moment.time,
        }


REQUEST_PLACES = ("user", "words", "tool", "day", "time")


def text_of(message: ChatMessage) -> str:
    """The text of a message, whether it is one or a list of parts."""
    content = message.get("content")
    return content if isinstance(content, str) else "".join(part.get("text") or "" for part in parts_of(message))


def own_words(text: str) -> str:
    """What the user wrote themselves."""
    note = ROUTER_NOTE.match(text)
    return strip_label(text[note.end() :] if note else text)


def last_text(messages: Sequence[ChatMessage], role: str) -> str:
    """What somebody said last; messages without words, such as calls, are left out."""
    texts = (text_of(message) for message in reversed(messages) if message["role"] == role)
    return next((text for text in texts if text), "")


def earlier_words(messages: Sequence[ChatMessage], said: Sequence[int], questions: Collection[str]) -> Iterator[str]:
    """What the user said before each question of the script's that they answered without a break; the newest first."""
    for at, before in zip(reversed(said[1:][-MAX_EARLIER_QUESTIONS:]), reversed(said[:-1][-MAX_EARLIER_QUESTIONS:]), strict=True):
        if not last_text(messages[before:at], "assistant").rstrip().endswith(tuple(questions)):
            return
        yield own_words(text_of(messages[before]))


def forced_tool(choice: str | Mapping[str, Any] | None) -> str | None:
    if isinstance(choice, Mapping):
        return str(choice["function"]["name"])
    return ANY_TOOL if choice == "required" else None


def read_clock(text: str) -> datetime | None:
    """A time as a note writes it; None for one that no calendar has."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def plain_words(text: str) -> str:
    """Words as rules look at them: one way to write letters and apostrophes, and not too many of them."""
    return unicodedata.normalize("NFC", text[:MAX_WORDS_CHARS]).replace("\u2019", "'")


def clip_text(text: str, limit: int) -> str:
    """A text of at most so many characters. It ends with a whole line, or at least with a whole word."""
    if len(text) <= limit:
        return text
    room = text[: limit - 1]  # one for the sign that there is more
    for mark in ("\n", " "):
        if (end := room.rfind(mark)) > limit // 2:
            return f"{room[:end].rstrip()}{mark}…"
    return f"{room}…"
