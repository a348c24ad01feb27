"""What is done to a copy of a database before a Hermes works on it.

The copy shows one moment of a running Hermes: turns in the middle, jobs that a worker holds, answers on their way. After a move nothing
happened since that moment, and the work goes on. After a restore much may have happened, and what was on its way is held back."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.types.json import Jsonb

from hermes.stores.postgres.database import Connection, execute, fetch_value
from hermes.stores.postgres.database_image import CopyReport, ImageFacts
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("restored")


@dataclass(frozen=True, slots=True)
class HeldBack:
    """How many messages wait for no answer any more, and how many answers became dead letters."""

    messages: int = 0
    answers: int = 0


async def release_work(connection: Connection) -> None:
    """Take jobs and chores from the processes that had them: those processes do not work on this copy."""
    for query in ("release_jobs", "forget_workers", "release_chores", "stop_processes"):
        await execute(connection, SQL[query])


async def hold_back(connection: Connection, facts: ImageFacts) -> HeldBack:
    """End what was on its way when the image was taken: to answer or send it now would do so a second time, for all that is known."""
    reason = f"restored from a backup of {facts.taken_at:%Y-%m-%d %H:%M} UTC: it may have been answered or sent since"
    values = {"reason": reason, "taken_at": facts.taken_at}
    return HeldBack(
        messages=int(await fetch_value(connection, SQL["hold_messages"], values)),
        answers=int(await fetch_value(connection, SQL["hold_answers"], values)),
    )


async def note_copy(connection: Connection, kind: str, facts: ImageFacts, report: CopyReport) -> None:
    """Write down where the content of this database came from."""
    row = {"kind": kind, "source": facts.source, "digest": report.digest, "taken_at": facts.taken_at, "facts": Jsonb({"rows": report.rows})}
    await execute(connection, SQL["note_copy"], row)


async def is_copy_of(connection: Connection, source: str, digest: str) -> bool:
    """Whether this database was moved from that one, with that content."""
    return bool(await fetch_value(connection, SQL["find_copy"], {"source": source, "digest": digest}))
