"""The processes of Hermes as an operator sees them: which live, which are stalled or silent, what each does, and who does the chores.

No process leads the others: each chore has a holder of its own, with a lease and an epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from hermes.console.access import ConsoleAccess, Subject
from hermes.ports.errors import NotFound
from hermes.ports.operators import Actor, Operator, Role
from hermes.ports.processes import Processes, ProcessEvent, ProcessRecord, ProcessState
from hermes.ports.runtime import ChoreRecord, Chores, Transactions

if TYPE_CHECKING:
    from hermes.ports.queues import DrivenTurn, JobGiver, QueueReader

STATE_WORDS: Mapping[ProcessState, str] = {
    ProcessState.LIVE: "live",
    ProcessState.STALLED: "no beat",
    ProcessState.SILENT: "no turn ends",
    ProcessState.STOPPED: "stopped",
}
RESTART_EVENTS = frozenset({"process_restarted", "process_crash_loop"})


class ActRefused(NotFound):
    """An act makes no sense in this state. The message says why; nothing changed."""


class Recurring(Protocol):
    """When a chore recurs."""

    @property
    def name(self) -> str: ...

    @property
    def every_s(self) -> float: ...

    def next(self, now: datetime) -> datetime:
        """When it is due next."""
        ...


@dataclass(frozen=True, slots=True)
class ProcessView:
    """A process, how it is, and the turns that it drives."""

    record: ProcessRecord
    state: ProcessState
    turns: Sequence[DrivenTurn]

    @property
    def words(self) -> str:
        return STATE_WORDS[self.state]

    @property
    def can_give_away(self) -> bool:
        """Whether its turns may be given to other workers: it does not do them itself."""
        return self.state is not ProcessState.LIVE and bool(self.turns)


@dataclass(frozen=True, slots=True)
class ChoreView:
    """A chore, when it is due, and what the store knows of it; None if no process ever took it."""

    name: str
    every_s: float
    next_at: datetime
    record: ChoreRecord | None
    holder: ProcessRecord | None


@dataclass(frozen=True, slots=True)
class WorkerBoard:
    """Reads the processes and chores, and acts on them."""

    transactions: Transactions
    access: ConsoleAccess
    processes: Processes
    chores: Chores
    reader: QueueReader
    giver: JobGiver
    schedule: Sequence[Recurring]
    now: Callable[[], datetime]
    stalled_after_s: float

    async def list(self, operator: Operator) -> Sequence[ProcessView]:
        """Return the processes of the last day, those that need a look first."""
        async with self.transactions.once() as tx:
            records = await self.processes.all(tx)
            running = await self.reader.running(tx)
        by_worker: dict[UUID, list[DrivenTurn]] = {}
        for turn in running:
            if operator.sees(turn.account):
                by_worker.setdefault(turn.worker, []).append(turn)
        found = [ProcessView(each, each.state(self.stalled_after_s), by_worker.get(each.id, [])) for each in records]
        order = [ProcessState.STALLED, ProcessState.SILENT, ProcessState.LIVE, ProcessState.STOPPED]
        return sorted(found, key=lambda view: order.index(view.state))

    async def events(self, operator: Operator, *, limit: int = 50) -> Sequence[ProcessEvent]:
        """Return what happened to the processes, the newest first; nothing for an operator who does not see all accounts: the events belong
        to none, as in the stream."""
        if operator.accounts is not None:
            return ()
        async with self.transactions.once() as tx:
            return await self.processes.events(tx, limit=limit)

    async def list_chores(self) -> Sequence[ChoreView]:
        """Return the chores, by name, each with its holder and when it is due next."""
        async with self.transactions.once() as tx:
            records = {record.name: record for record in await self.chores.all(tx)}
            holders = {process.id: process for process in await self.processes.all(tx)}
        now = self.now()
        return [self._chore(each, now, records.get(each.name), holders) for each in sorted(self.schedule, key=lambda each: each.name)]

    def _chore(self, scheduled: Recurring, now: datetime, record: ChoreRecord | None, holders: Mapping[UUID, ProcessRecord]) -> ChoreView:
        holder = holders.get(record.holder) if record is not None and record.holder is not None else None
        return ChoreView(scheduled.name, scheduled.every_s, scheduled.next(now), record, holder)

    async def give_away(self, actor: Actor, process_id: UUID) -> int:
        """Give the turns of a process that does not do them to other workers, at once; return how many.

        A sweep does the same for a stalled process after a while; not for a silent one, whose beats go on. Raises NotFound for an unknown
        process, ActRefused for one that lives and works, and AccessRefused."""
        async with self.transactions.once() as tx:
            record = next((each for each in await self.processes.all(tx) if each.id == process_id), None)
        if record is None:
            raise NotFound(f"there is no process {process_id}; `hermes workers` shows them")
        await self.access.permit(actor, Role.OPERATOR, "process.give_away", Subject(kind="process", id=str(process_id)))
        if record.state(self.stalled_after_s) is ProcessState.LIVE:
            raise ActRefused(f"process {process_id} lives and works; stop it instead, and other workers take its turns")
        async with self.transactions.begin() as tx:
            return await self.giver.give_away(tx, process_id)

    async def ask_for_chore(self, actor: Actor, name: str) -> None:
        """Have a chore done soon: the next worker that looks takes it, within a quarter of a minute. Raises NotFound, ActRefused if it is
        being done now, and AccessRefused."""
        if name not in {each.name for each in self.schedule}:
            raise NotFound(f"there is no chore {name[:60]!r}; `hermes chores list` shows them")
        await self.access.permit(actor, Role.OPERATOR, "chore.run", Subject(kind="chore", id=name))
        async with self.transactions.begin() as tx:
            if not await self.chores.ask(tx, name):
                raise ActRefused(f"{name} is being done now, or is due already")
