"""What a client changed in a chat since its last request. Pure: two lists of messages in, one change out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hermes.gateway.chat_request import message_key
from hermes.graph import edit
from hermes.ports.backends import ChatMessage


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
