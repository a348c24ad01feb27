"""`hermes audit`: what operators did, opened and were refused."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer
from rich.text import Text

from hermes.app.console_access import audit_reader_from
from hermes.app.tables import Tables
from hermes.cli.actor import command_actor
from hermes.cli.commands import app
from hermes.cli.moments import parse_moment
from hermes.cli.options import Config, Json, Limit
from hermes.cli.output import fail, print_json, print_table
from hermes.cli.runtime import run, with_tables
from hermes.console.audit import AuditPage, audit_json
from hermes.ports.operators import AuditFilter, StoredAuditEntry
from hermes.terminal import one_line


@app.command("audit")
def show_audit(
    *,
    operator: Annotated[str | None, typer.Option(help="Only what this operator did.", show_default=False)] = None,
    action: Annotated[str | None, typer.Option(help="Only this action, such as content.open.", show_default=False)] = None,
    subject: Annotated[str | None, typer.Option(help="Only what was done to this id or name.", show_default=False)] = None,
    user: Annotated[str | None, typer.Option(help="Only what is about this user: an id.", show_default=False)] = None,
    is_refused: Annotated[bool, typer.Option("--refused", help="Only what was refused.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Only what happened since then: 24h, 7d, 2026-11-15.", show_default=False)
    ] = None,
    before: Annotated[int | None, typer.Option(min=1, max=2**63 - 1, help="Only entries before this number.", show_default=False)] = None,
    limit: Limit = 50,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Show what operators did, opened and were refused, the newest first. No words of users or models.

    Entries are added before the act, and the database refuses to change or delete one.

        hermes audit --action content.open --since 7d
        hermes audit --refused --json"""
    try:
        user_id = None if user is None else UUID(user)
    except ValueError:
        fail(f"{user!r} is not the id of a user; expected a UUID, as `hermes users list` shows it")
    moment = None if since is None else parse_moment(since)
    wanted = AuditFilter(operator=operator, action=action, subject=subject, user_id=user_id, since=moment, only_refused=is_refused)

    async def read(tables: Tables) -> AuditPage:
        return await audit_reader_from(tables.database).read(command_actor(), wanted, before=before, limit=limit)

    page = run(with_tables(config, read))
    if is_json:
        following = None if page.next is None else str(page.next)
        print_json({"data": [audit_json(entry) for entry in page.entries], "next": following})
        return
    if not page.entries:
        typer.echo("No entry matches.")
        return
    print_table(("id", "time", "operator", "role", "at", "action", "subject", "reason", ""), (audit_row(entry) for entry in page.entries))
    if page.next is not None:
        typer.secho(f"Older: hermes audit --before {page.next}", fg="bright_black", err=True)


def audit_row(stored: StoredAuditEntry) -> tuple[str | Text, ...]:
    entry = stored.entry
    facts = ", ".join(f"{name} {value}" for name, value in entry.facts.items())
    return (
        str(stored.id),
        f"{stored.at:%Y-%m-%d %H:%M:%S}",
        stored.operator,
        stored.role,
        f"{stored.face} {stored.address}".strip(),
        entry.action,
        one_line(f"{entry.subject_kind} {entry.subject}"),
        one_line(" ".join(part for part in (entry.reason, facts) if part)),
        Text("" if entry.allowed else "refused", "red"),
    )
