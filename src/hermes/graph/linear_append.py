"""Append messages to a list of which only the end is known, without building a graph.

For the ordinary append: messages without metadata, and samples whose context is the list before them. Its ids and bodies are those that the
graph of `stored_graph.continue_graph` gives, with about a third of the work; tests compare the two. What this cannot append, a graph can.

Knows nothing about where a list is stored."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from hermes.graph.call import CallRecord
from hermes.graph.context import KeepReasoning, Overlay
from hermes.graph.history import EMPTY_OVERLAY, Sample, new_sample_id, response_id
from hermes.graph.message import METADATA, check_message, freeze, is_plain, message_as_stored
from hermes.graph.token_arrays import PromptDigests


class LinearAppend:
    """Messages at the end of a list, and the samples among them. Indices count from 0, as those of `continue_graph` do."""

    __slots__ = ("_prompts", "bodies", "ids", "samples")

    def __init__(self, head: str) -> None:
        self.ids = [bytes.fromhex(head)]
        """The context ids: of the list before, and after each message."""
        self.bodies: list[tuple[bytes, bytes]] = []
        """Of each message its digest and its JSON, as `encode_node` gives it."""
        self.samples: list[Sample] = []
        """Each with its response id."""
        self._prompts = PromptDigests()

    def add(self, message: Mapping[str, Any]) -> bytes:
        """Append a message and return its digest. Raises MessageError as a graph does."""
        known, body = message_as_stored(message if is_plain(message) else check_message(message, "message", freeze))
        digest = sha256(known).digest()
        self.bodies.append((digest, body))
        self.ids.append(sha256(b"hermes.node\0" + self.ids[-1] + digest).digest())
        return digest

    def add_sample(
        self,
        message: Mapping[str, Any],
        call: CallRecord | None,
        keep_reasoning: KeepReasoning = "none",
        system: str | None = None,
    ) -> None:
        """Append a message that a model sampled with the list before it as its context. Raises MessageError as a graph does."""
        context, index = self.ids[-1], len(self.bodies)
        digest, overlay, name = self.add(message), EMPTY_OVERLAY, None
        if call is not None:
            name = call.sample_id
            if call.tools is not None or call.template_id is not None or keep_reasoning != "none" or system:
                overlay = Overlay(call.tools, None, keep_reasoning, call.template_id, system)
        name = name or new_sample_id()
        sealed = response_id(context, overlay, digest, name, None if call is None else call.seal(self._prompts))
        self.samples.append(Sample(0, index, name, overlay, call, sealed))


def can_be_linear(message: Any) -> bool:
    """Whether a message can be appended without a graph. Its metadata may hold a chat, which only a graph can attach."""
    return isinstance(message, dict) and METADATA not in message
