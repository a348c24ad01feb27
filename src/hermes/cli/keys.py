"""`hermes keys`: API keys for programs, and master keys for the operator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from hermes.app.home import example_url
from hermes.app.tables import Tables
from hermes.cli.commands import app, lazy_parts
from hermes.cli.options import Config, Json, complete_from
from hermes.cli.output import complain, fail, print_json, print_properties, print_result, print_table
from hermes.cli.runtime import complete_tiers, find_model_names, find_tiers, read_tables, run, with_tables
from hermes.config import Settings
from hermes.console.key_limits import LIMITS, NONE, change_limits, limits_as_json, show_limits, split_names, to_micro_usd, usage_as_json
from hermes.ports.errors import StoreUnavailable, require_known
from hermes.ports.key_limits import InvalidLimit, KeyLimits
from hermes.ports.key_use import KeyUsage
from hermes.ports.runtime import Transaction
from hermes.ports.users import KEY_SCOPES, ApiKey

keys = typer.Typer(
    no_args_is_help=True, help="API keys: create, list, show, set, revoke. Master keys: new-master, rewrap; data keys: rotate."
)
app.add_typer(keys, name="keys")


LIMIT_HELP = {limit.option: limit.help for limit in LIMITS}
LIMIT_PANEL = "Limits (`none`: no limit)"


def limit_option(name: str, metavar: str, *aliases: str) -> Any:
    """Return the option of a limit."""
    return typer.Option(f"--{name}", *aliases, metavar=metavar, help=LIMIT_HELP[name], rich_help_panel=LIMIT_PANEL)


Channels = Annotated[
    list[str] | None,
    typer.Option(
        "--channels",
        "--channel",
        metavar="NAMES",
        help="The conversations (`channel` of /v1/messages) that the key may use; several with commas, or repeated.",
        show_default="all of its account",
        rich_help_panel=LIMIT_PANEL,
    ),
]
UsdPerDay = Annotated[str | None, limit_option("usd-per-day", "USD")]
UsdPerMonth = Annotated[str | None, limit_option("usd-per-month", "USD")]
TokensPerDay = Annotated[str | None, limit_option("tokens-per-day", "N")]
TokensPerMonth = Annotated[str | None, limit_option("tokens-per-month", "N")]
RequestsPerMinute = Annotated[str | None, limit_option("rpm", "N")]
TokensPerMinute = Annotated[str | None, limit_option("tpm", "N")]
AtOnce = Annotated[str | None, limit_option("at-once", "N")]
AllowedModels = Annotated[list[str] | None, limit_option("models", "NAMES")]
AllowedUsers = Annotated[list[str] | None, limit_option("users", "PATTERNS")]
Expires = Annotated[str | None, limit_option("expires", "WHEN")]
AllowedNetworks = Annotated[list[str] | None, limit_option("networks", "NETWORKS")]
WantedKey = Annotated[str, typer.Argument(metavar="KEY", help="The key's name, prefix or id.")]


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
    channels: Channels = None,
    usd_per_day: UsdPerDay = None,
    usd_per_month: UsdPerMonth = None,
    tokens_per_day: TokensPerDay = None,
    tokens_per_month: TokensPerMonth = None,
    rpm: RequestsPerMinute = None,
    tpm: TokensPerMinute = None,
    at_once: AtOnce = None,
    models: AllowedModels = None,
    users: AllowedUsers = None,
    expires: Expires = None,
    networks: AllowedNetworks = None,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Create an API key. Hermes shows it only this once, and stores only a hash of it.

    Its limits hold in all processes together, whatever users its clients name. Without --usd-per-day it may spend what the setting
    `api.key_usd_per_day` says, 5 US dollars a day; requests and calls at once are unlimited unless you set them. `none` is no limit.

        hermes keys create acme --usd-per-day 20 --rpm 600 --users 'acme-*' --models claude-haiku --expires 30d"""

    for one in scope or ():
        if one not in KEY_SCOPES:
            fail(f"there is no scope {one!r}; expected {', '.join(KEY_SCOPES)}")
    texts = limit_texts(locals())

    async def make(tables: Tables) -> tuple[ApiKey, str, str]:
        if tier is not None:
            require_known(tier, find_tiers(tables.settings), "tier")
        usual = KeyLimits(day_micro_usd=to_micro_usd(tables.settings.api.key_usd_per_day))
        limits = new_limits(usual, texts, tables.settings)
        facts = {"name": name, "scopes": scope or None, "tier": tier, "trains": trains, "limits": limits_as_json(limits)}
        await lazy_parts().load_audited().audit_key(tables.settings, tables.database, "key.create", name, account, **facts)
        async with tables.database.begin() as tx:
            made, text = await tables.api_keys.create(
                tx, name, account, tier=tier, trains=trains, scopes=scope or None, channels=read_channels(channels), limits=limits
            )
        return made, text, example_url(tables.settings.web)

    key, secret, url = run(with_tables(config, make))
    if is_json:
        print_json({**_key_json(key), "secret": secret})
        return
    typer.echo(secret)
    typer.secho(f"Save this key: it is not shown again. {describe_new_key(key)}", fg="bright_black", err=True)
    typer.secho(f"Try it:\n\n{_example(url, secret)}", fg="bright_black", err=True)


@keys.command()
def show(wanted: WantedKey, *, is_json: Json = False, config: Config = None) -> None:
    """Show a key: what it is for, its limits, and what it uses of them now, with what is reserved for calls under way."""

    async def read(tables: Tables) -> tuple[ApiKey, KeyUsage | None]:
        async with tables.database.begin() as tx:
            key = await tables.api_keys.get(tx, wanted)
        try:
            return key, await lazy_parts().load_app("key_usage").read_key_usage(tables, key.id)
        except StoreUnavailable:
            return key, None

    key, used = run(with_tables(config, read))
    if is_json:
        print_json({**_key_json(key), "used": None if used is None else usage_as_json(used)})
        return
    print_properties(
        (
            ("key", f"{key.name} ({key.prefix}…), {key.id}"),
            ("state", key_state(key)),
            ("account", key.account),
            ("scopes", names_or_all(key.scopes)),
            ("channels", names_or_all(key.channels)),
            ("tier", key.tier or "default"),
            ("last used", _day(key.last_used_at)),
        )
    )
    if used is None:
        complain("what the key uses cannot be read: its counters are away")
    rows = [(each.label, each.used, each.limit or "no limit") for each in show_limits(key.limits, used)]
    print_table(("limit", "used", "of"), rows)


@keys.command("set")
def set_(
    wanted: WantedKey,
    *,
    channels: Channels = None,
    usd_per_day: UsdPerDay = None,
    usd_per_month: UsdPerMonth = None,
    tokens_per_day: TokensPerDay = None,
    tokens_per_month: TokensPerMonth = None,
    rpm: RequestsPerMinute = None,
    tpm: TokensPerMinute = None,
    at_once: AtOnce = None,
    models: AllowedModels = None,
    users: AllowedUsers = None,
    expires: Expires = None,
    networks: AllowedNetworks = None,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Change limits of a key; those that you do not name stay. `none` removes one. Running servers notice within a few seconds.

    What the key has used already counts: with a lower limit it may have nothing left until the next day.

        hermes keys set acme --usd-per-day 50 --rpm none --users 'acme-*,beta-*'"""
    texts = limit_texts(locals())
    if not texts and not channels:
        fail("name what to change, such as --usd-per-day 10 or --rpm none; `hermes keys show` shows what is set")

    async def change(tables: Tables) -> ApiKey:
        async with tables.database.begin() as tx:
            key = await tables.api_keys.get(tx, wanted)
        limits = new_limits(key.limits, texts, tables.settings)
        allowed = read_channels(channels) if channels else key.channels
        facts = {"name": key.name, "channels": allowed, "limits": limits_as_json(limits)}
        await lazy_parts().load_audited().audit_key(tables.settings, tables.database, "key.change", str(key.id), key.account, **facts)
        async with tables.database.begin() as tx:
            return await tables.api_keys.change(tx, key.id, limits, allowed)

    key = run(with_tables(config, change))
    print_result(_key_json(key), f"{key.name} ({key.prefix}…): {describe_limits(key)}", is_json=is_json)


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
                key_state(key),
                str(key.id),
            )
            for key in found
        ),
    )


@keys.command()
def revoke(
    wanted: WantedKey,
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Revoke an API key. Running servers notice within a few seconds."""

    async def end(tables: Tables) -> ApiKey:
        await lazy_parts().load_audited().audit_key(tables.settings, tables.database, "key.revoke", wanted, None)
        async with tables.database.begin() as tx:
            return await tables.api_keys.revoke(tx, wanted)

    key = run(with_tables(config, end))
    print_result(_key_json(key), f"{key.name} ({key.prefix}…) is revoked.", is_json=is_json)


def limit_texts(options: Mapping[str, Any]) -> dict[str, Any]:
    """The limits among the options of a command, by name; without those that were not given."""
    return {limit.option: text for limit in LIMITS if (text := options[limit.option.replace("-", "_")])}


def new_limits(limits: KeyLimits, texts: Mapping[str, Any], settings: Settings) -> KeyLimits:
    """Return the limits changed by the options. A limit that no key can have is bad input."""
    try:
        changed = change_limits(limits, texts, datetime.now(UTC))
    except InvalidLimit as error:
        fail(f"--{error}")
    if "models" in texts:
        for model in changed.models or ():
            require_known(model, find_model_names(settings), "model")
    return changed


def read_channels(words: Sequence[str] | None) -> list[str] | None:
    """The channels of the option; None, for all, without it and for `none`."""
    names = split_names(words or ())
    return None if not names or names == [NONE] else names


def describe_new_key(key: ApiKey) -> str:
    """What the operator should know of a new key's limits."""
    words = [f"Limits: {describe_limits(key)}."]
    if key.channels is not None and key.limits.users is None:
        words.append("In its channels it uses nothing private of its users; --users names those of whom it may.")
    return " ".join(words)


def describe_limits(key: ApiKey) -> str:
    shown = [f"{each.label} {each.limit}" for each in show_limits(key.limits, None)]
    shown += [] if key.channels is None else [f"channels {', '.join(key.channels)}"]
    return ", ".join(shown) or "none"


def key_state(key: ApiKey) -> Text:
    if key.revoked_at:
        return Text("revoked", "red")
    is_over = key.limits.expires_at is not None and key.limits.expires_at <= datetime.now(UTC)
    return Text("expired", "red") if is_over else Text("active", "green")


@keys.command("new-master")
def new_master() -> None:
    """Print a new master key, for HERMES_MASTER_KEYS. Hermes does not store it: if you lose it, everything sealed with it is lost."""
    typer.echo(lazy_parts().load_app("master_keys").new_master_key())


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


@keys.command()
def rotate(
    *,
    older_than: Annotated[
        float, typer.Option("--older-than", metavar="DAYS", min=0.0, help="Only users whose newest data key is at least so old.")
    ] = 1.0,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Give every user and every channel account a new data key, which seals from now on. The old ones stay, and open what they sealed.

    Stored messages do not change. You may interrupt this command: call it again, and it goes on with those that have no new key yet.

        hermes keys rotate --older-than 90"""

    async def renew(tables: Tables) -> int:
        since, total = datetime.now(UTC) - timedelta(days=older_than), 0
        async with tables.database.begin() as tx:
            waiting = await lazy_parts().load_app("vaults").count_unrotated(tx, since)
        while total < waiting:
            async with tables.database.begin() as tx:
                some = await lazy_parts().load_app("vaults").rotate_some(tx, tables.keyring, since)
            if not some:
                break
            total += some
            typer.echo(f"\r{total} of {waiting}", nl=False, err=True)
        return total

    total = run(with_tables(config, renew))
    print_result({"rotated": total}, f"{total} users and channel accounts have a new data key.", is_json=is_json)


def names_or_all(names: Sequence[str] | None) -> str:
    return "all" if names is None else ", ".join(names)


def _key_json(key: ApiKey) -> dict[str, Any]:
    times = {name: _iso(getattr(key, name)) for name in ("created_at", "last_used_at", "revoked_at")}
    about = {"id": str(key.id), "name": key.name, "account": key.account, "prefix": key.prefix, "tier": key.tier, "trains": key.trains}
    return {**about, "scopes": key.scopes, "channels": key.channels, "limits": limits_as_json(key.limits), **times}


def _example(url: str, secret: str) -> str:
    body = json.dumps({"text": "Hello"})
    return f"""curl -s {url}/v1/messages -H 'Authorization: Bearer {secret}' -H 'Content-Type: application/json' -d '{body}'"""


def _iso(when: datetime | None) -> str | None:
    return when.isoformat() if when else None


def _day(when: datetime | None) -> str:
    return f"{when:%Y-%m-%d %H:%M}" if when else "never"
