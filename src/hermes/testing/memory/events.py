"""The stream of events in memory, over the turns of a journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from hermes.ports.events import EventCursor, EventPage, EventSource, OperationsEvent
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import JournalEvent
from hermes.ports.users import DEFAULT_AGENT
from hermes.testing.memory.journal import MemoryJournal


@dataclass(slots=True)
class MemoryOperationsEvents:
    """The port OperationsEvents, over the turns of a journal. There is no fleet, and no transaction that could commit late."""

    journal: MemoryJournal
    numbers: dict[tuple[UUID, str, int], int] = field(default_factory=dict)

    async def read(self, _: Transaction, after: EventCursor, *, limit: int) -> EventPage:
        later = [event for event in self._events() if event.cursor > after]
        page = later[:limit]
        return EventPage(page, page[-1].cursor if page else after, is_last=len(later) <= limit)

    async def read_turn(
        self,
        _: Transaction,
        turn_id: UUID,
        after: EventCursor,
        *,
        only_settled: bool = False,  # noqa: ARG002  # here every event is
    ) -> Sequence[OperationsEvent]:
        return [event for event in self._events() if event.turn_id == turn_id and event.cursor > after]

    async def end(self, _: Transaction) -> EventCursor:
        return EventCursor(1, len(self._events()))

    def _events(self) -> list[OperationsEvent]:
        """The events that have ended, in the order in which a read first found them: a number never changes."""
        events = self.journal.inbox.events
        done = {(turn_id, event.step, event.index): event for turn_id, all_ in events.items() for event in all_ if event.done_at}
        for place in sorted(done.keys() - self.numbers.keys(), key=lambda place: done[place].done_at or datetime.max.replace(tzinfo=UTC)):
            self.numbers[place] = len(self.numbers) + 1
        return [self._event(number, place[0], done[place]) for place, number in self.numbers.items() if place in done]

    def _event(self, number: int, turn_id: UUID, event: JournalEvent) -> OperationsEvent:
        messages = self.journal.inbox.messages
        return OperationsEvent(
            cursor=EventCursor(1, number),
            source=EventSource.TURN,
            type=event.type,
            at=event.done_at or event.started_at,
            facts=event.facts,
            account=messages[turn_id].envelope.account if turn_id in messages else None,
            agent=DEFAULT_AGENT,
            turn_id=turn_id,
        )
