"""A model for tests: it answers from a list or with a function (plain or async), keeps what it was asked, and fails as it is told.

    model = ScriptedModel(["Hello!", call_tool("venue_search", query="bars"), ChainFailed((), None), "Sorry."])
    model = ScriptedModel(lambda request: f"You said: {request.messages[-1]['content']}")

`hermes.backends.scripted` is another thing: a backend with rules and languages, for a Hermes that runs without any vendor's key."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from hermes.ports.backends import Completion, ModelRequest, Usage
from hermes.ports.models import Answer, Caller

ModelReply = str | Mapping[str, Any] | Exception
"""A text; a whole message, or a part of one (`content`, `tool_calls`, `reasoning`); or an error, which is raised."""


@dataclass(slots=True)
class ScriptedModel:
    """The port Models."""

    replies: list[ModelReply] | Callable[[ModelRequest], ModelReply | Awaitable[ModelReply]]
    """A list is used up, one reply for each call."""
    requests: list[ModelRequest] = field(default_factory=list)
    """What it was asked, in order."""
    callers: list[Caller] = field(default_factory=list)
    """For which user each request was made."""
    name: str = "scripted"
    """Of its backend and of the model."""
    usage: Usage = field(default_factory=lambda: Usage(tokens_in=10, tokens_out=2))
    micro_usd: int = 20
    """What each answer costs."""
    copy_of: UUID | None = None
    """The call that sampled the answers, if they come from the answer cache."""

    async def complete(self, request: ModelRequest, caller: Caller) -> Answer:
        self.requests.append(request)
        self.callers.append(caller)
        reply = await self._next_reply(request)
        if isinstance(reply, Exception):
            raise reply
        message = {"role": "assistant", **({"content": reply} if isinstance(reply, str) else reply)}
        completion = Completion(
            message=message,
            finish_reason="tool_calls" if message.get("tool_calls") else "stop",
            usage=self.usage,
            model=self.name,
            request_digest="",
        )
        return Answer(uuid4(), completion, self.name, self.name, self.micro_usd, {}, (), 1, copy_of=self.copy_of)

    async def _next_reply(self, request: ModelRequest) -> ModelReply:
        if callable(self.replies):
            reply = self.replies(request)
            return await reply if isinstance(reply, Awaitable) else reply
        if not self.replies:
            raise AssertionError(f"the model was asked {len(self.requests)} times, and has no reply left")
        return self.replies.pop(0)


def call_tool(name: str, *, call_id: str = "call_1", **arguments: Any) -> dict[str, Any]:
    """A reply that calls one tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": call_id, "type": "function", "function": function}]}
