"""A Hermes in this process, for a chat in the terminal where none runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

import structlog

from hermes.app.catalogue import refuse_no_model
from hermes.app.root import Hermes, OpenTracer, open_hermes, open_no_tracer
from hermes.app.router import OpenTools
from hermes.cli.chat_clients import ANSWER_TIMEOUT_S, TERMINAL_ACCOUNT, ChatError, raise_no_answer
from hermes.config import Settings
from hermes.ports.errors import ClaimLost, PortError, StoreUnavailable
from hermes.ports.inbox import AcceptedMessage, Claim
from hermes.ports.processes import ProcessRole
from hermes.ports.runtime import Transaction
from hermes.ports.users import UserState
from hermes.router.intake import Intake
from hermes.router.turns import TurnRunner
from hermes.tasks import end_tasks, stop_if_cancelled
from hermes.turn import AgentResponse, Envelope, MessageEvent, Platform
from hermes.web.answers import TurnAnswers
from hermes.web.open_streams import OpenStreams

log = structlog.get_logger()


@dataclass(slots=True)
class LocalHermes:
    """The Hermes of this process. It answers only the messages of this chat; workers answer all others."""

    hermes: Hermes
    answers: TurnAnswers
    driving: LocalTurns
    name: str
    seen: int = 0
    """The id of the last proactive message that was shown."""

    async def ask(self, text: str, channel: str) -> AgentResponse:
        event = MessageEvent(platform=Platform.REST, sender_id=self.name, text=text)
        envelope = Envelope(event=event, account=TERMINAL_ACCOUNT, channel_id=channel, event_key=str(uuid4()))
        try:
            receipt = await self.driving.intake.accept(envelope, newcomer=UserState.ACTIVE)
            self.driving.start(receipt)
            response = await self.answers.wait(receipt.turn_id, ANSWER_TIMEOUT_S, self.name)
        except PortError as error:
            raise ChatError(str(error)) from None
        return response or raise_no_answer()

    async def why(self, response: AgentResponse) -> Mapping[str, Any]:
        try:
            async with self.hermes.database.begin() as tx:
                answer = await self.hermes.adapters.outbox.answer(tx, response.turn_id)
        except PortError as error:
            raise ChatError(str(error)) from None
        return dict(answer.meta) if answer else {}

    async def news(self, channel: str) -> Sequence[str]:
        try:
            async with self.hermes.database.begin() as tx:
                found = await self.hermes.adapters.outbox.proactive_messages(tx, TERMINAL_ACCOUNT, Platform.REST, channel, after=self.seen)
        except PortError:
            return ()  # the next call returns them
        self.seen = max([self.seen, *(each.id for each in found)])
        return [each.text for each in found]


@asynccontextmanager
async def open_local_hermes(
    settings: Settings, name: str, open_tools: OpenTools, open_tracer: OpenTracer = open_no_tracer
) -> AsyncIterator[LocalHermes]:
    """Open a Hermes in this process as long as the block lasts."""
    refuse_no_model(settings)
    async with (
        open_hermes(settings, open_tools=open_tools, open_tracer=open_tracer) as hermes,
        hermes.process.beating(ProcessRole.COMMAND),  # its turns name it as their worker
    ):
        parts = hermes.adapters
        answers = TurnAnswers(
            hermes.database,
            parts.inbox,
            parts.outbox,
            parts.replies,
            ping_s=ANSWER_TIMEOUT_S,
            closing=asyncio.Event(),
            streams=OpenStreams(per_source=1),
        )
        driving = LocalTurns(hermes)
        try:
            yield LocalHermes(hermes, answers, driving, name)
        finally:
            await driving.drain(settings.work.drain_s)


# --- the turns of this process
#
# No job is queued for them: a worker on the same stores may have other settings and other paid models. An unfinished turn is not lost: the
# next worker's sweep finds a message without a job, and learning that did not end in time is queued for a worker.


RETRY_WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Pauses between the tries of a turn; the last pause repeats. The turn counts its tries itself and ends with an apology."""
MAX_MEMORY_TRIES = 3


@dataclass(slots=True)
class LocalTurns:
    """The running turns of this process: one at a time in each conversation, in the order of their messages."""

    hermes: Hermes
    turns: dict[UUID, asyncio.Task[None]] = field(default_factory=dict)
    """The last turn of each conversation; it waits for the turn before it."""
    learning: asyncio.Task[None] | None = None
    """Learns from the newest finished turn, after the learning from all turns before it."""
    unlearnt: dict[UUID, UUID] = field(default_factory=dict)
    """Answered turns from whose message Hermes has not learnt yet, each with its user."""
    preparing: asyncio.Task[None] | None = None

    @property
    def intake(self) -> Intake:
        """The intake, without queueing messages for a worker."""
        return replace(self.hermes.intake, defers_turns=False)

    def start(self, receipt: AcceptedMessage) -> None:
        """Run a turn after the earlier turns of its conversation. It goes on when the caller stops waiting for the answer."""
        before = self.turns.get(receipt.conversation_id)
        self.turns[receipt.conversation_id] = asyncio.create_task(self._drive(receipt.turn_id, before))

    async def drain(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` for running turns and learning. Then cancel them: a worker takes over."""
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
            # A worker loads the same before its first message.
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
        """Return the turn runner of a worker, but learning happens in this process.

        Each turn is recorded in steps: the one statement that ends a turn queues its learning for a worker."""

        async def learn(_: Transaction, claim: Claim) -> None:
            self.unlearnt[claim.turn_id] = claim.user_id

        turns = self.hermes.turns
        return replace(turns, services=replace(turns.services, learn=learn, turn_ends=None))


async def retry_until_done(work: Callable[[], Awaitable[object]], name: str, turn_id: UUID, *, max_tries: int | None = None) -> None:
    """Call `work` until it succeeds, or `max_tries` times."""
    tries = 0
    while max_tries is None or tries < max_tries:
        try:
            await work()
        except ClaimLost:
            return  # a worker has taken the turn over and answers it
        except Exception as error:  # noqa: BLE001  # the worker loop: the error is logged once, and the work is tried again
            log.warning("job_failed", task=name, id=str(turn_id), tries=tries + 1, error=type(error).__name__)
        else:
            return
        stop_if_cancelled()
        await asyncio.sleep(RETRY_WAITS_S[min(tries, len(RETRY_WAITS_S) - 1)])
        tries += 1


async def wait_for_task(task: asyncio.Task[None] | None) -> None:
    """Wait until a task has ended, with or without an error.

    If the caller is cancelled, the task is cancelled too: callers keep only the last task of a chain."""
    if task is None:
        return
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        await end_tasks(task)
        raise


async def end_tasks_by(until: float, tasks: list[asyncio.Task[None] | None]) -> None:
    """Wait for tasks until a moment of the monotonic clock; then cancel those that still run."""
    running = [task for task in tasks if task is not None]
    if not running:
        return
    _, late = await asyncio.wait(running, timeout=max(0.0, until - time.monotonic()))
    await end_tasks(*late)
