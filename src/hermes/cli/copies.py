"""`hermes backup`, `restore`, `move` and `upgrade`: copies of the database, each checked, each whole or not at all."""

from __future__ import annotations

import sys
import time
from collections.abc import Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import typer

from hermes.app.backups import Restored, RestoreOptions, make_backup, restore_backup
from hermes.app.moving import discard_old, list_kept, move_database, upgrade_database, write_addresses
from hermes.cli.commands import app
from hermes.cli.options import Config, Json
from hermes.cli.output import CANNOT_RUN, complain, fail, print_json
from hermes.cli.runtime import run, settings_from, start_log
from hermes.config import LogLevel, Settings
from hermes.console.amounts import count_phrase
from hermes.ports.errors import CopyRefused

T = TypeVar("T")

PROGRESS_INTERVAL_S = 0.2
BackupArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `hermes backup` made.")]
To = Annotated[Path | None, typer.Option("--to", metavar="FILE", help="Where the backup goes.", show_default="hermes-TIME.backup")]
TargetUrl = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="DSN", help="The empty database to fill: postgresql://user@host/database.", show_default="that of the settings"
    ),
]
RedisUrl = Annotated[
    str | None,
    typer.Option("--redis", metavar="URL", help="The Redis whose caches belong to that database.", show_default="that of the settings"),
]


@app.command()
def backup(*, to: To = None, is_json: Json = False, config: Config = None) -> None:
    """Write the whole database to one file, as it is at this moment. Hermes may run and answer meanwhile.

    The file has every table, with counts and hashes. Words in it are sealed, and the master key that opens them is not in it: keep the key
    elsewhere, and keep it. Redis is not in it, because Hermes makes its content again; neither are hermes.toml and your own files.

        hermes backup --to /backups/monday.backup
        hermes restore /backups/monday.backup --to postgresql://hermes@db/hermes_new"""
    settings = quiet_settings(config)
    file = (to or Path(f"hermes-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.backup")).absolute()
    if not file.parent.is_dir():
        fail(f"there is no folder {file.parent}")
    if to is not None and file.is_dir():
        fail(f"{file} is a folder; name a file in it")
    with ProgressLine() as progress:
        made = run_copy(make_backup(settings, file, progress.show))
    size = file.stat().st_size
    if is_json:
        about = {"file": str(file), "bytes": size, "rows": made.report.rows, "tables": len(made.report.tables)}
        print_json(
            {**about, "taken_at": made.facts.taken_at.isoformat(), "masters": list(made.facts.masters), "digest": made.report.digest}
        )
        return
    typer.echo(f"{file}: {count_phrase(made.report.rows, 'row')} of {len(made.report.tables)} tables, {size / 1e6:,.1f} MB.")
    typer.echo("Keep the master key apart from it: the backup is of no use without it, and safe without it.")


@app.command()
def restore(
    file: BackupArgument,
    *,
    to: TargetUrl = None,
    redis: RedisUrl = None,
    is_replacing: Annotated[bool, typer.Option("--replace", help="Replace the embedded database; the old one is kept beside it.")] = False,
    is_resuming: Annotated[
        bool, typer.Option("--resume", help="Nothing happened since the backup: answer and send what was on its way.")
    ] = False,
    erasures: Annotated[
        list[Path] | None,
        typer.Option("--erasures", metavar="FILE", help="A ledger of erasures from another machine; repeatable.", show_default=False),
    ] = None,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Restore a backup into an empty database: the hashes first, then all of it or nothing. Stop Hermes before.

    What was erased after the backup is erased again: users and facts in HERMES_HOME/erasures.log, in --erasures, and in the database that
    the settings name now, if it can be reached. Messages that waited for an answer, and answers that were not sent, are held back, because
    they may have been answered and sent since: `hermes dead-letters list --outcome ambiguous` shows the answers. With --resume they go on.

        hermes restore monday.backup                        # into the embedded database of a new home
        hermes restore monday.backup --replace              # in place of the one that is there
        hermes restore monday.backup --to postgresql://hermes@db/hermes_new"""
    settings = quiet_settings(config)
    options = RestoreOptions(
        target_url=to, redis_url=redis, replaces=is_replacing, resumes=is_resuming, ledgers=[ledger.absolute() for ledger in erasures or ()]
    )
    with ProgressLine() as progress:
        restored = run_copy(restore_backup(settings, file, options, progress.show))
    for warning in restored.warnings:
        complain(warning)
    if is_json:
        print_json(restored_json(restored))
        return
    for line in describe_restored(restored):
        typer.echo(line)


@app.command()
def move(
    *,
    to: Annotated[str, typer.Option("--to", metavar="DSN", help="An empty database with pgvector: postgresql://user@host/database.")],
    redis: Annotated[str, typer.Option("--redis", metavar="URL", help="A Redis or Valkey: redis://host:6379.")],
    is_writing: Annotated[bool, typer.Option("--write", help="Write both addresses into hermes.toml.")] = False,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Move from the embedded stores to servers: copy the database, compare every row, and mark the old home as moved. Stop Hermes before.

    The copy is one transaction. If it is cut off, run the same command again. The old data stays where it is; a Hermes that starts on it
    says in one line where the data went. Redis needs no copy: Hermes makes its content again.

        hermes move --to postgresql://hermes@db.example.com/hermes --redis redis://cache.example.com --write"""
    settings = quiet_settings(config)
    with ProgressLine() as progress:
        moved = run_copy(move_database(settings, to, redis, progress.show))
    target = config or Path("hermes.toml")
    if is_writing:
        write_settings(target, to, redis)
    if is_json:
        about = {"rows": moved.report.rows, "tables": len(moved.report.tables), "digest": moved.report.digest}
        print_json({**about, "was_complete": moved.was_complete, "note": str(moved.note), "left_out": moved.report.left_out})
        return
    done = "was copied before, and is the same" if moved.was_complete else "was copied and compared"
    typer.echo(f"Everything {done}: {count_phrase(moved.report.rows, 'row')} of {len(moved.report.tables)} tables.")
    if is_writing:
        typer.echo(f"{target} names the servers now.")
    else:
        typer.echo("Set both addresses for every process, with the passwords that you gave: HERMES_DATABASE_URL and HERMES_REDIS_URL.")
    if moved.master_key:
        typer.echo(
            f"Every process also needs the master key: set HERMES_MASTER_KEYS to the content of {moved.master_key}, and keep it safe."
        )
    if not moved.has_vault:
        typer.echo("The server has no vault: set HERMES_VAULT to a folder that all machines share, so that erasures destroy keys.")
    typer.echo(f"The old data is as it was. To go back to it, delete {moved.note}.")


@app.command()
def upgrade(
    *,
    is_discarding: Annotated[bool, typer.Option("--discard-old", help="Delete the old databases that upgrades and restores kept.")] = False,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Bring the embedded PostgreSQL to the major version that this Hermes has. Stop Hermes before; the old data is kept.

    A major version reads only its own files: a new one starts beside the old one, takes all rows, and takes its place. Minor versions need
    nothing, and the tables of Hermes itself are brought up to date at every start. If you need the space of the old data:

        hermes upgrade --discard-old"""
    settings = quiet_settings(config)
    if is_discarding:
        gone = discard_old(settings)
        print_json({"discarded": [str(folder) for folder in gone]}) if is_json else typer.echo(
            "".join(f"deleted {folder}\n" for folder in gone).rstrip() or "There is no old database."
        )
        return
    with ProgressLine() as progress:
        done = run_copy(upgrade_database(settings, progress.show))
    kept = list_kept(settings)
    if is_json:
        rows = done.report.rows if done else 0
        print_json(
            {"from": done.before if done else None, "to": done.after if done else None, "rows": rows, "kept": [str(k) for k in kept]}
        )
        return
    if done is None:
        typer.echo("Nothing to do: the database has the major version of this Hermes.")
    else:
        typer.echo(
            f"PostgreSQL {done.before} is PostgreSQL {done.after} now: {count_phrase(done.report.rows, 'row')}, copied and compared."
        )
        typer.echo(f"The old data is in {done.kept}; delete it with: hermes upgrade --discard-old")


# --- what the commands share


class ProgressLine:
    """Shows on a terminal which table is being copied, on one line that is gone at the end."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._next, self._table = 0.0, ""

    def __enter__(self) -> Self:
        return self

    def show(self, table: str, done_bytes: int) -> None:
        """Is told of progress: a port `Progress`."""
        if self._is_shown and (table != self._table or time.monotonic() >= self._next):
            self._table, self._next = table, time.monotonic() + PROGRESS_INTERVAL_S
            typer.echo(f"\r\x1b[K{table}  {done_bytes / 1e6:,.1f} MB", nl=False, err=True)

    def __exit__(self, *_: object) -> None:
        if self._is_shown and self._table:
            typer.echo("\r\x1b[K", nl=False, err=True)


def quiet_settings(config: Path | None) -> Settings:
    """Read the settings, and log only warnings: the command itself reports success."""
    settings = settings_from(config)
    start_log(replace(settings, log=replace(settings.log, level=LogLevel.WARNING)))
    return settings


def run_copy(main: Coroutine[Any, Any, T]) -> T:
    """As `run`. After Ctrl-C everything is as before."""
    try:
        return run(main)
    except KeyboardInterrupt:
        complain("stopped; nothing was changed")
        raise typer.Exit(CANNOT_RUN) from None


def write_settings(file: Path, target_url: str, redis_url: str) -> None:
    try:
        write_addresses(file, target_url, redis_url)
    except (CopyRefused, OSError, ValueError) as error:
        complain(f"everything was moved, but {file} was not written: {error}")
        raise typer.Exit(CANNOT_RUN) from None


def restored_json(restored: Restored) -> dict[str, Any]:
    about = {"rows": restored.report.rows, "tables": len(restored.report.tables), "left_out": restored.report.left_out}
    held = {"messages_held": restored.held.messages, "answers_held": restored.held.answers, "erased_again": len(restored.erased)}
    kept = str(restored.kept) if restored.kept else None
    return {**about, **held, "taken_at": restored.facts.taken_at.isoformat(), "kept": kept, "warnings": restored.warnings}


def describe_restored(restored: Restored) -> list[str]:
    held, taken = restored.held, f"{restored.facts.taken_at:%Y-%m-%d %H:%M:%S} UTC"
    lines = [f"Restored as of {taken}: {count_phrase(restored.report.rows, 'row')} of {len(restored.report.tables)} tables."]
    if restored.erased:
        lines.append(f"{count_phrase(len(restored.erased), 'erasure')} made since then were repeated.")
    if held.messages:
        lines.append(f"{count_phrase(held.messages, 'message')} that waited then get no answer now: they may have been answered since.")
    if held.answers:
        answers = count_phrase(held.answers, "answer")
        lines.append(f"{answers} not sent then may have been sent since; see: hermes dead-letters list --outcome ambiguous")
    if restored.report.left_out:
        lines.append(f"Left out, because these are no tables of Hermes: {', '.join(restored.report.left_out)}.")
    if restored.kept:
        lines.append(f"The old database is in {restored.kept}; delete it with: hermes upgrade --discard-old")
    return lines
