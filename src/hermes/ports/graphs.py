"""Stored message graphs: what each model was shown, sealed, each message once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self
from uuid import UUID

from hermes.graph import CallRecord, MessageGraph
from hermes.graph.context import KeepReasoning
from hermes.graph.response import sent_id
from hermes.graph.stored_graph import history_of
from hermes.ports.transactions import Transaction


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """One message to append. With `is_sampled`, a model sampled it in exactly the context before it."""

    message: Mapping[str, Any]
    is_sampled: bool = False
    call: CallRecord | None = None
    """How it was sampled; implies `is_sampled`."""
    sample_id: str | None = None
    """The journal's key for the sample; the same id twice is the same sample. Implies `is_sampled`, and becomes the call's `sample_id`."""
    keep_reasoning: KeepReasoning = "none"
    """Which earlier reasoning the model was shown when it sampled this."""
    ephemeral: str | None = None
    """The text that the model was shown beside the list when it sampled this: the soul. Makes no version."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The state of a list after messages were appended."""

    head: str
    nodes: tuple[str, ...] = ()
    """The ids of the messages that were appended, in their order; the last one is the head."""
    contexts: tuple[str, ...] = ()
    """For each sample among them, in their order, the id of the context in which it was sampled: exactly what was sent."""

    @classmethod
    def to(cls, graph: MessageGraph, count: int) -> Self:
        """Return the result after the last `count` messages of a graph were appended."""
        history, before = history_of(graph), len(graph) - count
        place = history.place_of(history.live)
        nodes = tuple(history.id_of(place, at).hex() for at in range(before + 1, len(graph) + 1))
        slots = sorted((at, samples[-1]) for at, samples in history.slots().items() if at >= before)
        return cls(graph.head, nodes, tuple(sent_id(history.id_of(place, at), sample.overlay) for at, sample in slots))


class Graphs(Protocol):
    """The message graphs of sessions. Fails closed. A graph comes back as it was: versions, responses, annotations, ids."""

    async def append(self, tx: Transaction, session_id: UUID, head: str, entries: Sequence[GraphEntry]) -> AppendResult:
        """Append to the current list and return its new state. The cost depends on what is appended, not on the length of the list.

        Works as MessageGraph.append does, entry by entry; so a sample that the list ends with already is not appended again. Raises
        StaleHead if `head` is not the stored list's head any more, NotFound, UserErased, and SampleConflict if a sample id is known with
        other content; then nothing is written."""
        ...

    async def compact(self, tx: Transaction, session_id: UUID, head: str, count: int, entries: Sequence[GraphEntry]) -> AppendResult:
        """Remove the first `count` messages from the list, as a compaction, then append, and return the new state. Raises as `append` does.

        Responses that were sampled with those messages keep their context in a version of their own."""
        ...

    async def load(self, tx: Transaction, session_id: UUID) -> MessageGraph:
        """Return the whole graph. Raises NotFound, UserErased if its key is gone, and DataDamaged."""
        ...

    async def save(self, tx: Transaction, session_id: UUID, head: str, graph: MessageGraph) -> str:
        """Store all changes of a graph that was loaded when the stored head was `head`: edits, versions, samples, annotations, erasures.

        Return the new head; the same graph can then be changed and saved again. Writes what changed, each message once; content that no
        version has any more is removed. Raises StaleHead if the graph was written in between, even if the head is the same again; then
        nothing is written. A graph whose transaction rolled back is stale too: load it again. Raises ValueError for a graph that was
        not loaded from this session: a copy of a loaded graph can be saved, a graph read from JSON cannot."""
        ...
