"""Wait for the first message to a new account: it shows that the whole way from the sender to Hermes works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import typer
from rich.console import Console

from hermes.app import Hermes
from hermes.app.channels import TelegramPollers
from hermes.ports.channels import ChannelAccount
from hermes.ports.inbox import InboxMessage
from hermes.tasks import end_tasks
from hermes.terminal import one_line

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
    task = asyncio.create_task(TelegramPollers(hermes.account_channels, hermes.post, hermes.inbound).run(), name="polling")
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
