"""`hermes platforms`: fake Telegram, WhatsApp and Instagram on this machine, to try Hermes without any account."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from hermes.app.home import local_url
from hermes.app.tables import Tables
from hermes.channels.fakes import FakePlatforms, open_platforms
from hermes.cli.commands import app
from hermes.cli.options import Config
from hermes.cli.output import fail
from hermes.cli.runtime import run, run_until_signal, settings_from, with_tables
from hermes.ports.channels import ChannelAccount
from hermes.turn import Platform

platforms = typer.Typer(no_args_is_help=True, help="Fake platforms to try Hermes with: fake.")
app.add_typer(platforms, name="platforms")


@platforms.command()
def fake(
    *,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port to listen on; 0 takes a free port.")] = 8090,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Every program that can reach it can read and change everything.")
    ] = "127.0.0.1",
    hermes: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The address of the Hermes that gets the webhooks.", show_default="this machine, web.port of the settings"
        ),
    ] = None,
    account: Annotated[str, typer.Option(help="The name of the account in Hermes.")] = "fake",
    seed: Annotated[int, typer.Option(help="The same seed gives the same tokens, ids and random failures.")] = 0,
    speed: Annotated[float, typer.Option(min=0.001, help="How many seconds of the platforms' time pass in one real second.")] = 1.0,
    joins: Annotated[
        bool, typer.Option("--join", help="Add the accounts to the Hermes of these settings. Every sender becomes an active user.")
    ] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print what Hermes must know as JSON, on one line.")] = False,
    config: Config = None,
) -> None:
    """Run strict fakes of Telegram, WhatsApp (360dialog and Cloud API) and Instagram. Ctrl-C stops them; they store nothing.

    On the page at / you write as any person, see what really arrives, and trigger failures. The quickest way to try it all:

        hermes up                      # in one terminal
        hermes platforms fake --join   # in another; then open the page that it shows"""
    address = hermes if hermes is not None else local_url(settings_from(config).web)

    async def serve() -> None:
        try:
            async with open_platforms(seed=seed, speed=speed, host=host, port=port) as opened:
                opened.connect(address, account)
                for platform in (opened.telegram, opened.whatsapp, opened.whatsapp_cloud, opened.instagram, opened.instagram_page):
                    platform.person("Ada")
                if joins:
                    await with_tables(config, lambda tables: add_accounts(tables, accounts_of(opened, account)))
                print_json(opened) if is_json else print_accounts(opened, joins=joins)
                await asyncio.Event().wait()
        except OSError as error:
            words = os.strerror(error.errno) if error.errno else str(error)  # the error's own text is longer than a person needs
            fail(f"cannot listen on {host}:{port}: {words}; choose another port with --port")

    run(run_until_signal(serve()))


async def add_accounts(tables: Tables, accounts: Sequence[ChannelAccount]) -> None:
    async with tables.database.begin() as tx:
        for account in accounts:
            await tables.channel_accounts.put(tx, account)


def accounts_of(opened: FakePlatforms, account: str) -> list[ChannelAccount]:
    """Return all five accounts, as `hermes channels add` would store them."""
    bot, number, cloud = opened.telegram, opened.whatsapp, opened.whatsapp_cloud
    header, secret = number.secret_header
    direct = {"access_token": cloud.key, "phone_number_id": cloud.phone_number_id, "app_secrets": cloud.app_secret}
    accounts = [
        (Platform.TELEGRAM, account, {"token": bot.token, "secret": bot.secret}),
        (Platform.WHATSAPP, account, {"api_key": number.key, "webhook_secrets": secret, "secret_header": header}),
        (Platform.WHATSAPP, f"{account}-cloud", {**direct, "verify_tokens": cloud.verify_token, "media_urls": opened.url}),
    ]
    for name, page in ((account, opened.instagram), (f"{account}-page", opened.instagram_page)):
        about = {"instagram_id": page.account_id, "login": str(page.login), "access_token": page.token, "app_secrets": page.app_secret}
        accounts.append((Platform.INSTAGRAM, name, {**about, "verify_tokens": page.verify_token}))
    always = {"base_url": opened.url, "is_open": "yes"}
    return [
        ChannelAccount(platform=platform, account=name, about={**about, **always}, is_polled=False) for platform, name, about in accounts
    ]


def print_accounts(opened: FakePlatforms, *, joins: bool) -> None:
    """Print the page's address, and the secrets and ids of each account."""
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"Write as any person, and trigger failures: [bold]{opened.url}/[/]\n")
    for platform in opened:
        console.print(f"[bold]{escape(platform.title)}[/]")
        for name, value in platform.facts.items():
            console.print(f"  {name:<24}{escape(value)}")
        console.print()
    enter = (
        "Hermes has these accounts now" if joins else "`--join` adds these accounts to Hermes; or use `hermes channels add` with --base-url"
    )
    console.print(f"[dim]{enter}. Ctrl-C stops the fakes; they store nothing.[/]")


def print_json(opened: FakePlatforms) -> None:
    """Print the same as JSON, for programs."""
    typer.echo(json.dumps({"url": opened.url, "platforms": {platform.name: dict(platform.facts) for platform in opened}}))
