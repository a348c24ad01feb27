"""`hermes chores`: work that one of all processes does by the clock. See when each is done, and do one now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from hermes.app.tables import Tables
from hermes.cli.commands import app, lazy_parts
from hermes.cli.fleet_processes import chore_json, holder_name, iso_time, show_time
from hermes.cli.options import Config, Json
from hermes.cli.output import CANNOT_RUN, complain, print_json, print_result, print_table
from hermes.cli.runtime import run, with_hermes, with_tables
from hermes.console.amounts import count_phrase
from hermes.ports.errors import LeaseLost, NotFound
from hermes.ports.processes import Processes, ProcessRecord, ProcessRole
from hermes.ports.runtime import ChoreRecord, Chores, Transactions
from hermes.router.chores import CHORE_SCHEDULES, ChoreBusy, ChoreSchedule
from hermes.tasks import end_tasks

if TYPE_CHECKING:
    from hermes.app.root import Hermes

PROGRESS_S = 10.0
LOOK_S = 1.0

ChoreRecords = tuple[Mapping[str, ChoreRecord], Mapping[UUID, ProcessRecord]]
"""The records of the chores by name, and the processes by id."""

chores = typer.Typer(
    no_args_is_help=True,
    help="Work by the clock, such as dreams and reminders: list, run.\n\n"
    "One of all processes does each chore, once in its interval. To do one now:\n\n"
    "    hermes chores run light_dreams\n\n"
    "`hermes fleet leader` shows which process does each chore.",
)
app.add_typer(chores, name="chores")


@chores.command("list")
def list_(*, is_json: Json = False, config: Config = None) -> None:
    """List the chores: how often each is done, when next, when last, and why it failed last."""

    async def read(tables: Tables) -> ChoreRecords:
        return await read_records(tables.database, tables.chores, tables.processes)

    known, by_id = run(with_tables(config, read))
    now = datetime.now(UTC)
    if is_json:
        print_json([about_chore(chore, known.get(chore.name), by_id) for chore in CHORE_SCHEDULES])
        return
    print_table(
        ("chore", "every", "next", "state", "last done", "last failure"),
        (
            (
                chore.name,
                str(timedelta(seconds=chore.every_s)),
                show_time(chore.next(now)),
                "running" if (record := known.get(chore.name)) is not None and record.is_running else "waiting",
                show_time(record.done_at if record is not None else None),
                (record.failed if record is not None else None) or "",
            )
            for chore in CHORE_SCHEDULES
        ),
    )


@chores.command("run")
def run_(
    name: Annotated[str, typer.Argument(metavar="CHORE", help="The chore: `hermes chores list` shows their names.")],
    *,
    waits: Annotated[
        bool, typer.Option("--wait/--no-wait", help="If another process is doing it: wait until it has done it, or say so and stop.")
    ] = True,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Do a chore now, also if it was done in its interval already. If this command is cut off, a worker does the chore.

    Exit code 1 when it failed, or when another process is doing it and you do not wait; 2 when there is no such chore."""
    done = run(with_hermes(config, lambda hermes: do_chore(hermes, name, waits=waits)))
    print_result(
        {
            "chore": name,
            "is_done": not done.failed,
            "took_s": round(done.took_s, 3),
            "result": done.result,
            "failed": done.failed or None,
            "by": done.by,
        },
        done.sentence(name),
        is_json=is_json,
    )
    if done.failed:
        raise typer.Exit(CANNOT_RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoreOutcome:
    """How a chore on demand ended."""

    took_s: float
    by: str
    """The process that did it."""
    result: int | None = None
    counts: str = ""
    failed: str = ""

    def sentence(self, name: str) -> str:
        if self.failed:
            return f"{name} failed after {self.took_s:.1f} s: {self.failed}; a worker tries it again."
        what = f": {count_phrase(self.result, self.counts)}" if self.result is not None and self.counts else ""
        return f"{name} is done{what}, by {self.by}, in {self.took_s:.1f} s."


async def do_chore(hermes: Hermes, name: str, *, waits: bool) -> ChoreOutcome:
    """Do a chore in this process, or wait until the process that is doing it has ended. Raises NotFound."""
    began = time.monotonic()
    audited = lazy_parts().load_audited()
    await audited.audit_command(hermes.settings, hermes.database, "chore.run", "chore", name)
    async with hermes.process.beating(ProcessRole.COMMAND):
        while True:
            try:
                result = await show_progress(hermes.chore_scheduler().run_now(name, datetime.now(UTC)), name, began)
            except ChoreBusy:
                if (other := await wait_for_other(hermes, name, waits=waits, began=began)) is not None:
                    return other
            except (LeaseLost, NotFound):
                raise
            except Exception as error:  # noqa: BLE001  # a chore may fail in any way, and the operator sees its name
                return ChoreOutcome(took_s=time.monotonic() - began, by="this command", failed=f"{type(error).__name__}: {error}")
            else:
                counts = next(chore.counts for chore in CHORE_SCHEDULES if chore.name == name)
                count = result if isinstance(result, int) else None
                return ChoreOutcome(took_s=time.monotonic() - began, by="this command", result=count, counts=counts)


async def show_progress(work: Coroutine[Any, Any, object], name: str, began: float) -> object:
    """Do the work; say now and then, on standard error, that it goes on."""
    working = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({working}, timeout=PROGRESS_S))[0]:
            typer.secho(f"{name}: working for {time.monotonic() - began:.0f} s", fg="bright_black", err=True)
        return working.result()
    finally:
        if not working.done():
            await end_tasks(working)


async def wait_for_other(hermes: Hermes, name: str, *, waits: bool, began: float) -> ChoreOutcome | None:
    """Wait until the process that is doing the chore has ended it; None if that process died: then it is free again."""
    read = partial(read_records, hermes.database, hermes.adapters.rota, hermes.adapters.processes)
    known, by_id = await read()
    first = known[name]
    who = holder_name(first, by_id)
    if not waits:
        complain(f"{name} is being done by {who}, since {show_time(first.taken_at)}; `hermes fleet leader` shows it")
        raise typer.Exit(CANNOT_RUN)
    typer.secho(f"{name} is being done by {who}, since {show_time(first.taken_at)}; waiting for it", fg="bright_black", err=True)
    while True:
        await asyncio.sleep(LOOK_S)
        record = (await read())[0][name]
        if record.is_running and record.epoch == first.epoch:
            continue
        if record.done_at is not None and (first.done_at is None or record.done_at > first.done_at):
            return ChoreOutcome(took_s=time.monotonic() - began, by=who)
        return None


async def read_records(transactions: Transactions, leases: Chores, processes: Processes) -> ChoreRecords:
    async with transactions.once() as tx:
        records = await leases.all(tx)
        found = await processes.all(tx)
    return {record.name: record for record in records}, {process.id: process for process in found}


def about_chore(chore: ChoreSchedule, record: ChoreRecord | None, by_id: Mapping[UUID, ProcessRecord]) -> dict[str, Any]:
    next_at = iso_time(chore.next(datetime.now(UTC)))
    schedule = {"chore": chore.name, "every_s": chore.every_s, "next_at": next_at}
    never: dict[str, Any] = {"is_running": False, "holder": None, "done_at": None, "failed": None}
    return {**schedule, **(never if record is None else chore_json(record, by_id))}
