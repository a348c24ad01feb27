"""How a chat is recognised, and what the client changed in it. For clients that send the whole chat with each request.

A client of the OpenAI endpoint sends messages and no name for the chat. Hermes recognises the chat by its own answers in them: a request
joins a chat only through a response that was sampled in it. A difference around that response is an edit, or a compaction if the client
made the chat shorter. A request without any response of ours is a new chat, however similar it looks.

Pure: messages in, decisions out. Knows no store and no API key; its caller decides which chats a client may see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any

from hermes.graph import edit
from hermes.graph.message import REASONING, canonical
from hermes.ports.sessions import ChatFingerprint

ChatMessage = Mapping[str, Any]

COMPARED_FIELDS = {
    "system": ("content", "name"),
    "user": ("content", "name"),
    "assistant": ("content", "tool_calls", "name", "refusal"),
    "tool": ("content", "tool_call_id"),
}
"""Two messages of a role are the same if these fields are: they are all that a model is sent. Clients that send a message back add nulls
and fields of their own."""


class ChatChangeKind(StrEnum):
    """What a client changed in the chat since its last request. The last two are kinds of edges in the graph."""

    NOTHING = "nothing"
    EXTENDED = "extended"
    EDIT = edit.EDIT
    COMPACTION = edit.COMPACTION


@dataclass(frozen=True, slots=True)
class ChatChange:
    """Replace `current[start:stop]` by `messages`, append `tail`, and the list is what the client sent."""

    kind: ChatChangeKind
    start: int
    stop: int
    messages: tuple[ChatMessage, ...] = ()
    tail: tuple[ChatMessage, ...] = ()


def clean_message(message: ChatMessage) -> dict[str, Any]:
    """A client's message as Hermes sends it on and records it: the fields of its role without nulls, and its reasoning."""
    fields = role_fields(message)
    if fields["role"] == "assistant":
        reasoning = next((message[name] for name in REASONING if isinstance(message.get(name), str) and message[name]), None)
        if reasoning is not None:
            fields["reasoning"] = reasoning
    return fields


def message_key(message: ChatMessage) -> bytes:
    """The bytes by which a message is recognised, whatever fields the client added or nulls it left out."""
    return canonical(role_fields(message))


def role_fields(message: ChatMessage) -> dict[str, Any]:
    """The fields of a message's role without nulls, at any depth. One text part equals plain text; `developer` equals `system`."""
    role = "system" if message["role"] == "developer" else message["role"]
    fields = {name: without_nulls(message[name]) for name in COMPARED_FIELDS[role] if message.get(name) is not None}
    content = fields.get("content")
    if isinstance(content, list) and len(content) == 1 and is_plain_text(content[0]):
        fields["content"] = content[0]["text"]
    if fields.get("content") == "" and fields.get("tool_calls"):
        del fields["content"]  # some clients write "", some null, beside a tool call
    if isinstance(fields.get("tool_calls"), list):
        fields["tool_calls"] = [call_without_index(call) for call in fields["tool_calls"]]
        if not fields["tool_calls"]:
            del fields["tool_calls"]
    return {"role": role, **fields}


def is_plain_text(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str)


def call_without_index(call: Any) -> Any:
    """A tool call without its index, which only streams need."""
    return {name: value for name, value in call.items() if name != "index"} if isinstance(call, dict) else call


def without_nulls(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(inner) for inner in value]
    return value


class ChatFingerprinter:
    """Takes a fingerprint of a list after each assistant message with content: there a chat may be recognised.

    An empty message recognises nothing: two chats that each hold an empty answer have nothing in common."""

    def __init__(self, messages: Iterable[ChatMessage] = ()) -> None:
        self._shown, self._whole = sha256(), sha256()
        self._length = 0
        self.fingerprints: list[ChatFingerprint] = []
        for message in messages:
            self._add(message)

    def fingerprint_after(self, message: ChatMessage) -> ChatFingerprint | None:
        """The fingerprint of the list with this message at its end; None for an empty message. The list itself stays as it is."""
        if not has_content(message):
            return None
        longer = ChatFingerprinter()
        longer._shown, longer._whole, longer._length = self._shown.copy(), self._whole.copy(), self._length
        longer._add(message)
        return longer.fingerprints[0]

    def _add(self, message: ChatMessage) -> None:
        key = message_key(message)
        full = canonical(message) if "reasoning" in message else key
        self._shown.update(len(key).to_bytes(8, "big") + key)
        self._whole.update(len(full).to_bytes(8, "big") + full)
        self._length += 1
        if message["role"] == "assistant" and has_content(message):
            self.fingerprints.append(ChatFingerprint(self._length, self._shown.digest(), self._whole.digest(), sha256(key).digest()))


def has_content(message: ChatMessage) -> bool:
    return bool(message.get("content") or message.get("tool_calls") or message.get("refusal"))


def change_between(
    current: Sequence[ChatMessage], sent: Sequence[ChatMessage], key: Callable[[ChatMessage], bytes] = message_key
) -> ChatChange:
    """Return the change from the current list to the list that the client sent: one splice, and the new messages after it.

    Worked example, `[S U1 A1 U2 A2]` is the list: `[S (summary) A2 U3]` is a compaction of 1 to 4 with the tail `U3`;
    `[S U1' A1 U2 A2 U3]` is an edit of 1 with the same tail; `[S U1]` removes everything from 2 on, which is an edit."""
    ours, theirs = [key(message) for message in current], [key(message) for message in sent]
    known = set(ours)
    core = len(theirs)  # where the client's new messages begin
    while core and theirs[core - 1] not in known:
        core -= 1
    shorter = min(len(ours), len(theirs))
    start = next((at for at in range(shorter) if ours[at] != theirs[at]), shorter)
    if start == len(ours):
        return ChatChange(
            ChatChangeKind.NOTHING if start == len(theirs) else ChatChangeKind.EXTENDED, start, start, tail=tuple(sent[start:])
        )
    core = max(core, start)
    longest = min(len(ours), core) - start
    shared = next((back for back in range(longest) if ours[-1 - back] != theirs[core - 1 - back]), longest)
    stop, end = len(ours) - shared, core - shared
    if not shared:  # the end of our list is gone: the new messages stand in its place
        last = len(ours) - next((back for back, one in enumerate(reversed(ours)) if core and one == theirs[core - 1]), len(ours))
        is_shorter = core > start and last - start > core - start
        return ChatChange(ChatChangeKind.COMPACTION if is_shorter else ChatChangeKind.EDIT, start, len(ours), tuple(sent[start:]))
    kind = ChatChangeKind.COMPACTION if stop - start > end - start else ChatChangeKind.EDIT
    return ChatChange(kind, start, stop, tuple(sent[start:end]), tuple(sent[core:]))
