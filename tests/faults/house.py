"""A house of workers on real stores: messages go in through the real intake, processes are struck, and a checker reads what is left.

The checker believes no process: it reads the database and the diary of model calls, and holds them against what was acknowledged."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg

from hermes.app.root import Hermes, open_hermes
from hermes.config import load
from hermes.ports.credits import Balance
from hermes.ports.errors import StoreUnavailable
from hermes.ports.inbox import AcceptedMessage
from hermes.ports.users import UserState
from hermes.router.replies import ReplyKind, reply
from hermes.stores.embedded import StoreUrls
from hermes.stores.postgres.database import connection_of
from hermes.stores.seal import new_master_key
from hermes.turn import Envelope, MessageEvent, Platform
from tests.faults.worker import Orders, Trap
from tests.flows.echo import without_note

APOLOGY = reply(ReplyKind.APOLOGY, "en")

PATIENCE_S = 60.0
GRANT = 100_000
ACCOUNT = "shop"

"""What a sender hears that has to come again. The second is the job queue's own: test_outages.py shows where it gets out."""

QUICK = {
    "HERMES_WORK_HEARTBEAT_S": "0.2",
    "HERMES_WORK_STALLED_AFTER_S": "2.0",
    "HERMES_WORK_SWEEP_S": "0.2",
    "HERMES_WORK_POLL_S": "0.2",
    "HERMES_WORK_DRAIN_S": "5",
    "HERMES_WORK_CONCURRENCY": "8",
    "HERMES_DATABASE_POOL_MAX": "8",
    "HERMES_CREDITS_SIGNUP_GRANT": str(GRANT),
    "HERMES_WEB_PROCESSES": "1",
}
"""Everything that waits in the product, waits for a moment here."""


# --- processes


class Nursery:
    """Forks workers; see worker.py. Ends with all of them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.worker"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(self, orders: Orders) -> int:
        pid: int = self._ask({"start": orders.written()})
        return pid

    def ended(self, pid: int) -> int | None:
        code: int | None = self._ask({"ended": pid})
        return code

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@dataclass(slots=True)
class Worker:
    """One process, and what is left of it."""

    nursery: Nursery
    pid: int
    log: Path
    sprung: Path
    code: int | None = None

    @property
    def is_alive(self) -> bool:
        if self.code is None:
            self.code = self.nursery.ended(self.pid)
        return self.code is None

    @property
    def is_stopped(self) -> bool:
        """Whether SIGSTOP has taken hold of it."""
        return self.is_alive and Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"

    @property
    def is_sprung(self) -> bool:
        return self.sprung.exists()

    def strike(self, blow: int) -> None:
        if self.is_alive:
            os.kill(self.pid, blow)

    def said(self, event: str) -> list[dict[str, Any]]:
        """Its log lines of that event."""
        return [said for said in map(json.loads, self._lines()) if said["event"] == event]

    def failures(self) -> list[str]:
        """The errors that its turns ended with."""
        return [said["error"] for said in self.said("turn_failed")]

    def last_words(self) -> str:
        return "\n".join(self._lines()[-15:])

    def _lines(self) -> list[str]:
        """What it logged. A line that is still being written is left out."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return text.splitlines()[: text.count("\n")]


# --- what was said and done


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that was acknowledged."""

    receipt: AcceptedMessage
    channel: str
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the model, as the diary has it. Without an end it was cut off."""

    text: str
    pid: int
    prepared_by: int
    began: float
    ended: float | None
    answer: str | None


@dataclass(frozen=True, slots=True)
class Sent:
    """A parcel that reached the platform."""

    turn_id: UUID
    body: str
    is_ambiguous: bool
    at: float


class Row(NamedTuple):
    """All that the database says about a turn. Lists, so that one too many is seen."""

    inbox: str
    run: str | None
    interactions: list[str]
    parcels: list[str]
    entries: list[str]
    effects: list[tuple[str, int, bool]]


ANSWERED = Row("done", "done", ["answered"], ["sent"], ["post"], [("call_model", 0, True)])

TURNS = """
select turn_id, inbox.conversation_id, seq, inbox.state, runs.state,
    array(select meta ->> 'outcome' from interactions where interactions.turn_id = inbox.turn_id),
    array(select outbox.state from outbox where outbox.turn_id = inbox.turn_id order by part),
    array(select kind from credit_entries as entry where entry.turn_id = inbox.turn_id and kind in ('post', 'refund') order by id),
    array(select json_build_array(step, index, result is not null and done_at is not null) from run_events as effect
          where effect.turn_id = inbox.turn_id and type = 'effect' order by id)
from inbox left join runs using (turn_id)
order by conversation_id, seq"""

LEFT = """
select (select count(*) from inbox where state = 'waiting'), (select count(*) from outbox where state in ('pending', 'attempting')),
    (select count(*) from procrastinate_jobs)"""


@dataclass(slots=True)
class House:
    """Workers and senders around one database."""

    hermes: Hermes
    nursery: Nursery
    folder: Path
    environ: Mapping[str, str]
    accepted: dict[UUID, Accepted] = field(default_factory=dict)
    """Acknowledged messages, by turn."""
    tried: dict[str, str] = field(default_factory=dict)
    """The text of every message that was ever sent, by event key; acknowledged or not."""
    workers: list[Worker] = field(default_factory=list)

    # senders

    async def send(self, channel: str, text: str, platform: Platform = Platform.REST) -> AcceptedMessage:
        """Send a message once. Raises StoreUnavailable: then nobody knows whether it is there."""
        key = f"key of {text}"
        self.tried[key] = text
        event = MessageEvent(platform=platform, sender_id=channel, text=text)
        envelope = Envelope(event=event, account=ACCOUNT, channel_id=channel, event_key=key)
        receipt = await self.hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)
        self.accepted[receipt.turn_id] = Accepted(receipt, channel, text)
        return receipt

    async def send_until_acknowledged(self, channel: str, text: str) -> AcceptedMessage:
        """Send a message as every platform does: again, under the same key, until somebody says that it was received."""
        while True:
            try:
                return await self.send(channel, text)
            except StoreUnavailable:
                await asyncio.sleep(0.1)

    async def send_all(self, *texts: str, platform: Platform = Platform.REST) -> list[AcceptedMessage]:
        """Send texts one after the other, each to the channel that its first letter names."""
        return [await self.send(text[0], text, platform) for text in texts]

    # workers

    def worker(
        self, trap: Trap | None = None, *, environ: Mapping[str, str] | None = None, answer_s: float = 0.0, **options: str | None
    ) -> Worker:
        """Start a worker."""
        place = self.folder / f"worker-{len(self.workers)}"
        log, sprung = place.with_suffix(".log"), place.with_suffix(".sprung")
        orders = Orders(
            environ={**self.environ, **(environ or {})},
            diary=str(self.folder / "diary"),
            post=str(self.folder / "post"),
            log=str(log),
            sprung=str(sprung),
            trap=trap,
            answer_s=answer_s,
            **options,
        )
        worker = Worker(self.nursery, self.nursery.start(orders), log, sprung)
        self.workers.append(worker)
        return worker

    async def dismiss(self, worker: Worker) -> int | None:
        """Tell a worker to stop, and wait until it has; return its exit code."""
        worker.strike(signal.SIGTERM)
        await self.until(lambda: not worker.is_alive, "the worker stops")
        return worker.code

    def close(self) -> None:
        for worker in self.workers:
            worker.strike(signal.SIGKILL)
        for worker in self.workers:
            while worker.is_alive:
                time.sleep(0.005)

    # waiting

    async def until(self, is_so: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        end = time.monotonic() + patience_s
        while not is_so():
            assert time.monotonic() < end, f"not in time: {what}\n{self._last_words()}"
            await asyncio.sleep(0.01)

    async def until_quiet(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until nothing waits any more: no message, no parcel, no job."""
        end = time.monotonic() + patience_s
        left: Any = None
        while time.monotonic() < end:
            with suppress(StoreUnavailable):
                left = (await self.ask(LEFT))[0]
                if not any(left):
                    return
            await asyncio.sleep(0.05)
        raise AssertionError(f"after {patience_s:.0f} s there are left: messages, parcels, jobs = {left}\n{self._last_words()}")

    def _last_words(self) -> str:
        return "\n".join(f"--- worker {worker.pid}\n{worker.last_words()}" for worker in self.workers)

    # reading

    async def ask(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        async with self.hermes.database.begin() as tx:
            return await (await connection_of(tx).execute(query.encode(), values)).fetchall()

    def calls(self) -> list[Call]:
        """The diary, in the order in which the calls began."""
        by_name: dict[str, dict[str, Any]] = {}
        for note in notes(self.folder / "diary"):
            by_name.setdefault(note.pop("call"), {"ended": None, "answer": None}).update(note)
        return sorted((Call(**call) for call in by_name.values()), key=lambda call: call.began)

    def sent(self) -> list[Sent]:
        """What reached the platform, in that order."""
        return [Sent(**{**note, "turn_id": UUID(note["turn_id"])}) for note in notes(self.folder / "post")]

    async def answer(self, turn_id: UUID) -> str | None:
        async with self.hermes.database.begin() as tx:
            found = await self.hermes.adapters.outbox.answer(tx, turn_id)
        return found.text if found else None

    # the checker

    async def check(self, *, calls: Mapping[str, int] | None = None, buried: Sequence[str] = ()) -> None:
        """Hold the database and the diary against what was acknowledged. Raises AssertionError.

        `calls` says how often the model was asked about a text, where that is not once; None stands for: as often as it took.
        `buried` are the texts that must have ended with an apology."""
        found = await self.ask(TURNS)
        turns = {row[0]: Row(*row[3:8], [tuple(effect) for effect in row[8]]) for row in found}
        assert set(turns) >= set(self.accepted), "an acknowledged message is not there"
        texts = await self._texts({row[0] for row in found})
        assert sorted(texts.values()) == sorted(set(texts.values())), "a message is there twice"
        answered = {turn for turn in turns if texts[turn] not in buried}
        unlike = {texts[turn]: turns[turn] for turn in answered if turns[turn] != ANSWERED}
        assert unlike == {}, f"turns that did not end with one answer: {unlike}\n{self._last_words()}"

        answers = {turn: await self.answer(turn) for turn in turns}
        given: dict[str, set[str | None]] = defaultdict(set)
        for call in self.calls():
            given[call.text].add(call.answer)
        wrong = {texts[turn]: answers[turn] for turn in answered if answers[turn] not in given[texts[turn]] - {None}}
        assert wrong == {}, "an answer that the model did not give to this message"
        assert {answers[turn] for turn in set(turns) - answered} <= {APOLOGY}

        conversations: dict[UUID, list[UUID]] = defaultdict(list)
        for turn, conversation, *_ in found:
            conversations[conversation].append(turn)
        for conversation, members in conversations.items():
            paid = [turn for turn in members if turn in answered]
            await self._check_graph(conversation, [(texts[turn], answers[turn]) for turn in paid])
            await self._check_money(conversation, len(paid))
        async with self.hermes.database.begin() as tx:
            assert await self.hermes.adapters.credits.audit(tx) == []
        assert await self.ask("select * from open_reserves") == []
        assert await self.ask(LEFT) == [(0, 0, 0)]
        self._check_calls({texts[turn] for turn in answered}, calls)

    async def _texts(self, turns: set[UUID]) -> dict[UUID, str]:
        """The text of each turn, by the event key that it was sent with; what nobody sent has none."""
        keys = await self.ask("select turn_id, event_key from inbox")
        texts = {turn: self.tried[key] for turn, key in keys if turn in turns}
        assert texts.items() >= {turn: message.text for turn, message in self.accepted.items()}.items()
        return texts

    async def _check_graph(self, conversation: UUID, said: list[tuple[str, str | None]]) -> None:
        sessions = await self.ask("select id from sessions where conversation_id = %s", [conversation])
        async with self.hermes.database.begin() as tx:
            graphs = [await self.hermes.adapters.graphs.load(tx, session) for (session,) in sessions]
        expected = [entry for question, answer in said for entry in (("user", question), ("assistant", answer))]
        assert [[(message["role"], without_note(message["content"])) for message in graph] for graph in graphs] == [expected]

    async def _check_money(self, conversation: UUID, turns: int) -> None:
        [[user]] = await self.ask("select user_id from conversations where id = %s", [conversation])
        async with self.hermes.database.begin() as tx:
            balance = await self.hermes.adapters.credits.balance(tx, user)
        assert balance == Balance(available=int(self.environ["HERMES_CREDITS_SIGNUP_GRANT"]) - turns, reserved=0)

    def _check_calls(self, texts: set[str], calls: Mapping[str, int] | None) -> None:
        made: dict[str, int] = dict.fromkeys(texts, 0)
        for call in self.calls():
            if call.text in made:
                made[call.text] += 1
        if calls is None:
            assert min(made.values(), default=1) >= 1
        else:
            assert made == dict.fromkeys(texts, 1) | dict(calls)

    async def check_order(self) -> None:
        """Within a conversation the model was asked in the order of the messages' numbers, one at a time."""
        rows = await self.ask("select event_key, conversation_id, seq from inbox")
        places = {self.tried[key]: (conversation, seq) for key, conversation, seq in rows}
        conversations: dict[UUID, list[tuple[float, float, int]]] = defaultdict(list)
        for call in self.calls():
            conversation, seq = places[call.text]
            conversations[conversation].append((call.began, call.ended or call.began, seq))
        for calls in conversations.values():
            numbers = [seq for _, _, seq in calls]
            assert numbers == sorted(numbers)
            assert all(earlier[1] <= later[0] for earlier, later in pairwise(calls)), "two at once in one conversation"


def notes(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


# --- opening and closing


@asynccontextmanager
async def open_house(nursery: Nursery, folder: Path, stores: StoreUrls, **settings: str) -> AsyncIterator[House]:
    """A house on a database. No process of it is left at the end of the block."""
    environ = {
        **QUICK,
        "HERMES_HOME": str(folder / "home"),
        "HERMES_DATABASE_URL": stores.database_url,
        "HERMES_REDIS_URL": stores.redis_url,
        "HERMES_MASTER_KEYS": new_master_key(),
        **settings,
    }
    # The pool of the test's own process is larger than a worker's: it plays the web, where many come at once.
    async with open_hermes(load({**environ, "HERMES_DATABASE_POOL_MAX": "16"})) as hermes:
        house = House(hermes, nursery, folder, environ)
        try:
            yield house
        finally:
            house.close()


@contextmanager
def fresh_database(servers: StoreUrls, template: str) -> Iterator[StoreUrls]:
    """A migrated database of its own, on the shared servers."""
    name = f"faults_{uuid4().hex[:12]}"
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        connection.execute(f"create database {name} template {template} strategy file_copy")
    try:
        yield StoreUrls(psycopg.conninfo.make_conninfo(servers.database_url, dbname=name), servers.redis_url)
    finally:
        with psycopg.connect(servers.database_url, autocommit=True) as connection:
            connection.execute(f"drop database {name} with (force)")


async def eventually(look: Callable[[], Awaitable[bool]], what: str, patience_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + patience_s
    while not await look():
        assert time.monotonic() < end, f"not in time: {what}"
        await asyncio.sleep(0.02)
