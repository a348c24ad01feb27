"""The parts of a request that a script sees: the user's own words, the messages before them, tool results, and the tools on offer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from hermes.backends.scripted.dates_and_times import read_moment
from hermes.backends.tool_calls import pair_tool_results
from hermes.gateway.prices import parts_of
from hermes.ports.backends import ChatMessage, ModelRequest
from hermes.router.approved_block import split_approved
from hermes.router.speakers import strip_label

ANY_TOOL = "*"
MAX_TOOL_TEXT_CHARS = 2_000
"""Characters of a tool's result that `{tool}` stands for."""
MAX_WORDS_CHARS = 2_000
"""Characters of a message in which rules look for words: no user hides a request behind two pages of text."""
MAX_EARLIER_QUESTIONS = 5
"""How many questions of the script in a row are read together with their answers."""

ROUTER_NOTE = re.compile(r"(?:\s*<(context|picture|attachment)>\n(?:[^\n]{0,20000}\n){0,200}?</\1>\s*){1,3}")
"""Notes that the router puts before the user's words: the time, recalled facts, what to do with a picture. The user did not write them."""
NOTE_CLOCK = re.compile(r"\s*<context>\nIt is \w{1,12}, (\d{4}-\d\d-\d\d \d\d:\d\d)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """The values that the conditions of a rule read."""

    system: str
    """The system message."""
    user: str
    """The last user message's text, without the router's note."""
    earlier: tuple[str, ...]
    """The user's earlier messages, if the last one answers a question of the script; the oldest first."""
    before: str
    """The assistant's last text before the last user message."""
    turn: int
    """How many messages the user has written."""
    has_picture: bool
    """Whether the last user message has a picture."""
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
    """The user's local time, if the router's note has it."""

    @classmethod
    def of(cls, ask: ModelRequest, questions: Collection[str] = ()) -> Self:
        """Read a request. Raises KeyError, TypeError, IndexError or AttributeError for malformed messages."""
        messages = show_approved_results(pair_tool_results(ask.messages))
        last = messages[-1]
        user_at = [at for at, message in enumerate(messages) if message["role"] == "user"]
        question = text_of(messages[user_at[-1]]) if user_at else ""
        clock = NOTE_CLOCK.match(question)
        return cls(
            system=next((text_of(message) for message in messages if message["role"] == "system"), ""),
            user=own_words(question),
            earlier=tuple(reversed(list(earlier_words(messages, user_at, questions)))),
            before=last_text(messages[: user_at[-1]] if user_at else (), "assistant"),
            turn=len(user_at),
            has_picture=bool(user_at) and any(part.get("type") == "image_url" for part in parts_of(messages[user_at[-1]])),
            offered=frozenset(tool["function"]["name"] for tool in (() if ask.tool_choice == "none" else ask.tools)),
            must=forced_tool(ask.tool_choice),
            after_tool=last.get("name") or "" if last["role"] == "tool" else None,
            tool=last_text(messages, "tool"),
            results=tuple(text_of(message) for message in messages[user_at[-1] :] if message["role"] == "tool") if user_at else (),
            tool_before=last_text(messages[: user_at[-1]] if user_at else (), "tool"),
            now=read_clock(clock[1]) if clock else None,
        )

    def readings(self) -> Iterator[str]:
        """The words to match: the last message alone, and then, if it answers a question, together with the user's earlier messages."""
        yield plain_words(self.user)
        if self.earlier:
            yield "\n".join(map(plain_words, (*self.earlier, self.user)))

    def places(self, words: str) -> dict[str, str]:
        """The places that every rule can fill in."""
        moment = read_moment(words, self.now)
        return {
            "user": self.user,
            "words": words,
            "tool": clip_text(self.tool, MAX_TOOL_TEXT_CHARS),
            "day": moment.day,
            "time": moment.time,
        }


def show_approved_results(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages, with the result of an approved offer as the result of its tool: rules put both into words in the same way."""
    shown: list[ChatMessage] = []
    for message in messages:
        approved = split_approved(text_of(message)) if message["role"] == "user" else None
        if approved is None:
            shown.append(message)
        else:
            name, result, words = approved
            shown += [{**message, "content": words}, {"role": "tool", "name": name, "content": result}]
    return shown


REQUEST_PLACES = ("user", "words", "tool", "day", "time")


def text_of(message: ChatMessage) -> str:
    """The text of a message, whether its content is a text or a list of parts."""
    content = message.get("content")
    return content if isinstance(content, str) else "".join(part.get("text") or "" for part in parts_of(message))


def own_words(text: str) -> str:
    """The words that the user wrote, without the router's note and the speaker's label."""
    note = ROUTER_NOTE.match(text)
    return strip_label(text[note.end() :] if note else text)


def last_text(messages: Sequence[ChatMessage], role: str) -> str:
    """The last text of a role; messages without text, such as tool calls, are skipped."""
    texts = (text_of(message) for message in reversed(messages) if message["role"] == role)
    return next((text for text in texts if text), "")


def earlier_words(messages: Sequence[ChatMessage], user_at: Sequence[int], questions: Collection[str]) -> Iterator[str]:
    """The user's message before each question of the script, as long as they answered one question after another; the newest first.
    `user_at` are the positions of the user's messages."""
    for at, before in zip(reversed(user_at[1:][-MAX_EARLIER_QUESTIONS:]), reversed(user_at[:-1][-MAX_EARLIER_QUESTIONS:]), strict=True):
        if not last_text(messages[before:at], "assistant").rstrip().endswith(tuple(questions)):
            return
        yield own_words(text_of(messages[before]))


def forced_tool(choice: str | Mapping[str, Any] | None) -> str | None:
    if isinstance(choice, Mapping):
        return str(choice["function"]["name"])
    return ANY_TOOL if choice == "required" else None


def read_clock(text: str) -> datetime | None:
    """A time as the router's note writes it; None for a date or time that does not exist."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def plain_words(text: str) -> str:
    """Words as rules match them: letters and apostrophes in one form, and at most MAX_WORDS_CHARS."""
    return unicodedata.normalize("NFC", text[:MAX_WORDS_CHARS]).replace("\u2019", "'")


def clip_text(text: str, limit: int) -> str:
    """A text of at most `limit` characters. It ends with a whole line or a whole word if one ends in its second half."""
    if len(text) <= limit:
        return text
    room = text[: limit - 1]  # one character is for the ellipsis
    for mark in ("\n", " "):
        if (end := room.rfind(mark)) > limit // 2:
            return f"{room[:end].rstrip()}{mark}…"
    return f"{room}…"
