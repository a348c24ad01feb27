"""Nodes: frozen messages, identified by their content and by the context they stand in.

    node.digest   = H(canonical bytes of the message)
    context id    = H(parent's context id, node.digest); the root's parent is H(the conversation's seed)

So equal prefixes of one conversation have equal ids, and a reader who does not know the seed cannot test guesses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import count
from operator import is_
from typing import Any, Self

from hermes.graph.message import METADATA, FrozenDict, FrozenList, canonical_message, digest, thaw

REDACTED = "[redacted]"


class AttachedChat(FrozenList):
    """The chat that produced a message, as it was when it was attached: `message["metadata"]["chat"]`.

    Reads and serialises as the list of its messages; `.graph` is a copy of the whole graph, to read or to continue."""

    __slots__ = ("_ids", "_open", "history", "origin", "origins")

    def __init__(self, history: Any, open_graph: Callable[[Any], Any], origin: int | None = None) -> None:
        super().__init__(history.nodes)
        self.history = history
        """The state behind it; read it, never edit it."""
        inner = (node.chat for node in history.all_nodes())
        self.origin = origin or new_origin()
        self.origins = frozenset((self.origin,)).union(*(chat.origins for chat in inner if chat is not None))
        """The origins of this graph and of all chats attached to it, so that the graph can refuse a chat that contains itself."""
        self._open = open_graph
        self._ids: frozenset[str] | None = None

    @property
    def graph(self) -> Any:
        """A copy of the graph with all its versions and responses."""
        return self._open(self.history.copy())

    def __repr__(self) -> str:
        return f"<chat of {len(self)} messages>"

    def __copy__(self) -> AttachedChat:  # a snapshot: nothing in it can change
        return self

    def __deepcopy__(self, _: object) -> AttachedChat:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return list, ([thaw(node) for node in self],)

    def with_history(self, history: Any) -> AttachedChat:
        """Return the same chat with another state behind it."""
        return AttachedChat(history, self._open, self.origin)

    @property
    def response_ids(self) -> frozenset[str]:
        """The ids of every response that would be lost with this chat, including those of chats attached to it."""
        if self._ids is None:
            self._ids = frozenset(response.id for response in self._open(self.history).responses())
        return self._ids


def new_origin() -> int:
    """Return a number that tells one graph object of this process from another."""
    return next(_origins)


_origins = count(1)


class Node(FrozenDict):
    """One message as the graph keeps it. Never changes; each slot of a list has a node object of its own."""

    __slots__ = ("_digest",)

    _digest: bytes
    redacted = False

    @property
    def digest(self) -> bytes:
        try:
            return self._digest
        except AttributeError:
            self._digest = known = sha256(canonical_message(self)).digest()
            return known

    @classmethod
    def digested(cls, fields: Mapping[str, Any]) -> Self:
        """Return the node of a message whose fields are frozen, with its digest: a reader of documents needs that of every node."""
        node = cls(fields)
        node._digest = sha256(canonical_message(fields)).digest()
        return node

    def twin(self) -> Self:
        """Return another node object with the same content, for another slot."""
        twin = type(self)(self)
        twin._digest = self.digest
        return twin

    @property
    def chat(self) -> AttachedChat | None:
        """The chat attached to this message, if any."""
        metadata = self.get(METADATA)
        chat = metadata.get("chat") if metadata else None
        return chat if isinstance(chat, AttachedChat) else None


class Tombstone(Node):
    """A node whose content was erased. It keeps its place and its digest, so every id that was built on it stays valid."""

    __slots__ = ()
    redacted = True

    @classmethod
    def of(cls, role: str, digest: bytes, chat: AttachedChat | None = None) -> Tombstone:
        metadata = {} if chat is None else {METADATA: FrozenDict(chat=chat, length=len(chat))}
        tombstone = cls(role=role, content=REDACTED, **metadata)
        tombstone._digest = digest
        return tombstone


def attached_chats(nodes: Iterable[Node]) -> list[AttachedChat]:
    """Return every chat attached to these nodes, to any depth, each once and after those attached inside it."""
    order: list[AttachedChat] = []
    done: set[int] = set()
    stack = [(node.chat, False) for node in nodes if METADATA in node]
    stack.reverse()
    while stack:
        chat, is_expanded = stack.pop()
        if chat is None or id(chat.history) in done:
            continue
        if is_expanded:
            done.add(id(chat.history))
            order.append(chat)
        else:
            stack.append((chat, True))
            stack += [(node.chat, False) for node in reversed(list(chat.history.all_nodes())) if METADATA in node]
    return order


def is_same_content(one: Node, other: Node) -> bool:
    """Whether two nodes have equal content: all fields but `metadata`."""
    return one is other or one.digest == other.digest


def common_prefix(one: Sequence[Node], other: Sequence[Node], start: int = 0) -> int:
    """Return how many leading nodes are the same, given that the first `start` are."""
    end = min(len(one), len(other))
    while start < end:
        stop = min(start + _COMPARED_AT_ONCE, end)
        # Versions share node objects for most of their length: those are compared at the speed of C.
        if not all(map(is_, one[start:stop], other[start:stop])):
            while start < stop and is_same_content(one[start], other[start]):
                start += 1
            if start < stop:
                return start
        start = stop
    return start


_COMPARED_AT_ONCE = 256


def root_id(seed: str) -> bytes:
    """Return the id of a conversation's empty context."""
    return digest(b"hermes.root\0" + seed.encode("utf-8", "surrogatepass"))


def extend_ids(ids: list[bytes], nodes: Sequence[Node], length: int) -> None:
    """Continue the chain of context ids until `ids[length]` is the id of the first `length` nodes."""
    last = ids[-1]
    for node in nodes[len(ids) - 1 : length]:
        last = sha256(b"hermes.node\0" + last + node.digest).digest()
        ids.append(last)
