"""`hermes channels`: accounts at Telegram, WhatsApp and Instagram."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from hermes.app.tables import Tables
from hermes.cli.commands import app, lazy_parts
from hermes.cli.options import Config, Json, Limit, complete_from
from hermes.cli.output import fail, print_json, print_result, print_table
from hermes.cli.runtime import complete_accounts, read_tables, run, run_until_signal, settings_from, with_hermes
from hermes.ports.channels import ChannelAccount
from hermes.ports.inbox import InboxMessage
from hermes.ports.outbox import SentMessage
from hermes.ports.runtime import Transaction
from hermes.tasks import end_tasks
from hermes.terminal import one_line
from hermes.turn import Platform

if TYPE_CHECKING:
    from hermes.app.root import Hermes

channels = typer.Typer(no_args_is_help=True, help="Accounts at platforms: add telegram, whatsapp or instagram; list, sent, remove.")
add = typer.Typer(no_args_is_help=True, help="Add an account: telegram, whatsapp, instagram.")
channels.add_typer(add, name="add")
app.add_typer(channels, name="channels")

Name = Annotated[str, typer.Option("--name", help="Your name for the account; its conversations carry it, and the webhook's address.")]
Open = Annotated[
    bool,
    typer.Option(
        "--open",
        help="Every new sender becomes an active user at once, with the signup credits. Without it, Hermes tells them how to sign up.",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", help="The https address at which the platform can reach this Hermes.", show_default="web.public_url of the settings"
    ),
]
POLLS = "none"
"""The value of --url with which Hermes polls Telegram, although it has a public address."""
Wait = Annotated[
    float | None,
    typer.Option("--wait", metavar="SECONDS", help="How long to wait for the first message, as a test.", show_default="120, on a terminal"),
]
BaseUrl = Annotated[
    str | None, typer.Option("--base-url", help="Another server that speaks the platform's API, such as `hermes platforms fake`.")
]


@add.command()
def telegram(
    *,
    name: Name = "telegram",
    token: Annotated[str | None, typer.Option(help="The bot's token. Safer: set TELEGRAM_TOKEN, or type it when asked.")] = None,
    url: Url = None,
    is_open: Open = False,
    base_url: BaseUrl = None,
    wait: Wait = None,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Add a Telegram bot. With an address, Hermes sets its webhook. Without, or with --url none, Hermes polls Telegram: also on a laptop.

    You get the token from @BotFather: send it /newbot, then copy the token."""
    url = None if url == POLLS else url or public_url(config, is_secure=True)
    given = ask_secret("the bot's token", token, "TELEGRAM_TOKEN")
    about = {"token": given, "secret": secrets.token_urlsafe(32), **({"base_url": base_url} if base_url else {})}
    account = make_account(name, Platform.TELEGRAM, about, is_open=is_open, is_polled=url is None)

    async def connect(hermes: Hermes) -> None:
        address = None if url is None else f"{url.rstrip('/')}/webhooks/telegram/{name}"
        channels = lazy_parts().load_app("channels")
        try:
            profile = await channels.connect_telegram(account, hermes.post, url=address)
        except channels.SetupRefused as error:
            fail(str(error))
        await save_account(
            hermes, make_account(name, Platform.TELEGRAM, {**about, "username": profile.username}, is_open=is_open, is_polled=url is None)
        )
        if is_json:
            print_json({"platform": "telegram", "account": name, "username": profile.username, "is_polled": url is None})
        else:
            how = "Hermes polls Telegram for its messages" if url is None else f"its messages come to {url}"
            typer.echo(f"@{profile.username} is connected; {how}. Write to it: https://t.me/{profile.username}")
        await show_first_message(hermes, account, wait_seconds(wait, is_json=is_json))

    run(run_until_signal(with_hermes(config, connect)))


@add.command()
def whatsapp(
    *,
    name: Name = "whatsapp",
    url: Url = None,
    api_key: Annotated[str | None, typer.Option(help="360dialog's API key. Safer: set WHATSAPP_API_KEY, or type it when asked.")] = None,
    phone_number_id: Annotated[str | None, typer.Option(help="For Meta's Cloud API: the id of the number there.")] = None,
    access_token: Annotated[str | None, typer.Option(help="For the Cloud API. Safer: set WHATSAPP_ACCESS_TOKEN.")] = None,
    app_secret: Annotated[str | None, typer.Option(help="For the Cloud API. Safer: set WHATSAPP_APP_SECRET.")] = None,
    is_open: Open = False,
    base_url: BaseUrl = None,
    wait: Wait = None,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Add a WhatsApp number: at 360dialog, or with --phone-number-id at Meta's Cloud API. Prints what you must enter there."""
    about = {"base_url": base_url} if base_url else {}
    url = url or public_url(config)
    if phone_number_id is None:
        about["api_key"] = ask_secret("360dialog's API key", api_key, "WHATSAPP_API_KEY")
        about["webhook_secrets"] = secret = secrets.token_urlsafe(32)
        address = f"{(url or 'https://YOUR-HERMES').rstrip('/')}/webhooks/whatsapp/{name}/{secret}"
        enter = f"At 360dialog, set the number's webhook to:\n\n  {address}\n\nKeep it secret: its last part proves a message."
    else:
        about["phone_number_id"] = phone_number_id
        about["access_token"] = ask_secret("the access token", access_token, "WHATSAPP_ACCESS_TOKEN")
        about["app_secrets"] = ask_secret("the app's secret", app_secret, "WHATSAPP_APP_SECRET")
        about["verify_tokens"] = verify = secrets.token_urlsafe(16)
        enter = meta_instructions(f"{(url or 'https://YOUR-HERMES').rstrip('/')}/webhooks/whatsapp/{name}", verify, "messages")
    save_and_show(make_account(name, Platform.WHATSAPP, about, is_open=is_open), enter, config=config, wait=wait, is_json=is_json)


@add.command()
def instagram(
    *,
    name: Name = "instagram",
    instagram_id: Annotated[str, typer.Option(help="The professional account's id, as its webhooks name it.")],
    url: Url = None,
    login: Annotated[
        str,
        typer.Option(
            help="The kind of token: `instagram`, or `page` for the token of a Facebook page.",
            autocompletion=complete_from(lambda: ("instagram", "page")),
        ),
    ] = "instagram",
    access_token: Annotated[
        str | None, typer.Option(help="The access token. Safer: set INSTAGRAM_ACCESS_TOKEN, or type it when asked.")
    ] = None,
    app_secret: Annotated[
        str | None, typer.Option(help="The app's secret. Safer: set INSTAGRAM_APP_SECRET, or type it when asked.")
    ] = None,
    is_open: Open = False,
    base_url: BaseUrl = None,
    wait: Wait = None,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Add an Instagram account. Prints what you must enter at Meta."""
    verify = secrets.token_urlsafe(16)
    url = url or public_url(config)
    about = {
        "instagram_id": instagram_id,
        "login": login,
        "access_token": ask_secret("the access token", access_token, "INSTAGRAM_ACCESS_TOKEN"),
        "app_secrets": ask_secret("the app's secret", app_secret, "INSTAGRAM_APP_SECRET"),
        "verify_tokens": verify,
        **({"base_url": base_url} if base_url else {}),
    }
    enter = meta_instructions(
        f"{(url or 'https://YOUR-HERMES').rstrip('/')}/webhooks/instagram/{name}", verify, "messages, messaging_postbacks"
    )
    save_and_show(make_account(name, Platform.INSTAGRAM, about, is_open=is_open), enter, config=config, wait=wait, is_json=is_json)


@channels.command("list")
def list_(*, is_json: Json = False, config: Config = None) -> None:
    """List the accounts. Tokens and secrets are not shown."""

    async def read(tables: Tables, tx: Transaction) -> Sequence[ChannelAccount]:
        return await tables.channel_accounts.list(tx)

    found = run(read_tables(config, read))
    if is_json:
        print_json([account_json(account) for account in found])
        return
    if not found:
        typer.echo("There is no account yet; the quickest is a bot: hermes channels add telegram")
        return
    print_table(
        ("platform", "name", "messages", "newcomers"),
        ((each.platform, each.account, "polled" if each.is_polled else "webhook", account_json(each)["newcomers"]) for each in found),
    )


@channels.command("sent")
def show_sent(
    *,
    name: Annotated[
        str | None, typer.Option("--name", help="Only messages of this account.", show_default=False, autocompletion=complete_accounts)
    ] = None,
    limit: Limit = 20,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Show the last messages to all platforms without their text, and their status: waiting, sent, delivered, read, failed."""

    async def read(tables: Tables, tx: Transaction) -> Sequence[SentMessage]:
        return await tables.outbox.tracking.newest(tx, account=name, limit=limit)

    found = run(read_tables(config, read))
    if is_json:
        print_json([sent_json(each) for each in found])
        return
    if not found:
        typer.echo("Hermes has sent nothing there yet.")
        return
    print_table(
        ("promised", "account", "channel", "part", "how far", "since", "tries", "reason"),
        (
            (
                f"{each.status.promised_at:%m-%d %H:%M:%S}",
                one_line(f"{each.platform} {each.account}"),
                one_line(each.channel_id),
                str(each.status.part + 1),
                sent_json(each)["how_far"],
                f"{each.status.ranked_at:%H:%M:%S}" if each.status.ranked_at else "",
                str(each.status.tries),
                one_line(each.status.reason),
            )
            for each in found
        ),
    )


@channels.command()
def remove(
    platform: Annotated[Platform, typer.Argument(help="telegram, whatsapp or instagram.")],
    name: Annotated[str, typer.Argument(help="Your name for the account.", autocompletion=complete_accounts)],
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Remove an account and its secrets. Its conversations stay."""

    async def delete(tables: Tables, tx: Transaction) -> bool:
        return await tables.channel_accounts.remove(tx, platform, name)

    if not run(read_tables(config, delete)):
        fail(f"there is no {platform} account {name}; hermes channels list shows them")
    print_result({"platform": platform, "account": name}, f"{platform} {name} is removed.", is_json=is_json)


def public_url(config: Path | None, *, is_secure: bool = False) -> str | None:
    """Return the public address of the settings. With `is_secure` only one with https: Telegram takes no other."""
    url = settings_from(config).web.public_url
    return None if url is None or (is_secure and not url.startswith("https://")) else url


def ask_secret(what: str, given: str | None, variable: str) -> str:
    """Return a secret from the option, the environment variable, or the terminal, which does not show it."""
    return (given or os.environ.get(variable) or typer.prompt(what[0].upper() + what[1:], hide_input=True)).strip()


def make_account(name: str, platform: Platform, about: dict[str, str], *, is_open: bool, is_polled: bool = False) -> ChannelAccount:
    """Return the account. A bad one is refused here, before any request to the platform."""
    account = ChannelAccount(
        platform=platform, account=name, about={**about, **({"is_open": "yes"} if is_open else {})}, is_polled=is_polled
    )
    channels = lazy_parts().load_app("channels")
    try:
        channels.channel_from(account)
    except channels.BadAccount as error:
        fail(str(error))
    return account


def wait_seconds(wait: float | None, *, is_json: bool) -> float:
    """Return how long to wait for the first message: the value of --wait, else 120 s on a terminal and 0 elsewhere."""
    if wait is not None:
        return wait
    return 120.0 if not is_json and sys.stdin.isatty() and sys.stderr.isatty() else 0.0


def save_and_show(account: ChannelAccount, enter: str, *, config: Path | None, wait: float | None, is_json: bool) -> None:
    async def put(hermes: Hermes) -> None:
        await save_account(hermes, account)
        print_result({**account_json(account), "enter": enter}, enter, is_json=is_json)
        await show_first_message(hermes, account, wait_seconds(wait, is_json=is_json))

    run(run_until_signal(with_hermes(config, put)))


async def save_account(hermes: Hermes, account: ChannelAccount) -> None:
    async with hermes.database.begin() as tx:
        await hermes.adapters.channel_accounts.put(tx, account)


def meta_instructions(address: str, verify: str, fields: str) -> str:
    return (
        f"In the app's dashboard at developers.facebook.com, under Webhooks, enter:\n\n"
        f"  Callback URL   {address}\n  Verify token   {verify}\n\nand subscribe to: {fields}\n\n"
        f"An app has one callback URL for all its accounts. If the app already has a URL of this Hermes, do not change it."
    )


def account_json(account: ChannelAccount) -> dict[str, Any]:
    newcomers = "active" if account.about.get("is_open") == "yes" else "must sign up"
    return {"platform": account.platform, "account": account.account, "is_polled": account.is_polled, "newcomers": newcomers}


def sent_json(sent: SentMessage) -> dict[str, Any]:
    """Return a sent message as JSON values. `how_far` is the platform's status if there is one, else Hermes' own."""
    standing = sent.status
    return {
        "turn_id": str(sent.turn_id),
        "platform": sent.platform,
        "account": sent.account,
        "channel": sent.channel_id,
        "part": standing.part,
        "how_far": standing.rank.name.lower() if standing.rank else "waiting" if standing.state == "pending" else standing.state,
        "since": standing.ranked_at.isoformat() if standing.ranked_at else None,
        "promised_at": standing.promised_at.isoformat(),
        "tries": standing.tries,
        "outcome": standing.outcome,
        "reason": standing.reason,
    }


# --- the first message shows that the whole way from the sender to Hermes works


POLL_S = 0.5


async def wait_for_first_message(hermes: Hermes, account: ChannelAccount, wait_s: float) -> InboxMessage | None:
    """Wait until the account gets a message, and return it; None if none comes in time.

    If the account is polled, this process polls it too, so no Hermes needs to run yet. A running Hermes answers as usual."""
    before = await newest_message(hermes, account)
    async with poll_while_waiting(hermes, account):
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while True:
                    found = await newest_message(hermes, account)
                    if found is not None and (before is None or found.turn_id != before.turn_id):
                        return found
                    await asyncio.sleep(POLL_S)
    return None


@asynccontextmanager
async def poll_while_waiting(hermes: Hermes, account: ChannelAccount) -> AsyncIterator[None]:
    if not account.is_polled:
        yield
        return
    await hermes.account_channels.refresh()
    pollers = lazy_parts().load_app("channels").TelegramPollers(hermes.account_channels, hermes.post, hermes.inbound)
    task = asyncio.create_task(pollers.run(), name="polling")
    try:
        yield
    finally:
        await end_tasks(task)


async def newest_message(hermes: Hermes, account: ChannelAccount) -> InboxMessage | None:
    async with hermes.database.begin() as tx:
        return await hermes.adapters.inbox.newest(tx, account.account, account.platform)


async def show_first_message(hermes: Hermes, account: ChannelAccount, wait_s: float) -> None:
    """Wait for the first message, and show it to the operator."""
    if not wait_s:
        return
    with Console(stderr=True).status(f"Waiting for the first message (up to {wait_s:.0f} s; Ctrl-C stops waiting)…"):
        message = await wait_for_first_message(hermes, account, wait_s)
    if message is None:
        where = "" if account.is_polled else " Is Hermes running, and can the platform reach it?"
        typer.secho(f"No message has come yet.{where} To wait again, run `hermes channels add` again.", fg="yellow", err=True)
        return
    event = message.envelope.event
    text = one_line(event.text)[:80] or f"({event.media_type or 'no text'})"
    typer.secho(f"It works: {event.sender_id} wrote “{text}”. A running Hermes answers; start one with: hermes up", fg="green", err=True)
