"""`hermes console`: who may use the console, and how they come in."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.text import Text

from hermes.app.console_access import desk_from
from hermes.app.home import example_url
from hermes.app.tables import Tables
from hermes.cli.actor import command_actor
from hermes.cli.commands import app
from hermes.cli.options import Config, Json, complete_from
from hermes.cli.output import fail, print_json, print_result, print_table
from hermes.cli.runtime import run, with_tables
from hermes.console.operators import OperatorChangeRefused, OperatorDesk, read_accounts, show_accounts
from hermes.console.sign_in import LINK_TTL_S, link_address
from hermes.ports.errors import NotFound
from hermes.ports.operators import EntryKind, Operator, OperatorEntry, OperatorNameTaken, Role

T = TypeVar("T")

console = typer.Typer(
    no_args_is_help=True,
    help="The console at /console: link, operators, token, tokens, sessions, revoke.\n\n"
    "There are no passwords. A link signs one browser in, once, within a quarter of an hour; `hermes up` prints one on a terminal. "
    "Programs use an operator's token at /v1/ops:\n\n"
    "    hermes console link\n"
    "    hermes console operators add ada@example.com --role viewer\n"
    "    hermes console link --name ada@example.com\n"
    "    hermes console token ada@example.com --for grafana\n\n"
    "A person with this command has the database, so they act as an owner. Every change is in the audit log: hermes audit.",
)
app.add_typer(console, name="console")
operators = typer.Typer(
    invoke_without_command=True,
    help="The operators: list, add, role, accounts, disable, enable. Without a command, it lists them.\n\n"
    "A viewer sees numbers and shapes; an operator also opens content, replays, requeues and swaps; an owner also forgets users, grants "
    "credits, and changes keys and operators.",
)
console.add_typer(operators, name="operators")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The operator's name.")]
RoleName = Annotated[Role, typer.Option("--role", help="viewer, operator or owner.", autocompletion=complete_from(lambda: list(Role)))]
Accounts = Annotated[list[str] | None, typer.Option("--account", help="An account that they see; repeatable.", show_default="all accounts")]


@console.command()
def link(
    *,
    name: Annotated[str | None, typer.Option("--name", help="The operator who signs in with it.", show_default="you, as an owner")] = None,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Print a link that signs one browser in, once, within a quarter of an hour.

    Without --name it is for you, by your name on this machine; if there is no such operator yet, Hermes adds them as an owner. The secret
    is behind the #, so that no server or proxy on the way sees it."""

    async def make(desk: OperatorDesk, tables: Tables) -> tuple[str, str]:
        wanted = name or (await desk.sign_in.make_first_owner(own_name())).name
        return wanted, link_address(example_url(tables.settings.web), await desk.make_link(command_actor(), wanted))

    wanted, address = act(config, make)
    if is_json:
        print_json({"operator": wanted, "link": address, "expires_s": LINK_TTL_S})
        return
    typer.echo(address)
    typer.secho(f"For {wanted}: it works once, within {LINK_TTL_S / 60:g} minutes.", fg="bright_black", err=True)


@console.command()
def token(
    name: Name,
    *,
    title: Annotated[str, typer.Option("--for", metavar="PROGRAM", help="Which program uses it, as lists show it.")] = "",
    days: Annotated[int | None, typer.Option("--days", min=1, max=3_650, help="When it ends.", show_default="never")] = None,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Make a token for a program of an operator: it may do at /v1/ops what they may. Hermes shows it only this once."""

    async def make(desk: OperatorDesk, _: Tables) -> str:
        return await desk.make_token(command_actor(), name, title, ttl_s=None if days is None else days * 86_400.0)

    secret = act(config, make)
    if is_json:
        print_json({"operator": name, "token": secret})
        return
    typer.echo(secret)
    typer.secho(
        "Save it: it is not shown again. Try it:\n\n    curl -s …/v1/ops/audit -H 'Authorization: Bearer ho_…'", fg="bright_black", err=True
    )


@console.command()
def tokens(*, is_json: Json = False, config: Config = None) -> None:
    """List the tokens that can be used. The secrets are not shown: Hermes does not have them."""
    show_entries(config, EntryKind.TOKEN, "There is no token; make one: hermes console token NAME", is_json=is_json)


@console.command()
def sessions(*, is_json: Json = False, config: Config = None) -> None:
    """List the browsers that are signed in. A session ends after twelve hours without use, and after seven days."""
    show_entries(config, EntryKind.SESSION, "No browser is signed in; make a link: hermes console link", is_json=is_json)


@console.command()
def revoke(
    entry: Annotated[str, typer.Argument(metavar="ID", help="The id of a session, token or link, as the lists show it.")],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """End a session, token or link, at once."""

    async def end(desk: OperatorDesk, _: Tables) -> OperatorEntry:
        return await desk.revoke(command_actor(), entry)

    found = act(config, end)
    print_result(entry_json(found), f"The {found.kind} {found.id} of {found.operator.name} is revoked.", is_json=is_json)


# --- operators


@operators.callback()
def list_by_default(context: typer.Context, *, is_json: Json = False, config: Config = None) -> None:
    if context.invoked_subcommand is None:
        list_operators(is_json=is_json, config=config)


@operators.command("list")
def list_operators(*, is_json: Json = False, config: Config = None) -> None:
    """List the operators."""

    async def read(desk: OperatorDesk, _: Tables) -> Sequence[Operator]:
        return await desk.list()

    found = act(config, read)
    if is_json:
        print_json([operator_json(operator) for operator in found])
        return
    if not found:
        typer.echo("There is no operator yet; this makes you one: hermes console link")
        return
    print_table(
        ("name", "role", "accounts", "state", "since", "by"),
        (
            (
                operator.name,
                operator.role,
                show_accounts(operator.accounts),
                Text("disabled", "red") if operator.disabled_at else Text("active", "green"),
                f"{operator.created_at:%Y-%m-%d}",
                operator.created_by,
            )
            for operator in found
        ),
    )


@operators.command()
def add(name: Name, *, role: RoleName = Role.VIEWER, account: Accounts = None, is_json: Json = False, config: Config = None) -> None:
    """Add an operator. They come in by a link: hermes console link --name NAME."""

    async def change(desk: OperatorDesk, _: Tables) -> Operator:
        return await desk.add(command_actor(), name, role, read_accounts(",".join(account or ())))

    show_changed(act(config, change), is_json=is_json)


@operators.command("role")
def set_role(
    name: Name, role: Annotated[Role, typer.Argument(help="viewer, operator or owner.")], *, is_json: Json = False, config: Config = None
) -> None:
    """Give an operator another role, from their next request on."""

    async def change(desk: OperatorDesk, _: Tables) -> Operator:
        return await desk.set_role(command_actor(), name, role)

    show_changed(act(config, change), is_json=is_json)


@operators.command("accounts")
def set_accounts(
    name: Name,
    account: Annotated[
        list[str] | None, typer.Argument(metavar="[ACCOUNT]...", help="The accounts that they see. None: all.", show_default=False)
    ] = None,
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Narrow an operator to these accounts; without any account, they see all."""

    async def change(desk: OperatorDesk, _: Tables) -> Operator:
        return await desk.set_accounts(command_actor(), name, read_accounts(",".join(account or ())))

    show_changed(act(config, change), is_json=is_json)


@operators.command()
def disable(name: Name, *, is_json: Json = False, config: Config = None) -> None:
    """Keep an operator out from now on; their links, sessions and tokens end."""

    async def change(desk: OperatorDesk, _: Tables) -> Operator:
        return await desk.disable(command_actor(), name)

    show_changed(act(config, change), is_json=is_json)


@operators.command()
def enable(name: Name, *, is_json: Json = False, config: Config = None) -> None:
    """Let a disabled operator in again, by a new link."""

    async def change(desk: OperatorDesk, _: Tables) -> Operator:
        return await desk.enable(command_actor(), name)

    show_changed(act(config, change), is_json=is_json)


# --- what they share


def act(config: Path | None, work: Callable[[OperatorDesk, Tables], Coroutine[Any, Any, T]]) -> T:
    """Open the database and do the work. What makes no sense is bad input, in one line."""

    async def whole(tables: Tables) -> T:
        try:
            return await work(desk_from(tables.settings, tables.database), tables)
        except (OperatorChangeRefused, OperatorNameTaken) as error:
            raise NotFound(str(error)) from None

    return run(with_tables(config, whole))


def own_name() -> str:
    """The name of the person at this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        fail("this machine has no name for you; say which operator the link is for: hermes console link --name NAME")


def show_entries(config: Path | None, kind: EntryKind, empty: str, *, is_json: bool) -> None:
    async def read(desk: OperatorDesk, _: Tables) -> Sequence[OperatorEntry]:
        return [entry for entry in await desk.entries() if entry.kind is kind]

    found = act(config, read)
    if is_json:
        print_json([entry_json(entry) for entry in found])
    elif not found:
        typer.echo(empty)
    else:
        print_table(
            ("id", "operator", "for", "made", "last seen", "ends", "from", "browser"),
            (
                (
                    entry.id,
                    entry.operator.name,
                    entry.name,
                    show_minute(entry.created_at),
                    show_minute(entry.seen_at),
                    show_minute(entry.expires_at),
                    entry.address,
                    entry.browser,
                )
                for entry in found
            ),
        )


def show_changed(operator: Operator, *, is_json: bool) -> None:
    seen = "all accounts" if operator.accounts is None else show_accounts(operator.accounts)
    state = "disabled" if operator.disabled_at else f"{operator.role} of {seen}"
    print_result(operator_json(operator), f"{operator.name}: {state}.", is_json=is_json)


def operator_json(operator: Operator) -> dict[str, Any]:
    return {
        "name": operator.name,
        "role": operator.role,
        "accounts": None if operator.accounts is None else sorted(operator.accounts),
        "created_at": operator.created_at.isoformat(),
        "created_by": operator.created_by,
        "disabled_at": operator.disabled_at.isoformat() if operator.disabled_at else None,
    }


def entry_json(entry: OperatorEntry) -> dict[str, Any]:
    times = {name: getattr(entry, name) for name in ("created_at", "seen_at", "expires_at", "revoked_at")}
    about = {"id": entry.id, "kind": entry.kind, "operator": entry.operator.name, "for": entry.name}
    return {
        **about,
        **{name: at.isoformat() if at else None for name, at in times.items()},
        "address": entry.address,
        "browser": entry.browser,
    }


def show_minute(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at else "never"
