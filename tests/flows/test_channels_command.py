"""`hermes channels` as an operator types it: real stores, and a Telegram that checks the token."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from hermes.channels.fakes import FakePlatforms, open_platforms
from hermes.stores.seal import new_master_key
from tests.preloaded import preloaded_hermes


class Terminal:
    """Runs the command with settings of its own."""

    def __init__(self, environ: dict[str, str], folder: Path) -> None:
        self._environ, self._folder = environ, folder

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [*preloaded_hermes(), "channels", *words]
        environ = {**self._environ, **variables}
        return subprocess.run(command, env=environ, cwd=self._folder, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def terminal(database_url: str, redis_url: str, tmp_path: Path) -> Terminal:
    own = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
    stores = {"HERMES_DATABASE_URL": database_url, "HERMES_REDIS_URL": redis_url, "HERMES_MASTER_KEYS": new_master_key()}
    return Terminal({**own, **stores, "HERMES_HOME": str(tmp_path)}, tmp_path)


async def in_thread(terminal: Terminal, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The platforms answer in this loop, so the command runs beside it."""
    return await asyncio.to_thread(terminal.run, *words, **variables)


async def test_a_bot_is_added_with_its_token_from_the_variable_and_listed_without_it(terminal: Terminal) -> None:
    async with open_platforms() as platforms:
        added = await add(terminal, platforms, platforms.telegram.token)
        assert (added.returncode, json.loads(added.stdout)["account"]) == (0, "telegram"), added.stderr
        refused = await add(terminal, platforms, f"{'1' * 9}:{'A' * 35}")
        assert (refused.returncode, refused.stderr) == (2, "hermes: Telegram does not know this token; copy it again from @BotFather\n")
    listed = await in_thread(terminal, "list", "--json")
    [account] = json.loads(listed.stdout)
    assert account == {"platform": "telegram", "account": "telegram", "is_polled": True, "newcomers": "active"}
    assert platforms.telegram.token not in listed.stdout + added.stdout + added.stderr
    assert (await in_thread(terminal, "remove", "telegram", "telegram")).returncode == 0
    gone = await in_thread(terminal, "remove", "telegram", "telegram")
    assert (gone.returncode, gone.stderr) == (2, "hermes: there is no telegram account telegram; hermes channels list shows them\n")


async def add(terminal: Terminal, platforms: FakePlatforms, token: str) -> subprocess.CompletedProcess[str]:
    return await in_thread(terminal, "add", "telegram", "--open", "--json", "--base-url", platforms.url, TELEGRAM_TOKEN=token)


async def test_for_a_number_it_says_what_to_enter_where(terminal: Terminal) -> None:
    said = await in_thread(terminal, "add", "whatsapp", "--url", "https://h.example", WHATSAPP_API_KEY="k")
    assert said.returncode == 0, said.stderr
    assert "https://h.example/webhooks/whatsapp/whatsapp/" in said.stdout
    meta = ("--phone-number-id", "1055", "--url", "https://h.example", "--name", "direct")
    secrets = {"WHATSAPP_ACCESS_TOKEN": "t", "WHATSAPP_APP_SECRET": "s"}
    said = await in_thread(terminal, "add", "whatsapp", *meta, **secrets)
    assert "Callback URL   https://h.example/webhooks/whatsapp/direct\n" in said.stdout


async def test_the_first_message_is_shown_when_it_arrives_and_what_was_sent_is_listed(terminal: Terminal) -> None:
    async with open_platforms() as platforms:
        command = ("add", "telegram", "--open", "--wait", "30", "--base-url", platforms.url)
        waiting = asyncio.create_task(in_thread(terminal, *command, TELEGRAM_TOKEN=platforms.telegram.token))
        ada = platforms.telegram.person("Ada")
        await asyncio.sleep(3)
        ada.say("hello there")
        shown = await waiting
        assert shown.returncode == 0, shown.stderr
        assert f"It works: {ada.id} wrote “hello there”." in shown.stderr
        assert "Write to it: https://t.me/hermes_fake_bot" in shown.stdout
    nothing = await in_thread(terminal, "sent")
    assert (nothing.returncode, nothing.stdout) == (0, "Hermes has sent nothing there yet.\n")


async def test_without_anybody_in_front_of_it_nobody_waits_and_whoever_waits_in_vain_is_told(terminal: Terminal) -> None:
    async with open_platforms() as platforms:
        command = ("add", "telegram", "--base-url", platforms.url)
        added = await in_thread(terminal, *command, TELEGRAM_TOKEN=platforms.telegram.token)
        assert (added.returncode, added.stderr) == (0, "")
        vain = await in_thread(terminal, *command, "--wait", "0.5", TELEGRAM_TOKEN=platforms.telegram.token)
        assert (vain.returncode, "No message has come yet." in vain.stderr) == (0, True)
