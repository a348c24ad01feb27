"""Which conversation does a request belong to, and what happened to it since? For clients that send the whole chat each time.

A client of the OpenAI door sends messages and no name for the chat. What it echoes of our own answers tells: a request joins a conversation
only through a response that was sampled in it, and the newest such response decides. What stands otherwise around it than before is an
edit, or a compaction where the client made the chat shorter. Without any response of ours it is a new chat, however alike it looks.

Pure: messages in, decisions out. Knows no store and no key; who may see which conversation is decided before anybody asks here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hermes.graph.message import canonical

Message = Mapping[str, Any]

COMPARED = ("role", "content", "tool_calls", "tool_call_id", "name")
"""What makes two messages the same to a client: it adds nulls and fields of its own to what it echoes."""


class ChangeKind(StrEnum):
    """What a client did to the chat since we saw it last."""

    NOTHING = "nothing"
    EXTENDED = "extended"
    EDIT = "edit"
    COMPACTION = "compaction"


@dataclass(frozen=True, slots=True)
class Change:
    """Replace `current[start:stop]` by `messages`, and the list is what the client sent."""

    kind: ChangeKind
    start: int
    stop: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """A response that was sampled in a conversation, as it is found again by its key."""

    session_id: str
    order: int
    """Rises with time, over all conversations of one caller."""


def key_of(message: Message) -> bytes:
    """What a message is recognised by, whatever a client added to it or left out of it as null."""
    return canonical(bare(message))


def bare(message: Message) -> dict[str, Any]:
    """The compared fields without nulls, at any depth. Text in one part is the same as text."""
    fields = {name: without_nulls(message[name]) for name in COMPARED if message.get(name) is not None}
    content = fields.get("content")
    if isinstance(content, list) and all(isinstance(part, dict) and part.keys() == {"type", "text"} for part in content):
        fields["content"] = "".join(part["text"] for part in content)
    if fields.get("content") == "" and fields.get("tool_calls"):
        del fields["content"]  # some clients write "", some null, beside a tool call
    if isinstance(fields.get("tool_calls"), list):
        fields["tool_calls"] = [bare_call(call) for call in fields["tool_calls"]]
        if not fields["tool_calls"]:
            del fields["tool_calls"]
    return fields


def bare_call(call: Any) -> Any:
    """A tool call without the index that streams number it by."""
    return {name: value for name, value in call.items() if name != "index"} if isinstance(call, dict) else call


def without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(inner) for inner in value]
    return value


def home_of(request: Sequence[Message], known: Mapping[bytes, Sequence[Known]]) -> str | None:
    """Return the conversation that a request belongs to; None for a new one.

    Worked example: sampled were A1 in chat a, B1 in chat b, A2 in chat a, in that order. A request that echoes A1 and A2 is chat a's. One
    that echoes B1 and, further on, A1 (an agent that quotes a subagent's answer as its own) is a's or b's by which is newer: b's."""
    found = [candidate for message in request if message.get("role") == "assistant" for candidate in known.get(key_of(message), ())]
    return max(found, key=lambda candidate: candidate.order).session_id if found else None


def change_between(current: Sequence[Message], wanted: Sequence[Message]) -> Change:
    """Return what turns the list as it is into the list as the client sent it: one splice, as small as equal ends allow."""
    ours, theirs = [key_of(message) for message in current], [key_of(message) for message in wanted]
    shorter = min(len(ours), len(theirs))
    start = next((at for at in range(shorter) if ours[at] != theirs[at]), shorter)
    if start == len(ours):
        kind = ChangeKind.NOTHING if start == len(theirs) else ChangeKind.EXTENDED
        return Change(kind, start, start, tuple(wanted[start:]))
    shared = next((back for back in range(shorter - start) if ours[-1 - back] != theirs[-1 - back]), shorter - start)
    stop, end = len(ours) - shared, len(theirs) - shared
    kind = ChangeKind.COMPACTION if stop - start > end - start and end > start else ChangeKind.EDIT
    return Change(kind, start, stop, tuple(wanted[start:end]))
