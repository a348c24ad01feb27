"""A model's answer as a row of parts: thinking, text, refusal, calls. APIs whose answers are lists of blocks or items are written from it.

A stream is the same row, with every part opened, grown and ended before the next one: no client can mix up two calls that a server
streams at the same time. What comes while a call is open waits until the answer is whole. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from hermes.ports.backends import ChatMessage, Delta, ReasoningDelta, TextDelta, ToolCallDelta

REASONING_SEPARATOR = "\n\n"
"""Stands in a message's `reasoning` between two parts of thinking."""


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    """What the model thought. `block` is the vendor's own form, if the vendor wants it back unchanged."""

    text: str
    block: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class RefusalPart:
    """Why the model does not answer, in its own words."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPart:
    """A call of a tool, with its arguments as the model wrote them."""

    id: str
    name: str
    text: str


AnswerPart = ThinkingPart | TextPart | RefusalPart | CallPart


@dataclass(frozen=True, slots=True)
class PartStarted:
    """A part begins; its text is empty."""

    index: int
    part: AnswerPart


@dataclass(frozen=True, slots=True)
class PartGrown:
    """More of the open part's text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class PartEnded:
    """The open part, whole."""

    index: int
    part: AnswerPart


PartEvent = PartStarted | PartGrown | PartEnded


def answer_parts(message: ChatMessage) -> list[AnswerPart]:
    """The parts of a whole answer."""
    calls: list[AnswerPart] = [
        CallPart(call.get("id") or "", call["function"]["name"], call["function"].get("arguments") or "{}")
        for call in message.get("tool_calls") or ()
    ]
    text, refusal = message.get("content") or "", message.get("refusal")
    thinking = message.get("thinking_blocks")
    blocks: Sequence[Mapping[str, Any]] = thinking.get("blocks") or () if isinstance(thinking, Mapping) else ()
    reasoning = message.get("reasoning") or ""
    if not blocks or REASONING_SEPARATOR.join(filter(None, map(thought_of, blocks))) != reasoning:
        thoughts: list[AnswerPart] = [ThinkingPart(reasoning)] if reasoning else []
        return [*thoughts, *text_parts(text), *refusal_parts(refusal), *calls]
    places = [(at_text, at_call) for at_text, at_call in thinking.get("places") or [(0, 0)] * len(blocks)]  # type: ignore[union-attr]
    parts: list[AnswerPart] = []
    marks = [(0, 0), *places, (len(text), len(calls))]
    for number, ((from_text, from_call), (to_text, to_call)) in enumerate(pairwise(marks)):
        parts += [*text_parts(text[from_text:to_text]), *calls[from_call:to_call]]
        if number < len(blocks):
            parts.append(ThinkingPart(thought_of(blocks[number]), blocks[number]))
    return [*parts, *refusal_parts(refusal)]


def thought_of(block: Mapping[str, Any]) -> str:
    """The text of a vendor's block of thinking; empty for one that only the vendor can read."""
    thought = block.get("thinking")
    return thought if isinstance(thought, str) else ""


def text_parts(text: str) -> list[AnswerPart]:
    return [TextPart(text)] if text else []


def refusal_parts(refusal: Any) -> list[AnswerPart]:
    return [RefusalPart(refusal)] if refusal else []


def call_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call as an object; empty if they are none, as those that a limit cut off."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class PartStream:
    """Makes the parts of an answer out of its deltas. `parts` are those that have ended."""

    def __init__(self) -> None:
        self.parts: list[AnswerPart] = []
        self._open: AnswerPart | None = None
        self._texts: list[str] = []
        """The pieces of the open part."""
        self._open_call = -1
        self._waiting: list[TextDelta | ReasoningDelta] = []
        self._calls: dict[int, list[ToolCallDelta]] = {}
        """What waits for the end of the open call."""

    def feed(self, delta: Delta) -> Iterator[PartEvent]:
        """Take a delta; yield what can be said now."""
        match delta:
            case ToolCallDelta(index) if isinstance(self._open, CallPart) and index != self._open_call:
                self._calls.setdefault(index, []).append(delta)
            case ToolCallDelta(index):
                if not isinstance(self._open, CallPart):
                    self._open_call = index
                    yield from self._start(CallPart(delta.id or "", delta.name or "", ""))
                yield from self._grow(delta.arguments)
            case _ if isinstance(self._open, CallPart):
                self._waiting.append(delta)
            case TextDelta(text):
                if not isinstance(self._open, TextPart):
                    yield from self._start(TextPart(""))
                yield from self._grow(text)
            case ReasoningDelta():
                yield from self._think(delta)

    def finish(self, message: ChatMessage) -> Iterator[PartEvent]:
        """End the answer; `message` is the whole of it, and has what no delta had."""
        calls = [part for part in answer_parts(message) if isinstance(part, CallPart)]
        yield from self._end(calls)
        waiting, self._waiting = self._waiting, []
        for delta in waiting:
            yield from self.feed(delta)
        yield from self._end(calls)
        for index in sorted(self._calls):
            for piece in self._calls.pop(index):
                yield from self.feed(piece)
            yield from self._end(calls)
        if not self.parts:
            for part in answer_parts(message):
                yield from self._whole(part)
        elif message.get("refusal"):
            yield from self._whole(RefusalPart(message["refusal"]))

    def _think(self, delta: ReasoningDelta) -> Iterator[PartEvent]:
        text = delta.text
        if not isinstance(self._open, ThinkingPart):
            if any(isinstance(part, ThinkingPart) and part.text for part in self.parts):
                text = text.removeprefix(REASONING_SEPARATOR)
            if text or delta.block is not None:
                yield from self._start(ThinkingPart("", delta.block))
        yield from self._grow(text)
        if delta.block is not None and isinstance(self._open, ThinkingPart):
            self._open = replace(self._open, block=delta.block)
            yield from self._end(())

    def _start(self, part: AnswerPart) -> Iterator[PartEvent]:
        yield from self._end(())
        self._open = part
        yield PartStarted(len(self.parts), part)

    def _grow(self, text: str) -> Iterator[PartEvent]:
        if text and self._open is not None:
            self._texts.append(text)
            yield PartGrown(len(self.parts), text)

    def _end(self, calls: Sequence[CallPart]) -> Iterator[PartEvent]:
        """End the open part. A call ends as the whole answer has it: without arguments they are `{}`."""
        part, text = self._open, "".join(self._texts)
        if part is None:
            return
        if isinstance(part, CallPart):
            whole = calls[self._open_call] if self._open_call < len(calls) else replace(part, text=text or "{}")
            if whole.text.startswith(text):
                yield from self._grow(whole.text[len(text) :])
            part, text = whole, whole.text
        yield PartEnded(len(self.parts), replace(part, text=text))
        self.parts.append(replace(part, text=text))
        self._open, self._texts = None, []

    def _whole(self, part: AnswerPart) -> Iterator[PartEvent]:
        self._open_call = 0
        yield from self._start(replace(part, text=""))
        yield from self._grow(part.text)
        yield from self._end((part,) if isinstance(part, CallPart) else ())
