"""A model that says what it was told, so that a test of something else can tell whose answer it is."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import uuid4

from hermes.ports.backends import Completion, ModelRequest, Usage
from hermes.ports.models import Answer, Caller
from hermes.router.speakers import strip_label

NOTE = re.compile(r"\A<context>.*?</context>\n\n", re.DOTALL)


def own_words(ask: ModelRequest) -> str:
    """What the user wrote, without the note and the speaker's label that Hermes puts before it."""
    text: str = next(message["content"] for message in reversed(ask.messages) if message["role"] == "user")
    return strip_label(without_note(text))


def without_note(text: str) -> str:
    return NOTE.sub("", text)


def said(text: str | None, backend: str = "echo", tool_calls: Sequence[Any] = ()) -> Answer:
    calls = {"tool_calls": list(tool_calls)} if tool_calls else {}
    completion = Completion(
        message={"role": "assistant", "content": text, **calls},
        finish_reason="stop",
        usage=Usage(tokens_in=0, tokens_out=0),
        model="echo",
        request_digest="",
    )
    return Answer(uuid4(), completion, backend, "echo", 0, {}, (), 0)


class Echo:
    """The port Models. `before` is called with the user's words before each answer."""

    def __init__(self, before: Callable[[str], Awaitable[Any]] | None = None) -> None:
        self._before = before

    async def complete(self, ask: ModelRequest, _: Caller) -> Answer:
        text = own_words(ask)
        if self._before is not None:
            await self._before(text)
        return said(text)
