"""Drives the turns that were asked for in this process, and no others.

No job is deferred for them: whoever runs a worker on the same stores has settings of their own, and models that they pay for. What is left
behind here is not lost: a message without a job is found by the next worker's sweep, and what was not learnt in time is handed over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import UUID

import structlog

from hermes.app import Hermes
from hermes.ports.errors import ClaimLost, StoreUnavailable
from hermes.ports.inbox import AcceptedMessage, Claim
from hermes.ports.transactions import Transaction
from hermes.router.intake import Intake
from hermes.router.turns import TurnRunner
from hermes.tasks import end_tasks, stop_if_cancelled

log = structlog.get_logger()

RETRY_WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Between the tries to drive a turn, which counts them itself and ends with an apology; the last one again and again."""
MAX_MEMORY_TRIES = 3


@dataclass(slots=True)
class LocalTurns:
    """Turns under way in this process: one at a time in each conversation, in the order in which they were asked."""

    hermes: Hermes
    turns: dict[UUID, asyncio.Task[None]] = field(default_factory=dict)
    """The last one of each conversation; it waits for the one before it."""
    learning: asyncio.Task[None] | None = None
    """What is learnt from the newest turn that has ended, after all that is learnt from those before it."""
    unlearnt: dict[UUID, UUID] = field(default_factory=dict)
    """Turns that have ended in an answer and whose message was not learnt from yet, each with its user."""
    preparing: asyncio.Task[None] | None = None

    @property
    def intake(self) -> Intake:
        """Takes messages in without giving them to a worker."""
        return replace(self.hermes.intake, work=NoDeferredWork())

    def start(self, receipt: AcceptedMessage) -> None:
        """Drive a turn, behind those of its conversation. It goes on whoever stops waiting for its answer."""
        before = self.turns.get(receipt.conversation_id)
        self.turns[receipt.conversation_id] = asyncio.create_task(self._drive(receipt.turn_id, before))

    async def drain(self, timeout_s: float) -> None:
        """Let what is under way come to its end, for so long; then leave it to whoever runs a worker."""
        until = time.monotonic() + timeout_s
        await end_tasks_by(until, [*self.turns.values(), self.preparing])
        await end_tasks_by(until, [self.learning])
        if self.unlearnt:
            with suppress(StoreUnavailable):
                async with self.hermes.database.begin() as tx:
                    for turn_id, user_id in self.unlearnt.items():
                        await self.hermes.work.defer_memory(tx, turn_id, user_id)

    async def _drive(self, turn_id: UUID, before: asyncio.Task[None] | None) -> None:
        await wait_for_task(before)
        if self.preparing is None:
            # What a worker has at hand before its first message.
            self.preparing = asyncio.create_task(self.hermes.prepare())
        await wait_for_task(self.preparing)
        turns = self._own_turns()
        await retry_until_done(lambda: turns.run(turn_id), "turn", turn_id)
        if turn_id in self.unlearnt:
            self.learning = asyncio.create_task(self._learn(turn_id, self.learning))

    async def _learn(self, turn_id: UUID, before: asyncio.Task[None] | None) -> None:
        await wait_for_task(before)
        await retry_until_done(lambda: self.hermes.memory(turn_id), "memory", turn_id, max_tries=MAX_MEMORY_TRIES)
        del self.unlearnt[turn_id]

    def _own_turns(self) -> TurnRunner:
        """Turns as a worker drives them, but for what is learnt from them: that is done here too."""

        async def learn(_: Transaction, claim: Claim) -> None:
            self.unlearnt[claim.turn_id] = claim.user_id

        turns = self.hermes.turns
        return replace(turns, services=replace(turns.services, learn=learn))


class NoDeferredWork:
    """The port Work, for messages that are answered where they were taken in: nobody else is given anything to do."""

    async def defer_turn(self, tx: Transaction, turn_id: UUID, conversation_id: UUID, *, in_s: float = 0.0) -> None:
        pass

    async def defer_delivery(self, tx: Transaction, conversation_id: UUID, *, in_s: float = 0.0) -> None:
        pass

    async def defer_news(self, tx: Transaction, conversation_id: UUID) -> None:
        pass

    async def defer_memory(self, tx: Transaction, turn_id: UUID, user_id: UUID) -> None:
        pass


async def retry_until_done(work: Callable[[], Awaitable[None]], name: str, turn_id: UUID, *, max_tries: int | None = None) -> None:
    """Do something until it succeeds, or was tried often enough."""
    tries = 0
    while max_tries is None or tries < max_tries:
        try:
            await work()
        except ClaimLost:
            return  # a worker has taken it over, and its answer is as good
        except Exception as error:  # noqa: BLE001  # the worker loop: noted once, and tried again
            log.warning("job_failed", task=name, id=str(turn_id), tries=tries + 1, error=type(error).__name__)
        else:
            return
        stop_if_cancelled()
        await asyncio.sleep(RETRY_WAITS_S[min(tries, len(RETRY_WAITS_S) - 1)])
        tries += 1


async def wait_for_task(task: asyncio.Task[None] | None) -> None:
    """Wait until something has ended, however it did. Whoever is cancelled in here cancels that too: a chain is known by its last link."""
    if task is None:
        return
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        await end_tasks(task)
        raise


async def end_tasks_by(until: float, tasks: list[asyncio.Task[None] | None]) -> None:
    """Wait for tasks until then; cancel what has not ended."""
    under_way = [task for task in tasks if task is not None]
    if not under_way:
        return
    _, late = await asyncio.wait(under_way, timeout=max(0.0, until - time.monotonic()))
    await end_tasks(*late)
