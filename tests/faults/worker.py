"""Workers of Hermes that die or stop where they are told to, and the nursery that they come from.

    python -m tests.faults.worker

reads one request a line and answers each with a line. `{"start": {…}}` forks a worker and says its pid, `{"ended": pid}` says how it
ended, or null while it lives. A fork, because importing Hermes takes a second and the tests need more than a hundred workers: each of
them is a process of its own, with its own connections. When the input ends, no worker is left behind."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import structlog

from hermes.app.adapters import Adapters
from hermes.app.root import Hermes, Housekeeping, open_hermes
from hermes.cli.runtime import new_event_loop, run_until_signal
from hermes.config import load
from hermes.ops import logs
from hermes.ports.backends import ModelRequest
from hermes.ports.errors import StoreUnavailable
from hermes.ports.inbox import Claim, UnreadableMessage
from hermes.ports.models import Answer, AnswerKeeper, Caller, CallOutcome, ModelCall
from hermes.ports.outbox import DeliveryResult, OutboxMessage, OutboxState
from hermes.ports.processes import ProcessRole
from hermes.ports.runtime import Transaction, Transactions
from hermes.ports.sessions import Effect
from hermes.stores.embeddings import HashedEmbeddings
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.job_queue import TurnClaims, WorkerOptions
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.outbox import PostgresOutbox
from hermes.stores.seal import MasterKeys
from tests.flows.echo import own_words, said

log = structlog.get_logger("hermes.tests")

TURN: ContextVar[int] = ContextVar("turn", default=0)
"""Which of this process's turns is under way, counted from one; 0 outside of turns."""
SIGNED = "\nprepared by "
CALLS: ContextVar[list[str] | None] = ContextVar("calls", default=None)
"""The port calls of the transaction that is open."""

STEP_BY_STEP = frozenset(
    {
        *("people.get", "credits.reserve", "sessions.find_current"),
        "journal.finish",
        *("inbox.hold", "graphs.append", "credits.post", "interactions.add", "outbox.put", "inbox.finish", "commit:inbox.hold"),
    }
)
"""Places that only a turn has that no single statement begins and ends. A worker with a trap there drives all its turns so."""
EVENTFUL = frozenset({"outbox.settle", "commit:outbox.settle"})
"""Places that only a parcel has of which more is told than that it was sent. The platform of a worker with a trap there tells more."""


@dataclass(frozen=True, slots=True)
class Trap:
    """Where a worker is struck: at a port call (`journal.finish`), at the commit of a transaction, which is named for the first call in it
    (`commit:inbox.claim`), at the model's `answer`, at the `send` of a parcel, or at the whole `turn`."""

    place: str
    is_after: bool
    turn: int = 1
    """In which of the process's turns; with a concurrency of one they come in the order of their jobs."""
    blow: int = signal.SIGKILL


@dataclass(frozen=True, slots=True)
class Orders:
    """What one worker does beside working."""

    environ: dict[str, str]
    diary: str
    """A file that gets a line when a model call begins and another when it ends."""
    post: str
    """A file that gets a line for every parcel that is sent on Telegram."""
    log: str
    sprung: str
    """A file that is made when the trap springs; where it is there already, the trap is passed unharmed."""
    trap: Trap | None = None
    answer_s: float = 0.0
    poison: str | None = None
    """The model fails on messages that hold this word."""
    errand: str | None = None
    """The model has a reminder set for messages that hold this word, before it answers."""
    deadly: str | None = None
    """The process dies, every time, of messages that hold this word."""
    cut_off_s: float = 1.5
    """Sent for so long, a parcel counts as cut off. The product waits for two minutes."""

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Orders:
        return cls(**{**fields, "trap": Trap(**fields["trap"]) if fields["trap"] else None})

    def written(self) -> dict[str, Any]:
        return asdict(self)


# --- the nursery


def main() -> None:
    children: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            answer: int | None = fork(Orders.read(request["start"]))
            children.add(answer)
        else:
            answer = ended(request["ended"])
            if answer is not None:
                children.discard(request["ended"])
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # also ends one that is stopped


def fork(orders: Orders) -> int:
    if pid := os.fork():
        return pid
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        output = opened(orders.log)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        logs.configure("json", "info", sys.stderr)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(run_until_signal(work(orders)))
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)  # what stands below this fork belongs to the nursery
    return 0


def ended(pid: int) -> int | None:
    """The exit code of a worker, as `subprocess` writes it: below zero for a signal. None while it lives."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


# --- the worker


async def work(orders: Orders) -> None:
    settings = load(orders.environ)
    snare = Snare(orders.trap, Path(orders.sprung))
    keyring = Keyring(MasterKeys.parse([key.reveal() for key in settings.master_keys]))
    inboxes: list[PostgresInbox] = []  # by which turns are claimed with the fetch of their jobs
    places = {orders.trap.place} if orders.trap is not None else set()

    def adjust(parts: Adapters) -> Adapters:
        adjusted = replace(
            parts,
            models=(Model if places & STEP_BY_STEP else KeepingModel)(orders, snare),
            embeddings=HashedEmbeddings(),  # quick to load: there are many workers
            journal=SignedJournal(parts.journal),
            outbox=PostgresOutbox(keyring, cut_off_s=orders.cut_off_s),
        )
        if places & STEP_BY_STEP:
            adjusted = replace(adjusted, inbox=PostgresInbox(keyring), turn_ends=None)
        elif isinstance(parts.inbox, PostgresInbox) and "inbox.claim" not in places:
            inboxes.append(parts.inbox)
        names = (
            *("people", "inbox", "sessions", "graphs", "histories", "credits", "journal"),
            *("outbox", "interactions", "outcomes", "replies", *(("turn_ends",) if adjusted.turn_ends is not None else ())),
        )
        return replace(adjusted, **{name: Snared(getattr(adjusted, name), name, snare) for name in names})

    async with open_hermes(settings, adjust=adjust) as hermes:
        pace = WorkerOptions(
            concurrency=settings.work.concurrency,
            poll_s=settings.work.poll_s,
            heartbeat_s=settings.work.heartbeat_s,
            stalled_after_s=settings.work.stalled_after_s,
            sweep_s=settings.work.sweep_s,
            drain_s=settings.work.drain_s,
        )
        postman = Postman(orders, snare, TROUBLE if orders.trap is not None and orders.trap.place in EVENTFUL else ())
        hands = SnaredHands(hermes, snare, postman)
        log.info("worker_at_work")
        async with hermes.process.beating(ProcessRole.WORKER):
            services = hermes.turns.services
            claims = [TurnClaims(inbox, services.process_id, services.per_minute, hands.turn) for inbox in inboxes]
            await hermes.work.run(hands, pace, Housekeeping(hermes).sweep, claims=claims[0] if claims else None)


@dataclass(frozen=True, slots=True)
class Snare:
    """Strikes this process at the place of the trap, once."""

    trap: Trap | None
    sprung: Path

    def reached(self, place: str, *, is_after: bool) -> None:
        trap = self.trap
        if trap is None or (place, is_after, TURN.get()) != (trap.place, trap.is_after, trap.turn) or self.sprung.exists():
            return
        self.sprung.touch()
        os.kill(os.getpid(), trap.blow)


class Snared:
    """A port whose calls are places."""

    def __init__(self, port: Any, name: str, snare: Snare) -> None:
        self._port, self._name, self._snare = port, name, snare

    def __getattr__(self, method: str) -> Any:
        call, place = getattr(self._port, method), f"{self._name}.{method}"
        if not inspect.iscoroutinefunction(call):
            return call

        async def snared(*arguments: Any, **options: Any) -> Any:
            if (calls := CALLS.get()) is not None:
                calls.append(place)
            self._snare.reached(place, is_after=False)
            result = await call(*arguments, **options)
            self._snare.reached(place, is_after=True)
            return result

        return snared


class SignedJournal:
    """The journal, with the preparer's pid in every request: so whoever runs it sees whose request it was."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal

    def __getattr__(self, method: str) -> Any:
        return getattr(self._journal, method)

    async def begin(self, tx: Transaction, claim: Claim, step: str, index: int, request: bytes) -> Effect:
        asked = json.loads(request)
        if step == "call_model" and index == 0:
            request = json.dumps({**asked, "system": f"{asked['system']}{SIGNED}{os.getpid()}"}).encode()
        effect: Effect = await self._journal.begin(tx, claim, step, index, request)
        return effect


class SnaredTransactions:
    """Transactions that are places by the first call that is made in them, before and after they commit."""

    def __init__(self, inner: Transactions, snare: Snare) -> None:
        self._inner, self._snare = inner, snare

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        calls: list[str] = []
        CALLS.set(calls)
        async with self._inner.begin() as tx:
            yield tx
            CALLS.set(None)
            self._snare.reached(f"commit:{calls[0]}", is_after=False)
        self._snare.reached(f"commit:{calls[0]}", is_after=True)

    @asynccontextmanager
    async def once(self) -> AsyncIterator[Transaction]:
        async with self._inner.once() as tx:
            yield tx


class SnaredHands:
    """Hands that count the turns of this process."""

    def __init__(self, hermes: Hermes, snare: Snare, postman: Postman) -> None:
        transactions = SnaredTransactions(hermes.database, snare)
        self._courier = replace(hermes.outbox_delivery, transactions=transactions, send=postman.send)
        services = hermes.turns.services
        shared = SnaredTransactions(services.transactions, snare)
        services = replace(services, tools=replace(services.tools, transactions=transactions))  # type: ignore[type-var]  # a Toolbox
        organs = {name: Snared(getattr(services, name), name, snare) for name in ("souls", "images", "tools")}
        self._turns = replace(hermes.turns, services=replace(services, transactions=shared, deliver=self._courier.deliver, **organs))
        self._snare, self._numbers = snare, itertools.count(1)

    async def turn(self, turn_id: UUID, claim: Claim | UnreadableMessage | None = None) -> bool:
        TURN.set(next(self._numbers))
        self._snare.reached("turn", is_after=False)
        try:
            has_ended_job = await self._turns.run(turn_id, claim)
        except Exception as error:
            log.info("turn_failed", error=type(error).__name__)
            raise
        self._snare.reached("turn", is_after=True)
        return has_ended_job

    async def delivery(self, conversation_id: UUID) -> None:
        await self._courier.deliver(conversation_id)

    async def proactive(self, conversation_id: UUID) -> None:
        """There are none."""

    async def memory(self, turn_id: UUID) -> None:
        """What is remembered of these messages is looked at elsewhere."""


TROUBLE = (("breaker_opened", {"failures": 1}),)
"""What a delivery tells beside that the parcel was sent."""


class Postman:
    """Stands in for a platform that answers are sent to: notes every parcel that it was given."""

    def __init__(self, orders: Orders, snare: Snare, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        self._snare, self._post, self._events = snare, opened(orders.post), events

    async def send(self, parcel: OutboxMessage) -> DeliveryResult:
        self._snare.reached("send", is_after=False)
        note(self._post, turn_id=str(parcel.turn_id), body=parcel.body, is_ambiguous=parcel.is_ambiguous, at=time.monotonic())
        self._snare.reached("send", is_after=True)
        return DeliveryResult(state=OutboxState.SENT, events=self._events)


SOON = datetime.now(UTC) + timedelta(days=30)
REMIND = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "set_reminder", "arguments": json.dumps({"text": "water the plants", "at": f"{SOON:%Y-%m-%dT%H:%M}"})},
}


class Model:
    """Stands in for the model: gives another answer to every call, and notes each of them in the diary."""

    def __init__(self, orders: Orders, snare: Snare) -> None:
        self._orders, self._snare, self._diary = orders, snare, opened(orders.diary)

    async def complete(self, ask: ModelRequest, _: Caller) -> Answer:
        text, name = own_words(ask), uuid4().hex
        prepared_by = int(ask.messages[0]["content"].rpartition(SIGNED)[2])
        note(self._diary, call=name, began=time.monotonic(), text=text, pid=os.getpid(), prepared_by=prepared_by)
        self._snare.reached("answer", is_after=False)
        if self._orders.deadly and self._orders.deadly in text:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._orders.poison and self._orders.poison in text:
            raise RuntimeError("the model cannot take this")
        await asyncio.sleep(self._orders.answer_s)
        wants_tool = self._orders.errand is not None and self._orders.errand in text and ask.tool_choice != "none"
        answer = None if wants_tool else f"{text} ({name})"
        note(self._diary, call=name, ended=time.monotonic(), answer=answer)
        self._snare.reached("answer", is_after=True)
        return said(answer, "diary", [REMIND] if wants_tool else ())


class KeepingModel(Model):
    """A model whose answer goes into the journal together with the row of its call, as the gateway has it: to the end, and without an
    error if the store is away."""

    async def complete_and_keep(self, ask: ModelRequest, caller: Caller, keep: AnswerKeeper) -> Answer:
        answer = await self.complete(ask, caller)
        call = ModelCall(
            id=answer.call_id,
            day=datetime.now(UTC).date(),
            account_id=caller.account,
            source=caller.source,
            tier=caller.tier,
            model=answer.model,
            outcome=CallOutcome.ANSWERED,
            latency_ms=answer.latency_ms,
            user_id=caller.user_id,
            turn_id=caller.turn_id,
        )
        with suppress(StoreUnavailable):
            await asyncio.shield(asyncio.ensure_future(keep(call, answer)))
        return answer


def opened(file: str) -> int:
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def note(descriptor: int, **fields: Any) -> None:
    """Add a line. One write at the end of the file, so that the lines of several processes never mix."""
    os.write(descriptor, f"{json.dumps(fields)}\n".encode())


if __name__ == "__main__":
    main()
