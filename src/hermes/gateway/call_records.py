"""What a call leaves behind: its row, its answer in a message graph, its money in the counters.

The row comes first: `calls` is the truth from which budgets and money can be counted again. All of it is written to the end, although the
caller is cancelled meanwhile: what was paid is written down. Knows nothing of models and chains."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

import structlog

from hermes.gateway.agent_caps import AgentCaps
from hermes.gateway.refused_calls import RefusedCalls
from hermes.ports.backends import Completion, Unauthorized
from hermes.ports.credits import BudgetHold, Budgets, GlobalSpend
from hermes.ports.errors import StoreUnavailable, UserErased
from hermes.ports.models import Answer, AnswerKeeper, CallMeter, ModelCall, ModelCalls
from hermes.ports.runtime import Alerts, Transactions

log = structlog.get_logger()
T = TypeVar("T")

CallRecorder = Callable[[ModelCall, Completion], Awaitable[UUID | None]]
"""Writes a call's row and its answer together, and returns the answer's session. A caller passes one to get answers into a message graph.

It also gets the part of an answer that came before a stream broke off: its finish reason is `cut_short` or `cancelled`."""

RecordPlace = Callable[[Completion], Awaitable[UUID | None]]
"""Says in which session an answer will be recorded, if that is known before. Then the caller gets the answer at once, and does not wait for
the record. Never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecords:
    """Writes and counts the calls of one gateway, and holds the tasks that do it."""

    calls: ModelCalls
    transactions: Transactions
    alerts: Alerts
    meter: CallMeter
    budgets: Budgets
    spend: GlobalSpend
    agent_caps: AgentCaps | None
    _refused: RefusedCalls = field(default_factory=RefusedCalls, init=False, repr=False)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set, init=False, repr=False)
    _owed: dict[asyncio.Task[Any], ModelCall] = field(default_factory=dict, init=False, repr=False)
    """The tasks that write and count calls whose callers have their answers."""

    async def write(
        self, hold: BudgetHold, call: ModelCall, completion: Completion | None = None, recorder: CallRecorder | None = None
    ) -> UUID | None:
        """Write a call down and count it; return its session."""
        return await asyncio.shield(self.start(self._write_and_count(hold, call, completion, recorder)))

    async def write_later(
        self, hold: BudgetHold, call: ModelCall, completion: Completion, recorder: CallRecorder | None, place: RecordPlace
    ) -> UUID | None:
        """As `write`, but return the session as soon as it is known, so that the answer leaves before its record is written."""
        told: asyncio.Future[UUID | None] = asyncio.get_running_loop().create_future()

        async def place_and_write() -> None:
            session_id = None
            try:
                try:
                    session_id = await place(completion)
                except Exception:  # any fault of the place: the answer is recorded first, as without one
                    log.exception("answer_not_placed", call_id=str(call.id))
                if session_id is not None:
                    resolve(told, session_id)
                    await asyncio.sleep(0)  # the answer first
                session_id = await self._write_and_count(hold, call, completion, recorder)
            finally:
                resolve(told, session_id)

        self._owe(self.start(place_and_write()), call)
        return await told

    async def wait_counted(self, user_id: UUID | None, api_key_id: UUID | None) -> bool:
        """Wait until the counters have all calls of a user and a key whose callers have their answers; False if there is none."""
        has_any = False
        for _ in range(2):  # the counting follows the writing
            found = [task for task, call in self._owed.items() if call.user_id == user_id or (api_key_id and call.api_key_id == api_key_id)]
            if found:
                has_any = True
                await asyncio.wait(found)
        return has_any

    def _owe(self, task: asyncio.Task[Any], call: ModelCall) -> None:
        self._owed[task] = call
        task.add_done_callback(lambda task: self._owed.pop(task, None))

    def keeping(self, keep: AnswerKeeper, answer: Answer) -> CallRecorder:
        """The recorder that has `keep` write the call's row with what else it writes, or writes the row alone if `keep` does not."""

        async def record(call: ModelCall, _: Completion) -> UUID | None:
            if not await keep(call, answer):
                async with self.transactions.once() as tx:
                    await self.calls.add(tx, call)
            return call.session_id

        return record

    def refuse(self, call: ModelCall) -> None:
        """Count a call for which no backend was asked, and write its row later. Neither waits nor raises."""
        self.meter.count(call)
        if self._refused.add(call):
            self.start(self._refused.write(self.calls, self.transactions))

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task and hold a reference to it until it has ended: the event loop alone does not."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait_settled(self) -> None:
        """Wait until everything that was paid is written down and counted."""
        while self._tasks:
            self._refused.write_now()  # again and again: a call that is refused meanwhile would be written a minute later
            done, _ = await asyncio.wait(self._tasks, timeout=1.0)
            await asyncio.gather(*done, return_exceptions=True)

    async def _write_and_count(
        self, hold: BudgetHold, call: ModelCall, completion: Completion | None, recorder: CallRecorder | None
    ) -> UUID | None:
        for attempt in call.attempts:
            if attempt.outcome == Unauthorized.__name__:  # a wrong key or an unpaid bill: neither mends itself
                self.alerts.alert("backend_refused_us", backend=attempt.backend, model=attempt.model, status=attempt.status)
        session_id = await self._write(call, completion, recorder)
        self.meter.count(call)
        # The caller does not wait for the counters: until they have the call, its reservation counts, which is more.
        self._owe(self.start(self._count(hold, call)), call)
        return session_id

    async def _write(self, call: ModelCall, completion: Completion | None, recorder: CallRecorder | None) -> UUID | None:
        """Write the call's row and the answer together. If that fails the caller still gets the answer, and an alert tells the operator."""
        try:
            if completion is not None and recorder is not None:
                try:
                    return await recorder(call, completion)
                except StoreUnavailable:
                    raise
                except UserErased:
                    log.info("sample_of_erased_user", call_id=str(call.id))  # its row stays: it has no words
                except Exception:
                    # Any fault of the record: the caller still gets the answer. Raise an alert, and write the call's row alone.
                    log.exception("sample_not_recorded", call_id=str(call.id))
                    self.alerts.alert("sample_not_recorded", call_id=str(call.id))
            async with self.transactions.once() as tx:
                await self.calls.add(tx, call)
        except StoreUnavailable:
            # The counters still have the cost, until they are lost.
            self.alerts.alert("call_not_recorded", call_id=str(call.id), micro_usd=call.micro_usd)
        return call.session_id

    async def _count(self, hold: BudgetHold, call: ModelCall) -> None:
        # A task of its own: if the budget raises, `wait_settled` still waits until the money is counted.
        adding = self.start(self.spend.add(call.micro_usd, day=hold.day, call_id=hold.id))
        if self.agent_caps is not None and call.agent is not None and call.micro_usd:
            self.start(self.agent_caps.add(call.agent, call.micro_usd, day=hold.day, call_id=hold.id))
        await self.budgets.settle(hold, tokens=call.tokens, micro_usd=call.micro_usd)
        await adding


def resolve(told: asyncio.Future[T], value: T) -> None:
    if not told.done():  # its caller may have been cancelled
        told.set_result(value)
