"""`hermes keys`: API keys for programs, and master keys for the operator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from hermes.app.catalogue import tiers_of
from hermes.app.home import example_url, new_master_key
from hermes.app.tables import Tables
from hermes.cli.commands import app
from hermes.cli.options import Config, Json, complete_from
from hermes.cli.output import fail, print_json, print_result, print_table
from hermes.cli.runtime import complete_tiers, read_tables, run, with_tables
from hermes.ports.errors import require_known
from hermes.ports.runtime import Transaction
from hermes.ports.users import KEY_SCOPES, ApiKey

keys = typer.Typer(no_args_is_help=True, help="API keys: create, list, revoke. Master keys: new-master, rewrap.")
app.add_typer(keys, name="keys")


@keys.command()
def create(
    name: Annotated[str, typer.Argument(help="A name for the key, so that you recognise it.")] = "default",
    *,
    account: Annotated[str, typer.Option(help="The account of the key's messages. Keys of one account share conversations.")] = "api",
    tier: Annotated[
        str | None,
        typer.Option(
            help="The models and tokens that its callers get at /v1/chat/completions.",
            show_default="completions.tier of the settings",
            autocompletion=complete_tiers,
        ),
    ] = None,
    trains: Annotated[
        bool, typer.Option("--trains", help="Messages sent with this key may be used for training. Without it, exports leave them out.")
    ] = False,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help=f"What it is for: {', '.join(KEY_SCOPES)}; repeatable. `ops` shows and changes all accounts: only for operators.",
            show_default="all but ops",
            autocompletion=complete_from(lambda: KEY_SCOPES),
        ),
    ] = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(
            help="A conversation (`channel` of /v1/messages) that the key may use; repeatable.", show_default="all of its account"
        ),
    ] = None,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Create an API key. Hermes shows it only this once, and stores only a hash of it."""

    for one in scope or ():
        if one not in KEY_SCOPES:
            fail(f"there is no scope {one!r}; expected {', '.join(KEY_SCOPES)}")

    async def make(tables: Tables, tx: Transaction) -> tuple[ApiKey, str, str]:
        if tier is not None:
            require_known(tier, tiers_of(tables.settings), "tier")
        limits = {"scopes": scope or None, "channels": channel or None}
        made, text = await tables.api_keys.create(tx, name, account, tier=tier, trains=trains, **limits)
        return made, text, example_url(tables.settings.web)

    key, secret, url = run(read_tables(config, make))
    if is_json:
        print_json({**_key_json(key), "secret": secret})
        return
    typer.echo(secret)
    typer.secho(f"Save this key: it is not shown again. Try it:\n\n{_example(url, secret)}", fg="bright_black", err=True)


@keys.command("list")
def list_(*, is_json: Json = False, config: Config = None) -> None:
    """List the API keys, the newest first. The secrets are not shown: Hermes does not have them."""

    async def read(tables: Tables, tx: Transaction) -> Sequence[ApiKey]:
        return await tables.api_keys.list(tx)

    found = run(read_tables(config, read))
    if is_json:
        print_json([_key_json(key) for key in found])
        return
    if not found:
        typer.echo("There is no API key yet; create one: hermes keys create NAME")
        return
    print_table(
        ("name", "prefix", "account", "scopes", "channels", "tier", "trains", "created", "last used", "state", "id"),
        (
            (
                key.name,
                f"{key.prefix}…",
                key.account,
                names_or_all(key.scopes),
                names_or_all(key.channels),
                key.tier or "default",  # completions.tier of the settings
                "yes" if key.trains else "no",
                _day(key.created_at),
                _day(key.last_used_at),
                Text("revoked", "red") if key.revoked_at else Text("active", "green"),
                str(key.id),
            )
            for key in found
        ),
    )


@keys.command()
def revoke(
    wanted: Annotated[str, typer.Argument(metavar="KEY", help="The key's name, prefix or id.")],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Revoke an API key. Running servers notice within a few seconds."""

    async def end(tables: Tables, tx: Transaction) -> ApiKey:
        return await tables.api_keys.revoke(tx, wanted)

    key = run(read_tables(config, end))
    print_result(_key_json(key), f"{key.name} ({key.prefix}…) is revoked.", is_json=is_json)


@keys.command("new-master")
def new_master() -> None:
    """Print a new master key, for HERMES_MASTER_KEYS. Hermes does not store it: if you lose it, everything sealed with it is lost."""
    typer.echo(new_master_key())


@keys.command()
def rewrap(*, is_json: Json = False, config: Config = None) -> None:
    """Wrap every user's data key with the first of HERMES_MASTER_KEYS. Afterwards you can remove the other master keys.

    Before, give both keys to every process: first OLD,NEW, and when all have them, NEW,OLD. Stored messages do not change. You may
    interrupt and repeat this command."""

    async def wrap(tables: Tables) -> int:
        total = 0
        while True:
            async with tables.database.begin() as tx:
                some = await tables.keyring.rewrap(tx)
            if not some:
                return total
            total += some
            typer.echo(f"\r{total} data keys", nl=False, err=True)

    total = run(with_tables(config, wrap))
    print_result({"wrapped": total}, f"{total} data keys are wrapped by the first master key now.", is_json=is_json)


def names_or_all(names: Sequence[str] | None) -> str:
    return "all" if names is None else ", ".join(names)


def _key_json(key: ApiKey) -> dict[str, Any]:
    times = {name: _iso(getattr(key, name)) for name in ("created_at", "last_used_at", "revoked_at")}
    about = {"id": str(key.id), "name": key.name, "account": key.account, "prefix": key.prefix, "tier": key.tier, "trains": key.trains}
    return {**about, "scopes": key.scopes, "channels": key.channels, **times}


def _example(url: str, secret: str) -> str:
    body = json.dumps({"text": "Hello"})
    return f"""curl -s {url}/v1/messages -H 'Authorization: Bearer {secret}' -H 'Content-Type: application/json' -d '{body}'"""


def _iso(when: datetime | None) -> str | None:
    return when.isoformat() if when else None


def _day(when: datetime | None) -> str:
    return f"{when:%Y-%m-%d %H:%M}" if when else "never"
