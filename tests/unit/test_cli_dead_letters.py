"""`hermes dead-letters` on the real stores: what it does, what it says, and with which code it ends."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import structlog
from click.testing import Result
from typer.testing import CliRunner

from hermes.app.root import Hermes, open_hermes
from hermes.cli import build_app
from hermes.config import load
from hermes.ports.channels import SendOutcome
from hermes.ports.outbox import DeliveryResult, OutboxState
from hermes.ports.users import UserState
from hermes.turn import Envelope, MessageEvent, Platform


class Console:
    """The command line on stores of this test's own, and Hermes itself on the same."""

    def __init__(self, folder: Path, database_url: str, redis_url: str) -> None:
        self.folder, self.database_url = folder, database_url
        self.environ = {"HERMES_HOME": str(folder / "home"), "HERMES_DATABASE_URL": database_url, "HERMES_REDIS_URL": redis_url}

    def __call__(self, *words: object) -> Result:
        arguments = ["dead-letters", *map(str, words)]
        return CliRunner().invoke(build_app(arguments), arguments, env={**self.environ, "COLUMNS": "250"})

    def said(self, *words: object) -> str:
        result = self(*words)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def read(self, *words: object) -> Any:
        return json.loads(self.said(*words, "--json"))

    def refused(self, *words: object) -> str:
        """The one line of a command that ended with bad input, and said nothing else."""
        result = self(*words)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), (result.stdout, result.stderr)
        return result.stderr.removeprefix("hermes: ").removesuffix("\n")

    def inside(self, act: Callable[[Hermes], Awaitable[Any]]) -> Any:
        async def opened() -> Any:
            async with open_hermes(load(self.environ)) as hermes:
                return await act(hermes)

        return asyncio.run(opened())

    def bury(self, *texts: str, chat: str = "42", outcome: SendOutcome = SendOutcome.REJECTED, reason: str = "400 too long") -> list[int]:
        """Give an answer up, in so many parts; return their numbers."""

        async def act(hermes: Hermes) -> list[int]:
            event = MessageEvent(platform=Platform.TELEGRAM, sender_id=chat, text="hi")
            envelope = Envelope(event=event, account="bali", channel_id=chat, event_key=str(uuid4()))
            receipt = await hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)
            outbox, ids = hermes.adapters.outbox, []
            async with hermes.database.begin() as tx:
                claim: Any = await hermes.adapters.inbox.claim(tx, receipt.turn_id)
                await outbox.put(tx, claim, [{"text": text} for text in texts])
                while parcel := await outbox.take(tx, claim.conversation_id):
                    await outbox.settle(tx, parcel, DeliveryResult(state=OutboxState.DEAD, outcome=outcome, reason=reason))
                    ids.append(parcel.id)
            return ids

        found: list[int] = self.inside(act)
        return found

    def rows(self, query: str) -> list[Any]:
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def letters(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    monkeypatch.chdir(tmp_path)
    handlers = logging.getLogger().handlers[:]
    yield Console(tmp_path, database_url, redis_url)
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers  # the commands set up a log of their own


def test_none_is_said_so(letters: Console) -> None:
    assert letters.said("list") == "There is no dead letter.\n"
    assert letters.read("list") == []
    assert letters.said("requeue", "--all") == "There is no such dead letter; nothing changed.\n"
    assert letters.said("drop", "--all") == "0 dead letters dropped.\n"


def test_they_are_listed_and_shown(letters: Console) -> None:
    [one] = letters.bury("See you at *Old Man's*")
    [two] = letters.bury("a\nb\x1b[31m", chat="[bold]7", outcome=SendOutcome.UNAUTHORIZED, reason="401 Unauthorized")
    first, second = [line.split() for line in letters.said("list").splitlines()[1:]]
    assert (first[0], first[3:6], second[0]) == (str(two), ["telegram", "bali", "[bold]7"], str(one))
    assert "Old Man" not in letters.said("list")
    [listed] = letters.read("list", "--outcome", "rejected")
    assert {name: listed[name] for name in ("id", "platform", "account", "channel_id", "part", "news", "outcome", "reason", "tries")} == {
        "id": one,
        "platform": "telegram",
        "account": "bali",
        "channel_id": "42",
        "part": 0,
        "news": "",
        "outcome": "rejected",
        "reason": "400 too long",
        "tries": 1,
    }
    shown = letters.read("show", one)
    assert (shown["text"], [part["state"] for part in shown["parts"]]) == ("See you at *Old Man's*", ["dead"])
    told = letters.said("show", two)
    assert "401 Unauthorized" in told
    assert told.endswith("\na\nb\N{REPLACEMENT CHARACTER}[31m\n")
    assert letters.said("list", "--platform", "whatsapp") == "None of the 2 dead letters matches.\n"


def test_one_is_sent_again(letters: Console) -> None:
    one, two = letters.bury("one", "two")
    said = letters.said("requeue", two, "--by", "Ada")
    assert said == "1 dead letter will be sent again, last in their conversations. A worker must be running.\n"
    assert letters.rows("select facts ->> 'by', facts ->> 'part' from run_events where type = 'dead_letter_requeued'") == [("Ada", "1")]
    assert [letter["id"] for letter in letters.read("list")] == [one]
    assert letters.rows("select state, is_late from outbox order by id") == [("dead", False), ("pending", True)]
    assert letters.rows("select queue_name, status from procrastinate_jobs where queue_name = 'deliveries'") == [("deliveries", "todo")]


def test_all_that_fit_are_sent_again(letters: Console) -> None:
    letters.bury("one", outcome=SendOutcome.UNAUTHORIZED)
    letters.bury("two", chat="7", outcome=SendOutcome.UNAUTHORIZED)
    [kept] = letters.bury("three", chat="8")
    assert len(letters.read("requeue", "--all", "--outcome", "unauthorized")) == 2
    assert [letter["id"] for letter in letters.read("list")] == [kept]


def test_they_are_dropped(letters: Console) -> None:
    one, two, three = letters.bury("one", "two", "three")
    assert letters.said("drop", one, two) == "2 dead letters dropped.\n"
    assert letters.refused("drop", "--all") == "nothing was dropped; 1 dead letter would be gone for good with: --all --yes"
    assert [letter["id"] for letter in letters.read("list")] == [three]
    assert [letter["id"] for letter in letters.read("drop", "--all", "--yes")] == [three]
    assert letters.rows("select count(*) from outbox") == [(0,)]
    assert len(letters.rows("select from run_events where type = 'dead_letter_dropped' and facts ? 'by'")) == 3, "not the refused ones"


def test_a_letter_of_somebody_who_was_deleted_cannot_be_read(letters: Console) -> None:
    [one] = letters.bury("secret")

    async def forget(hermes: Hermes) -> None:
        async with hermes.database.begin() as tx:
            [user] = await hermes.adapters.people.list(tx)
            await hermes.adapters.people.forget(tx, user.id)

    letters.inside(forget)
    assert letters.said("show", one).endswith("Its user was erased, so its text can no longer be read.\n")
    assert letters.read("show", one)["text"] is None


@pytest.mark.parametrize("command", ["requeue", "drop"])
def test_what_cannot_be_is_one_line_and_changes_nothing(letters: Console, command: str) -> None:
    [one] = letters.bury("one")
    missing = "there is no dead letter 999; `hermes dead-letters list` shows them. Nothing changed"
    assert letters.refused(command, one, 999) == missing
    assert letters.refused(command) == "which dead letters? Give their numbers, or --all"
    assert letters.refused(command, one, "--all") == "give either numbers or --all, not both"
    assert letters.refused(command, one, "--account", "bali") == (
        "--platform, --account and --outcome need --all; leave them out with numbers"
    )
    assert letters.refused(command, "one") == "'one' is not the number of a dead letter; `hermes dead-letters list` shows the numbers"
    assert letters.refused(command, "--all", "--platform", "telegrm") == "there is no platform 'telegrm'; did you mean telegram?"
    assert letters.refused("list", "--outcome", "rejectd") == "there is no outcome 'rejectd'; did you mean rejected?"
    assert letters.refused("show", 999) == missing
    assert [letter["id"] for letter in letters.read("list")] == [one]


def test_the_help_teaches(letters: Console) -> None:
    said = " ".join(letters.said("--help").split())
    assert "hermes dead-letters requeue --all --outcome unauthorized" in said
