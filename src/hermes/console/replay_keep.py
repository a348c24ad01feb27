"""Keep a replay as a sample: its answers go into the session's graph, on a branch at exactly the context in which they were sampled.

The current list stays as it is, so a live conversation notices nothing. From then on, and not before, exports have the answers. This is not
part of the dry run: only an owner does it, one replay at a time, and only where every user of the session allows training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from uuid import UUID

from hermes.console.replay_progress import ReplayProgress
from hermes.console.replay_record import ReplayPrompt
from hermes.graph import CallRecord, MessageGraph, Response, Turn
from hermes.graph.context import Overlay
from hermes.graph.node import Node
from hermes.ports.errors import PortError
from hermes.ports.replays import Replay, ReplayChange, ReplaySource
from hermes.ports.runtime import Transaction
from hermes.router.effects import JournaledAnswer
from hermes.router.steps.build_messages import SECOND_CALL_REASONING
from hermes.router.steps.run_tools import message_of

REPLAY_SOURCE = "replay"


class NotKept(PortError):
    """The replay cannot be a sample."""


class KeepingGraphs(Protocol):
    """The graphs of sessions, to be read and saved."""

    async def load(self, tx: Transaction, session_id: UUID) -> MessageGraph:
        """As `Graphs.load`."""
        ...

    async def save(self, tx: Transaction, session_id: UUID, head: str, graph: MessageGraph) -> str:
        """As `Graphs.save`."""
        ...


class Consents(Protocol):
    """Who allows training."""

    async def may_train(self, tx: Transaction, session_id: UUID) -> bool:
        """As `Sessions.may_train`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredReplay:
    """A replay with its content, opened."""

    replay: Replay
    source: ReplaySource
    recorded: ReplayPrompt
    change: ReplayChange
    progress: ReplayProgress

    @property
    def asked(self) -> ReplayPrompt:
        """The request that the replay asked."""
        return self.recorded.changed(self.change)

    def commit(self, graph: MessageGraph, context: Sequence[Node], overlay: Overlay, answer: JournaledAnswer) -> Response:
        """Record one of its answers in the graph, as sampled in this context."""
        record: CallRecord = answer.record(self.asked.tools)
        extra = {**(record.extra or {}), "source": REPLAY_SOURCE, "replay_id": str(self.replay.id)}
        call = replace(record, extra=extra, sampling=dict(self.asked.sampling) or None)
        return graph.commit(Turn(tuple(context), overlay, graph.seed), answer.message, call)


@dataclass(frozen=True, slots=True)
class ReplayKeeper:
    """Writes replays into graphs."""

    graphs: KeepingGraphs
    consents: Consents

    async def check(self, tx: Transaction, replay: Replay) -> None:
        """Raise NotKept if a user of the session does not allow training, or if there is nothing to keep."""
        if replay.state != "done" or replay.session_id is None:
            raise NotKept("only a replay that a model answered can be kept")
        if not await self.consents.may_train(tx, replay.session_id):
            raise NotKept("a user of this conversation does not allow training; `hermes users training` shows who does")

    async def keep(self, tx: Transaction, answered: AnsweredReplay) -> str:
        """Add the replay's answers to the graph; return the id of the last response. Doing it again changes nothing. Raises NotKept, and
        StaleHead if the conversation went on at that very moment."""
        replay, progress = answered.replay, answered.progress
        await self.check(tx, replay)
        if not progress.answers:
            raise NotKept("its answer is gone: it was emptied with the journal of its turn")
        assert replay.session_id is not None  # noqa: S101  # checked
        graph = await self.graphs.load(tx, replay.session_id)
        before = graph.head
        original = find_response(graph, answered.source)
        context, overlay = original.prefix, overlay_of(original, answered.asked, answered.recorded)
        kept = answered.commit(graph, context, overlay, progress.answers[0])
        if len(progress.answers) > 1:
            results = [message_of(tool.result) for tool in progress.tools if tool.result is not None]
            after = [*context, kept.message, *nodes_of(results)]
            kept = answered.commit(graph, after, replace(overlay, keep_reasoning=SECOND_CALL_REASONING), progress.answers[1])
        if graph.head != before:
            raise NotKept("the conversation stands at this very context; keep it after the next message")
        await self.graphs.save(tx, replay.session_id, before, graph)
        return kept.id


def find_response(graph: MessageGraph, source: ReplaySource) -> Response:
    """The response that was recorded in the context of the replay."""
    for response in graph.responses():
        if response.is_own and (
            response.sample_id == str(source.call_id) if source.turn_id is None else response.context_id == source.context_id
        ):
            if response.redacted:
                raise NotKept("a part of its context was erased")
            return response
    raise NotKept("the graph has no answer of this turn, so there is no place to keep another one")


def overlay_of(original: Response, asked: ReplayPrompt, recorded: ReplayPrompt) -> Overlay:
    """What the replay sent beside the list. For the completions API the system text is a message of the list, which a replay cannot
    replace there."""
    if asked.goes_on:
        return Overlay(asked.tools or None, system=asked.system or None)
    if asked.system != recorded.system:
        raise NotKept("the system text is a message of this chat; a replay with another one has no place in its graph")
    return replace(original.overlay, tools=asked.tools or None)


def nodes_of(messages: Sequence[Any]) -> Sequence[Node]:
    return MessageGraph(messages).prepare().nodes
