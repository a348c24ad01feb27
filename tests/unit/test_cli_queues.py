"""`hermes queues`, `hermes messages revive` and `hermes workers` on the real stores: what they say, and with which code they end."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import structlog
from click.testing import Result
from typer.testing import CliRunner

from hermes.app.root import Hermes, open_hermes
from hermes.cli import build_app
from hermes.config import load
from hermes.ports.inbox import Claim
from hermes.ports.users import UserState
from hermes.turn import Envelope, MessageEvent, Platform


class Shell:
    """The command line on stores of this test's own, and Hermes itself on the same."""

    def __init__(self, folder: Path, database_url: str, redis_url: str) -> None:
        self.database_url = database_url
        self.environ = {"HERMES_HOME": str(folder / "home"), "HERMES_DATABASE_URL": database_url, "HERMES_REDIS_URL": redis_url}

    def __call__(self, *words: object) -> Result:
        arguments = [*map(str, words)]
        return CliRunner().invoke(build_app(arguments), arguments, env={**self.environ, "COLUMNS": "250"})

    def said(self, *words: object) -> str:
        result = self(*words)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def refused(self, *words: object) -> str:
        result = self(*words)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), (result.stdout, result.stderr)
        return result.stderr.removeprefix("hermes: ").removesuffix("\n")

    def inside(self, act: Callable[[Hermes], Awaitable[Any]]) -> Any:
        async def opened() -> Any:
            async with open_hermes(load(self.environ)) as hermes:
                return await act(hermes)

        return asyncio.run(opened())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(query.encode()).fetchall()


@pytest.fixture
def shell(tmp_path: Path, database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.chdir(tmp_path)
    handlers = logging.getLogger().handlers[:]
    yield Shell(tmp_path, database_url, redis_url)
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers  # the commands set up a log of their own


async def take_in(hermes: Hermes, text: str) -> UUID:
    event = MessageEvent(platform=Platform.REST, sender_id="ada", text=text)
    envelope = Envelope(event=event, account="shop", channel_id="ada", event_key=str(uuid4()))
    return (await hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)).turn_id


async def bury_one(hermes: Hermes) -> UUID:
    turn_id = await take_in(hermes, "a secret")
    async with hermes.database.begin() as tx:
        claim = await hermes.adapters.inbox.claim(tx, turn_id)
        assert isinstance(claim, Claim)
        await hermes.adapters.inbox.bury(tx, claim, "gave up at attempt 6")
    return turn_id


def test_a_buried_message_is_listed_and_revived_once(shell: Shell) -> None:
    turn_id, waiting = shell.inside(bury_one), shell.inside(lambda hermes: take_in(hermes, "hello"))
    shown = shell.said("queues", "buried")
    assert (str(turn_id) in shown, "gave up at attempt 6" in shown, "secret" in shown) == (True, True, False)
    assert json.loads(shell.said("queues", "waiting", "--json"))["data"][0]["turn_id"] == str(waiting)
    assert json.loads(shell.said("messages", "revive", turn_id, "--json")) == {"revived": [str(turn_id)], "refused": {}}
    again = shell("messages", "revive", turn_id)
    assert (again.exit_code, "it was not given up" in again.stderr) == (2, True)
    assert shell.said("messages", "revive", "--all", "--since", "24h") == "No message was revived.\n"
    entries = {entry["turn_id"]: entry for entry in json.loads(shell.said("queues", "waiting", "--json"))["data"]}
    revived = entries[str(turn_id)]
    assert (revived["is_revived"], revived["reason"], revived["behind"]) == (True, "behind", str(waiting))
    assert "waits for a worker" in shell.said("queues", "waiting")
    assert shell.rows("select action, subject, operator like '%@cli', face from audit order by id") == [
        ("message.revive", str(turn_id), True, "cli"),
        ("message.revive", str(turn_id), True, "cli"),
    ]
    counted = {each["queue"]: each["entries"] for each in json.loads(shell.said("queues", "--json"))["data"]}
    assert counted == {"waiting": 2, "buried": 0, "outbox": 0, "retrying": 0, "proactive": 0, "dead": 0}
    assert "messages without an answer" in shell.said("queues")


def test_many_are_revived_with_their_reason_and_an_unknown_one_stops_none(shell: Shell) -> None:
    first, second, third = (shell.inside(bury_one) for _ in range(3))
    unknown = UUID(int=1)
    done = json.loads(shell.said("messages", "revive", first, unknown, second, "--reason", "the model is back", "--json"))
    assert done == {"revived": [str(first), str(second)], "refused": {str(unknown): f"there is no turn {unknown}"}}
    assert shell.said("messages", "revive", "--all", "--reason", "all of them") == "1 message revived. A worker answers them.\n"
    reasons = shell.rows("select subject, reason from audit where action = 'message.revive' order by id")
    assert reasons == [(str(first), "the model is back"), (str(second), "the model is back"), (str(third), "all of them")]


def test_bad_input_is_one_line(shell: Shell) -> None:
    assert shell.refused("messages", "revive") == "which messages? Give ids of turns, or --all"
    assert shell.refused("messages", "revive", uuid4(), "--all") == "give either ids or --all, not both"
    assert shell.refused("messages", "revive", uuid4(), "--since", "1h") == "--since needs --all"
    assert shell.refused("messages", "revive", "x") == "'x' is not the id of a turn; `hermes queues buried` shows the ids"
    unknown = shell("messages", "revive", UUID(int=1))
    assert (unknown.exit_code, unknown.stderr) == (2, f"there is no turn {UUID(int=1)}\n")
    assert "there is no queue 'wating'" in shell.refused("queues", "wating")
    assert shell.refused("workers", "--give-away", "x") == "'x' is not the id of a process; `hermes workers` shows the ids"
    assert shell.refused("workers", "--give-away", UUID(int=1)) == f"there is no process {UUID(int=1)}; `hermes workers` shows them"
    assert shell.said("workers") == "No process of Hermes runs; start them: hermes up\n"
    assert shell.said("queues", "dead") == "The queue dead is empty.\n"
