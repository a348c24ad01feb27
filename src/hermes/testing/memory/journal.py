"""The journal of turns in memory, and how each turn went."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hermes.ports.errors import NotFound
from hermes.ports.events import EFFECT_NAMES
from hermes.ports.inbox import Claim, ClaimedTurn
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import Effect, EffectProgress, EmptiedBatch, JournalEvent, JournalNote
from hermes.ports.timeline import TurnTimeline, build_timeline
from hermes.testing.memory.messages import MemoryInbox


@dataclass(slots=True)
class MemoryJournal:
    """The port Journal. A turn without a message in the inbox counts as known."""

    requests: dict[tuple[UUID, str, int], bytes] = field(default_factory=dict)
    results: dict[tuple[UUID, str, int], bytes] = field(default_factory=dict)
    notes: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """What was noted in all turns; an effect when it has ended."""
    inbox: MemoryInbox = field(default_factory=MemoryInbox)
    """Tells whether a claim still stands, and holds the events by turn; an effect stands there where it began."""

    async def begin(self, tx: Transaction, claim: Claim, step: str, index: int, request: bytes) -> Effect:
        place = (claim.turn_id, step, index)
        if place not in self.results:
            await self.inbox.hold(tx, claim)
        known = self._effect(place)
        if known is not None:
            if known.progress is EffectProgress.STARTED:
                self._change(
                    claim.turn_id, lambda event: retake_effect(event, claim) if (event.step, event.index) == (step, index) else event
                )
            return known
        self.requests[place] = request
        now, type_ = datetime.now(UTC), EFFECT_NAMES.get(step, "effect")
        self._add(claim.turn_id, JournalEvent(step, index, type_, claim.attempt, now, None, {}, claim.epoch, has_content=True))
        return Effect(EffectProgress.NEW, request, None)

    async def finish(self, _: Transaction, claim: Claim, step: str, index: int, result: bytes, *, facts: Mapping[str, Any]) -> bytes:
        place = (claim.turn_id, step, index)
        if place not in self.requests:
            raise NotFound(f"{step}[{index}] was never begun")
        if place not in self.results:
            self.results[place] = result
            self.notes.append((step, facts))
            self._change(
                claim.turn_id, lambda event: finish_effect(event, claim, facts) if (event.step, event.index) == (step, index) else event
            )
        return self.results[place]

    async def has_result(self, _: Transaction, claim: Claim, step: str, index: int) -> bool:
        return (claim.turn_id, step, index) in self.results

    async def note(self, _: Transaction, claim: Claim, notes: Sequence[JournalNote]) -> None:
        for note in notes:
            self._note(claim.turn_id, note, claim.attempt, claim.epoch)

    async def note_failed(self, _: Transaction, claim: ClaimedTurn, notes: Sequence[JournalNote]) -> None:
        if self.inbox.epochs.get(claim.conversation_id, 0) <= claim.epoch and not self.inbox.has_ended(claim.turn_id):
            for note in notes:
                self._note(claim.turn_id, note, claim.attempt, claim.epoch)

    async def add(self, _: Transaction, turn_id: UUID, type_: str, facts: Mapping[str, Any]) -> None:
        self._note(turn_id, JournalNote(type_, facts), self.inbox.attempts.get(turn_id, 1), None)

    async def effect(self, _: Transaction, turn_id: UUID, step: str, index: int) -> Effect | None:
        return None if self.inbox.is_sender_erased(turn_id) else self._effect((turn_id, step, index))

    async def read(self, _: Transaction, turn_id: UUID) -> Sequence[JournalEvent]:
        return list(self.inbox.events.get(turn_id, ()))

    async def empty(self, _: Transaction, *, ended_before: datetime, after_id: int, limit: int) -> EmptiedBatch:
        """Counts turns instead of entries: they are in the order of their beginning here."""
        turns = list(self.inbox.events)[after_id : after_id + limit]
        old = [turn_id for turn_id in turns if (ended_at := self.inbox.ended_at.get(turn_id)) is not None and ended_at < ended_before]
        emptied = [place for place in self.requests if place[0] in old]
        for place in emptied:
            del self.requests[place]
            self.results.pop(place, None)
        for turn_id in old:
            self._change(turn_id, lambda event: replace(event, has_content=False))
        return EmptiedBatch(after_id + len(turns), len(emptied), has_more=len(turns) == limit)

    def _effect(self, place: tuple[UUID, str, int]) -> Effect | None:
        is_noted = any((event.step, event.index) == place[1:] for event in self.inbox.events.get(place[0], ()))
        if place not in self.requests or not is_noted:
            return None
        result = self.results.get(place)
        return Effect(EffectProgress.STARTED if result is None else EffectProgress.DONE, self.requests[place], result)

    def _note(self, turn_id: UUID, note: JournalNote, attempt: int, epoch: int | None) -> None:
        now, index = datetime.now(UTC), sum(event.step == note.type for event in self.inbox.events.get(turn_id, ()))
        began_at, ended_at = (now - timedelta(microseconds=ago) for ago in (note.began_ago_us, note.ended_ago_us))
        self.notes.append((note.type, note.facts))
        self._add(turn_id, JournalEvent(note.type, index, note.type, attempt, began_at, ended_at, note.facts, epoch))

    def _add(self, turn_id: UUID, event: JournalEvent) -> None:
        self.inbox.events.setdefault(turn_id, []).append(event)

    def _change(self, turn_id: UUID, change: Callable[[JournalEvent], JournalEvent]) -> None:
        self.inbox.events[turn_id] = [change(event) for event in self.inbox.events[turn_id]]


def retake_effect(event: JournalEvent, claim: Claim) -> JournalEvent:
    """The effect as the attempt that repeats it has it."""
    return replace(event, started_at=datetime.now(UTC), attempt=claim.attempt, epoch=claim.epoch)


def finish_effect(event: JournalEvent, claim: Claim, facts: Mapping[str, Any] | None) -> JournalEvent:
    """The effect as the attempt that finished it leaves it; unchanged without facts."""
    if facts is None:
        return event
    now = datetime.now(UTC)
    started_at = event.started_at if event.epoch == claim.epoch else now - timedelta(microseconds=facts.get("us", 0))
    return replace(event, started_at=started_at, done_at=now, facts=facts, attempt=claim.attempt, epoch=claim.epoch)


@dataclass(slots=True)
class MemoryTimelines:
    """The port TurnTimelines."""

    inbox: MemoryInbox

    async def read(self, _: Transaction, turn_id: UUID) -> TurnTimeline | None:
        run = self.inbox.runs.get(turn_id)
        if run is None:
            return None
        state = "dead" if turn_id in self.inbox.buried else "done" if self.inbox.has_ended(turn_id) else "running"
        return build_timeline(turn_id, replace(run, state=state), self.inbox.events.get(turn_id, ()))
