"""What a caller gets for one model call: a turn before the call, a response after it.

Both are read-only views; reading a property computes that property and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hermes.graph.call import CallRecord
from hermes.graph.context import Overlay
from hermes.graph.history import EMPTY_OVERLAY, GraphHistory, Sample
from hermes.graph.message import FrozenDict, digest
from hermes.graph.node import Node, Tombstone, extend_ids, root_id


@dataclass(frozen=True, slots=True)
class Turn:
    """A pinned context: exactly what will be sent, even if the list changes meanwhile. Made by `prepare`."""

    nodes: tuple[Node, ...] = field(repr=False)
    overlay: Overlay
    seed: str = field(repr=False)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages to send: without metadata, with reasoning and ephemeral text as the overlay says."""
        return self.overlay.render(self.nodes)

    @property
    def tools(self) -> Sequence[Any] | None:
        """The tool schemas to send."""
        return self.overlay.tools

    @property
    def context_id(self) -> str:
        """The id of this context: the messages of the list, and what the overlay adds to them, tools included."""
        ids = [root_id(self.seed)]
        extend_ids(ids, self.nodes, len(self.nodes))
        return sent_id(ids[-1], self.overlay)


def sent_id(context_id: bytes, overlay: Overlay) -> str:
    """Return the id of what was sent: the list's own id if the overlay is empty."""
    if overlay == EMPTY_OVERLAY:
        return context_id.hex()
    return digest(b"hermes.sent\0" + context_id + overlay.digest).hex()


class ResponseParts(NamedTuple):
    """What `Response.read` gives: the properties of the same names."""

    id: str
    sample_id: str
    message: Node
    overlay: Overlay
    call: CallRecord | None
    redacted: bool
    annotations: list[FrozenDict]


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """One sampled message, with exactly the context it was sampled in. Equal when the ids are equal."""

    _history: GraphHistory = field(repr=False)
    _at: int = field(repr=False)
    _notes: GraphHistory = field(repr=False)

    @property
    def _sample(self) -> Sample:
        """The sample as it is now: it changes when the sample moves to a kept version, and when its call is erased."""
        history = self._history
        return (history.samples if history.settled == len(history.samples) else history.settle())[self._at]  # type: ignore[return-value]

    @property
    def is_own(self) -> bool:
        """Whether the response lies on a version of the graph itself, not in a chat attached to one of its messages."""
        return self._notes is self._history

    def shares_list(self, other: Response) -> bool:
        """Whether both responses lie on one list: then the context of the one that comes first is a beginning of the other's."""
        return self._history is other._history and self._sample.head == other._sample.head

    def belongs_to(self, history: GraphHistory) -> bool:
        """Whether this response was read from that graph."""
        return self._notes is history

    @property
    def id(self) -> str:
        """The sample's id: a hash of its context, overlay, message, sample id and call."""
        with self._history.lock:
            return self._history.seal(self._sample)

    def read(self) -> ResponseParts:
        """Read all at once what single properties give: each of them takes the lock and finds the sample anew."""
        history = self._history
        with history.lock:
            sample = self._sample
            nodes = history.nodes_of(sample.head)
            is_redacted = Tombstone in map(type, nodes[: sample.index + 1])
            return ResponseParts(
                history.seal(sample), sample.sample_id, nodes[sample.index], sample.overlay, sample.call, is_redacted, self.annotations
            )

    @property
    def sample_id(self) -> str:
        return self._sample.sample_id

    @property
    def message(self) -> Node:
        """The sampled message, read-only."""
        with self._history.lock:
            return self._history.nodes_of(self._sample.head)[self._sample.index]

    @property
    def prefix(self) -> list[Node]:
        """The messages of the list before this one, as the list held them (with metadata and reasoning)."""
        with self._history.lock:
            return list(self._history.nodes_of(self._sample.head)[: self._sample.index])

    @property
    def context(self) -> list[dict[str, Any]]:
        """Exactly the messages that were sent."""
        return self._sample.overlay.render(self.prefix)

    @property
    def context_id(self) -> str:
        """The id of what was sent; equal to the turn's `context_id`."""
        with self._history.lock:
            place = self._history.place_of(self._sample.head)
            return sent_id(self._history.id_of(place, self._sample.index), self._sample.overlay)

    @property
    def overlay(self) -> Overlay:
        """What was sent beyond the list."""
        return self._sample.overlay

    @property
    def call(self) -> CallRecord | None:
        return self._sample.call

    @property
    def index(self) -> int:
        """The response's place in its list."""
        return self._sample.index

    @property
    def version(self) -> int:
        """The place in `versions` of a version that holds the response; in an attached chat, among that chat's versions."""
        with self._history.lock:
            return self._history.place_of(self._sample.head)

    @property
    def redacted(self) -> bool:
        """Whether the message or some of its context was erased."""
        with self._history.lock:
            sample = self._sample
            return Tombstone in map(type, self._history.nodes_of(sample.head)[: sample.index + 1])

    @property
    def annotations(self) -> list[FrozenDict]:
        """What was learned later about the response (rewards, reactions, times), oldest first."""
        if not self._notes.annotations and not self._history.annotations:
            return []
        own = [] if self._notes is self._history else self._history.annotations.get(self.id, [])
        return [*own, *self._notes.annotations.get(self.id, [])]

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Response) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Response({dict(self.message)!r}, index={self.index}, version={self.version})"
