"""What happens after a turn and by the clock, on the real database: messages are learnt from, reminders are said, dreams are dreamt; each
once, whichever process looks, whichever is killed."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
import structlog
from redis.asyncio import Redis

from hermes.delivery.outbox_delivery import OutboxDelivery, SettlementWriter
from hermes.ops.metrics import LogAlerts, Metrics
from hermes.packs.concierge.catalogue import PostgresProducts
from hermes.packs.concierge.ports import Product
from hermes.packs.concierge.records import PostgresPriceWatchers, PostgresReminders
from hermes.packs.concierge.reminders import take_price_drops, take_reminders
from hermes.ports.backends import ModelRequest
from hermes.ports.credits import BudgetUsage
from hermes.ports.errors import StoreUnavailable
from hermes.ports.inbox import Claim
from hermes.ports.memories import DreamDepth, Embedding, Fact, FactOrigin
from hermes.ports.models import CallSource
from hermes.ports.outbox import DeliveryResult, OutboxMessage, OutboxState
from hermes.ports.runtime import Transaction, Transactions
from hermes.ports.sessions import GraphEntry
from hermes.ports.users import Agent, User, UserState
from hermes.router.chores import Chore, ChoreRun, ChoreScheduler
from hermes.router.proactive import ProactiveMessenger
from hermes.router.steps.build_messages import Prompt
from hermes.soul.dream import Dreamer, DreamJob
from hermes.soul.extract import LearnJob, MemoryWriter, re_embed
from hermes.soul.loader import SoulLoader
from hermes.soul.memory_model import NO_ANSWER_ERRORS, MemoryModel
from hermes.soul.recall import Recall
from hermes.soul.sanitize import sanitize_memory_value, scan
from hermes.soul.supersede import LearnedFact
from hermes.soul.trivial import is_trivial
from hermes.stores.embeddings import HashedEmbeddings
from hermes.stores.postgres.chores import PostgresChores
from hermes.stores.postgres.credits import PostgresCredits
from hermes.stores.postgres.database import Database, connection_of, open_database
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.job_queue import PostgresJobQueue, WorkerOptions, open_job_queue
from hermes.stores.postgres.journal import PostgresJournal
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.memories import PostgresDreams, PostgresMemories, PostgresPastMessages
from hermes.stores.postgres.outbox import PostgresOutbox
from hermes.stores.postgres.sessions import PostgresSessions
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.redis.answer_signals import RedisAnswerSignals
from hermes.stores.redis.caches import RedisSoulCache
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.testing import ScriptedModel
from hermes.turn import Envelope, MessageEvent, Platform
from tests.flows.directory import Directory

QUICK = WorkerOptions(concurrency=4, poll_s=0.1, sweep_s=0.2, drain_s=2.0, proactive_waits_s=(0.05,), memory_waits_s=(0.05, 0.05, 0.05))
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
PATIENCE_S = 20.0
REMINDER = "⏰ It's time for your reminder.\nYou asked me to remind you of this: call mum"


class Clock:
    def now(self) -> datetime:
        return NOON


class Steady:
    """Everybody is spoken to in their own language."""

    def of(self, user: User, _: str) -> str:
        return user.language or "en"

    def new_language(self, _: User, __: str) -> str | None:
        return None


class Post:
    """Telegram, as far as it is seen from here: notes what it was given."""

    def __init__(self) -> None:
        self.got: list[str] = []

    async def send(self, parcel: OutboxMessage) -> DeliveryResult:
        assert isinstance(parcel.body, str)
        self.got.append(parcel.body)
        return DeliveryResult(state=OutboxState.SENT)


class Plenty:
    """Budgets of which nothing is used, in tiers that give enough."""

    day_tokens, month_tokens = 50_000, 1_500_000

    async def used(self, _: UUID) -> BudgetUsage:
        return BudgetUsage(day_tokens=0, day_held=0, day_micro_usd=0, month_tokens=0, month_held=0)


class Flapping:
    """A store that is away for the first so many transactions."""

    def __init__(self, database: Database, failures: int) -> None:
        self._database, self._failures = database, failures
        self.once = database.once

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        if self._failures:
            self._failures -= 1
            raise StoreUnavailable
        async with self._database.begin() as tx:
            yield tx


@dataclass
class House:
    """All of it, put together on a database and a Redis of its own."""

    database: Database
    keyring: Keyring
    work: PostgresJobQueue
    redis: Redis
    replies: RedisAnswerSignals
    post: Post = field(default_factory=Post)

    def __post_init__(self) -> None:
        keyring = self.keyring
        self.people, self.inbox, self.journal = PostgresUsers(keyring), PostgresInbox(keyring), PostgresJournal(keyring)
        self.outbox, self.sessions, self.graphs = PostgresOutbox(keyring), PostgresSessions(keyring), PostgresGraphs(keyring)
        self.memories, self.dreams, self.embeddings = PostgresMemories(keyring), PostgresDreams(keyring), HashedEmbeddings()
        self.reminders, self.watchers, self.products = PostgresReminders(keyring), PostgresPriceWatchers(), PostgresProducts()
        self.bases = RedisSoulCache(self.redis, self.database, keyring)
        settlement = SettlementWriter(PostgresCredits(), self.journal, LogAlerts(Metrics()))
        self.outbox_delivery = OutboxDelivery(self.database, self.outbox, self.post.send, settlement)

    # --- what is put together

    @property
    def souls(self) -> SoulLoader:
        return SoulLoader(
            transactions=self.database,
            memories=self.memories,
            dreams=self.dreams,
            past=PostgresPastMessages(self.keyring),
            bases=self.bases,
            recall=Recall(self.database, self.memories, self.embeddings, is_trivial=is_trivial, count_skipped=lambda: None),
            alerts=LogAlerts(Metrics()),
            sanitize=sanitize_memory_value,
        )

    def writer(self, transactions: Transactions | None = None) -> MemoryWriter:
        return MemoryWriter(
            transactions=transactions or self.database,
            memories=self.memories,
            embeddings=self.embeddings,
            souls=self.souls,
            sanitize=sanitize_memory_value,
            is_trivial=is_trivial,
            fails_with=NO_ANSWER_ERRORS,
        )

    def memory_model(self, models: ScriptedModel) -> MemoryModel:
        return MemoryModel(
            models=models,
            budgets=cast("Any", Plenty()),
            transactions=self.database,
            people=self.people,
            agent_on=lambda _: Agent(name="hermes"),
            tier=lambda _: Plenty(),
        )

    def learn_job(self, models: ScriptedModel | None = None, transactions: Transactions | None = None) -> LearnJob:
        return LearnJob(
            transactions=transactions or self.database,
            inbox=self.inbox,
            journal=self.journal,
            writer=self.writer(transactions),
            clock=Clock(),
            memory_model=self.memory_model(models) if models else None,
        )

    @property
    def proactive(self) -> ProactiveMessenger:
        return ProactiveMessenger(
            transactions=self.database,
            sources=[partial(take_reminders, self.reminders), partial(take_price_drops, self.watchers)],
            inbox=self.inbox,
            people=self.people,
            outbox=self.outbox,
            sessions=self.sessions,
            graphs=self.graphs,
            work=self.work,
            channels=Directory([]),
            answer_signals=self.replies,
            languages=Steady(),
            scan=scan,
        )

    def nights(self, models: ScriptedModel | None = None) -> DreamJob:
        dreamer = Dreamer(
            transactions=self.database,
            memories=self.memories,
            dreams=self.dreams,
            souls=self.souls,
            sanitize=sanitize_memory_value,
            fails_with=NO_ANSWER_ERRORS,
        )
        return DreamJob(dreamer=dreamer, people=self.people, memory_model=self.memory_model(models) if models else None)

    # --- what happens in it

    async def hear(self, text: str, *, sender: str = "42", platform: Platform = Platform.TELEGRAM) -> Claim:
        """Accept a message and claim its turn."""
        event = MessageEvent(platform=platform, sender_id=sender, text=text)
        envelope = Envelope(event=event, account="bali", channel_id=sender, event_key=str(uuid4()))
        async with self.database.begin() as tx:
            await self.people.find_or_create(tx, "bali", platform, sender, state=UserState.ACTIVE)
            receipt = await self.inbox.accept(tx, envelope, uuid4())
            assert receipt is not None
            claim = await self.inbox.claim(tx, receipt.turn_id)
        assert isinstance(claim, Claim)
        return claim

    async def answer(self, claim: Claim, *, note: str = "<context>\nIt is noon.\n</context>", result: bytes | None = b"{}") -> None:
        """End a turn: the model was asked, and has answered unless there is no result; what follows is deferred with the end."""
        question = {"role": "user", "content": f"{note}\n\n{claim.envelope.event.text}"}
        prompt = Prompt(system="You are Hermes.", history=(), question=question, head="", offset=0)
        async with self.database.begin() as tx:
            await self.journal.begin(tx, claim, "call_model", 0, prompt.to_bytes())
            if result is not None:
                await self.journal.finish(tx, claim, "call_model", 0, result, facts={})
            await self.work.defer_memory(tx, claim.turn_id, claim.user_id)
            await self.inbox.finish(tx, claim)

    async def remind_of(self, claim: Claim, text: str = "call mum", at: datetime = NOON) -> None:
        async with self.database.begin() as tx:
            await self.reminders.add(tx, claim.user_id, claim.turn_id, at, text)

    async def facts(self, user_id: UUID) -> list[Fact]:
        async with self.database.begin() as tx:
            return list(await self.memories.live(tx, user_id, now=NOON))

    async def rows(self, query: str) -> list[Any]:
        async with self.database.begin() as tx:
            return await (await connection_of(tx).execute(query.encode())).fetchall()

    @asynccontextmanager
    async def working(
        self, *, memory: Callable[[UUID], Awaitable[None]] | None = None, turn: Callable[[UUID], Awaitable[None]] | None = None
    ) -> AsyncIterator[None]:
        """A worker that runs as long as the block lasts."""

        async def nothing(_: UUID) -> None:
            return

        hands = cast("Any", type("Hands", (), {}))
        hands.turn, hands.delivery, hands.proactive = turn or nothing, self.outbox_delivery.deliver, self.proactive.record
        hands.memory = memory or nothing
        task = asyncio.create_task(self.work.run(hands, QUICK))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def no_job_left(self) -> None:
        await until(self._is_idle)

    async def _is_idle(self) -> bool:
        return await self.rows("select from procrastinate_jobs") == []


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not await is_so():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.02)


@pytest.fixture
def master_key() -> str:
    return new_master_key()


@pytest.fixture
async def house(database: Database, redis_url: str, master_key: str) -> AsyncIterator[House]:
    async with open_job_queue(database) as work, Redis.from_url(redis_url) as redis:
        replies = RedisAnswerSignals(redis)
        yield House(database, Keyring(MasterKeys.parse([master_key])), work, redis, replies)
        await replies.aclose()


# --- learning from messages


async def test_a_message_is_learnt_from_after_its_turn(house: House) -> None:
    claim = await house.hear("I'm vegan. Remember that my sister lives in Lisbon.")
    await house.bases.put(claim.user_id, b"old", (await house.bases.get(claim.user_id)).mark)
    await house.answer(claim)
    async with house.working(memory=house.learn_job().remember):
        await house.no_job_left()
    assert [(fact.key, fact.text, fact.origin, fact.source_turn) for fact in await house.facts(claim.user_id)] == [
        ("diet", "vegan", FactOrigin.RULE, claim.turn_id),
        (None, "my sister lives in Lisbon", FactOrigin.RULE, claim.turn_id),
    ]
    assert (await house.bases.get(claim.user_id)).value is None, "the next soul is built anew"
    async with house.database.begin() as tx:
        events = await house.journal.read(tx, claim.turn_id)
    ids = [str(fact.id) for fact in await house.facts(claim.user_id)]
    assert [(event.type, dict(event.facts)) for event in events][1:] == [("memory_saved", {"added": 2, "ids": ids})], "keys are personal"


async def test_a_model_reads_what_rules_do_not_and_the_call_is_the_users_own(house: House) -> None:
    text = "My daughter Ana plays the cello"
    said = {"facts": [{"key": None, "value": "my daughter Ana plays the cello", "quote": text}]}
    claim, models = await house.hear(text), ScriptedModel([json.dumps(said)])
    await house.answer(claim)
    await house.learn_job(models).remember(claim.turn_id)
    assert [fact.text for fact in await house.facts(claim.user_id)] == ["my daughter Ana plays the cello"]
    [caller] = models.callers
    assert (caller.user_id, caller.account, caller.source, caller.turn_id) == (claim.user_id, "bali", CallSource.MEMORY, claim.turn_id)


async def test_what_the_prompt_recalled_is_not_learnt_again_and_the_users_own_words_are(house: House) -> None:
    users = set()
    for text in ("Remember that my sister lives in Lisbon", "Remember that my brother lives in Rome"):
        claim = await house.hear(text)
        users.add(claim.user_id)
        await house.answer(claim, note="<context>\n- my sister lives in Lisbon (noted 2 days ago)\n</context>")
        await house.learn_job().remember(claim.turn_id)
    [user_id] = users
    assert [fact.text for fact in await house.facts(user_id)] == ["my brother lives in Rome"]


async def test_a_picture_with_words_is_learnt_from_by_its_words(house: House) -> None:
    claim = await house.hear("I'm vegan")
    parts = [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "<context>\n</context>\n\nI'm vegan"}]
    prompt = Prompt(system="", history=(), question={"role": "user", "content": parts}, head="", offset=0)
    async with house.database.begin() as tx:
        await house.journal.begin(tx, claim, "call_model", 0, prompt.to_bytes())
        await house.journal.finish(tx, claim, "call_model", 0, b"{}", facts={})
    await house.learn_job().remember(claim.turn_id)
    assert [fact.text for fact in await house.facts(claim.user_id)] == ["vegan"]


async def test_a_turn_that_no_model_answered_teaches_nothing(house: House) -> None:
    claim = await house.hear("I'm vegan")
    await house.answer(claim, result=None)
    await house.learn_job().remember(claim.turn_id)
    await house.learn_job().remember(uuid4())
    assert await house.facts(claim.user_id) == []


async def test_learning_is_tried_again_while_the_store_is_away(house: House) -> None:
    claim = await house.hear("I'm vegan")
    await house.answer(claim)
    async with house.working(memory=house.learn_job(transactions=cast("Any", Flapping(house.database, 3))).remember):
        await house.no_job_left()
    assert [fact.text for fact in await house.facts(claim.user_id)] == ["vegan"]


async def test_nothing_is_learnt_from_somebody_who_was_deleted_and_nobody_is_bothered_by_it(house: House) -> None:
    claim = await house.hear("I'm vegan")
    await house.answer(claim)
    async with house.database.begin() as tx:
        await house.people.forget(tx, claim.user_id)
    with structlog.testing.capture_logs() as logs:
        async with house.working(memory=house.learn_job().remember):
            await house.no_job_left()
    assert [line for line in logs if line["log_level"] in {"warning", "error"}] == []
    assert await house.rows("select from user_memory") == []


async def test_somebody_who_is_deleted_while_a_model_reads_ends_quietly(house: House) -> None:
    claim = await house.hear("I'm vegan")
    await house.answer(claim)

    async def forget_and_answer(_: ModelRequest) -> str:
        async with house.database.begin() as tx:
            await house.people.forget(tx, claim.user_id)
        return '{"facts": []}'

    await house.learn_job(ScriptedModel(forget_and_answer)).remember(claim.turn_id)
    assert await house.rows("select from user_memory") == []


# --- reminders


def clockwork(house: House, *chores: Chore) -> ChoreScheduler:
    return ChoreScheduler(house.database, PostgresChores(), chores)


async def remind(house: House, run: ChoreRun) -> int:
    return await replace(house.proactive, transactions=run.transactions).remind(run.now)


async def test_of_two_workers_that_tick_at_once_a_reminder_is_said_once(house: House) -> None:
    claims = [await house.hear("remind me to call mum", sender=str(number)) for number in range(10)]
    for claim in claims:
        await house.answer(claim)
        await house.remind_of(claim)
    # Each slot is a second long, so that both get to do it; and beside them somebody who asks nobody.
    workers = [clockwork(house, Chore(name="reminders", every_s=1, do=partial(remind, house))) for _ in range(2)]
    for second in range(3):
        now = NOON + timedelta(seconds=second)
        await asyncio.gather(*(worker.tick(now) for worker in workers), house.proactive.remind(now), house.proactive.remind(now))
        await asyncio.gather(*(worker.idle() for worker in workers))
    async with house.working():
        await house.no_job_left()
    assert house.post.got == [REMINDER] * 10
    assert await house.rows("select count(*) from outbox where state = 'sent'") == [(10,)]


KILLED = """
import asyncio, os, signal, sys
from datetime import datetime
from tests.flows.test_by_the_clock import House, open_house

class Deadly:
    def __init__(self, outbox): self.outbox = outbox
    async def put_proactive(self, *arguments):
        await self.outbox.put_proactive(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with open_house(sys.argv[1], sys.argv[2], sys.argv[3]) as house:
        house.outbox = Deadly(house.outbox)
        await house.proactive.remind(datetime.fromisoformat(sys.argv[4]))

asyncio.run(main())
"""


@asynccontextmanager
async def open_house(database_url: str, redis_url: str, master_key: str) -> AsyncIterator[House]:
    """The same house, for another process."""
    async with open_database(database_url) as database, open_job_queue(database) as work, Redis.from_url(redis_url) as redis:
        yield House(database, Keyring(MasterKeys.parse([master_key])), work, redis, RedisAnswerSignals(redis))


async def test_whoever_is_killed_between_taking_a_reminder_and_the_commit_leaves_it_to_be_said_once(
    house: House, database_url: str, redis_url: str, master_key: str
) -> None:
    claim = await house.hear("remind me to call mum")
    await house.answer(claim)
    await house.remind_of(claim)
    command = [sys.executable, "-c", KILLED, database_url, redis_url, master_key, NOON.isoformat()]
    killed = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert await house.rows("select from outbox") == []
    for _ in range(2):
        await until(lambda: is_said(house, NOON))
    async with house.working():
        await house.no_job_left()
    assert house.post.got == [REMINDER]


SLEEPER = """
import asyncio, os, signal, sys
from dataclasses import replace
from datetime import datetime
from hermes.router.chores import Chore, ChoreScheduler
from hermes.stores.postgres.chores import PostgresChores
from tests.flows.test_by_the_clock import open_house

async def main():
    async with open_house(sys.argv[1], sys.argv[2], sys.argv[3]) as house:
        async def remind(run):
            os.kill(os.getpid(), signal.SIGSTOP)
            await replace(house.proactive, transactions=run.transactions).remind(run.now)

        works = ChoreScheduler(house.database, PostgresChores(), [Chore(name="reminders", every_s=10, do=remind)], lease_s=2.0)
        await works.tick(datetime.fromisoformat(sys.argv[4]))
        await works.idle()

asyncio.run(main())
"""


async def test_a_process_that_slept_for_longer_than_its_lease_wakes_up_and_writes_nothing(
    house: House, database_url: str, redis_url: str, master_key: str
) -> None:
    command = [sys.executable, "-c", SLEEPER, database_url, redis_url, master_key, NOON.isoformat()]
    sleeper = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        await until(lambda: is_stopped(sleeper.pid))
        await until(lambda: is_taken_over(house))
        claim = await house.hear("remind me to call mum")
        await house.answer(claim)
        await house.remind_of(claim)
        sleeper.send_signal(signal.SIGCONT)
        out, _ = await asyncio.wait_for(sleeper.communicate(), PATIENCE_S)
    finally:
        with suppress(ProcessLookupError):
            sleeper.kill()
    assert b"chore_taken_over" in out
    assert await house.rows("select from outbox") == [], "the reminder is due, and it is for the process that has the lease"
    assert await house.rows("select epoch, failed from chores") == [(2, None)]


async def is_stopped(pid: int) -> bool:
    return process_state(pid) == "T"


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


async def is_taken_over(house: House) -> bool:
    """Take the chore that the sleeper holds, as soon as its lease has ended."""
    async with house.database.begin() as tx:
        return await PostgresChores().take(tx, "reminders", Chore(name="", every_s=10, do=asyncio.sleep).slot(NOON), lease_s=60) is not None


async def is_said(house: House, now: datetime) -> bool:
    """Look for reminders; PostgreSQL needs a moment to notice that its client is gone."""
    await house.proactive.remind(now)
    return await house.rows("select count(*) from outbox") == [(1,)]


async def test_a_price_that_came_down_is_told_in_the_conversation_that_waits_for_it(house: House) -> None:
    claim = await house.hear("tell me when the dryer costs 300")
    await house.answer(claim)
    dryer = Product(id="dryer", name="Cyclone", brand="Torrent", category="hair", price=429, currency="USD", shop="Hush")
    async with house.database.begin() as tx:
        await house.products.put(tx, [dryer])
        await house.watchers.add(tx, claim.user_id, claim.turn_id, "dryer", 300)
    assert await house.proactive.remind(NOON) == 0
    async with house.database.begin() as tx:
        await house.products.put(tx, [replace(dryer, price=299)])
    assert await house.proactive.remind(NOON) == 1
    async with house.working():
        await house.no_job_left()
    assert house.post.got == ["🎉 Good news: a price you've been waiting for has come down.\nTorrent Cyclone now costs $299 at Hush."]


async def test_what_is_due_for_somebody_who_was_deleted_is_dropped(house: House) -> None:
    gone, there = await house.hear("remind me", sender="1"), await house.hear("remind me", sender="2")
    for claim in (gone, there):
        await house.remind_of(claim)
    async with house.database.begin() as tx:
        await house.people.forget(tx, gone.user_id)
    assert await house.proactive.remind(NOON) == 1
    assert await house.rows("select user_id from outbox") == [(there.user_id,)]


async def test_where_people_fetch_their_answers_a_reminder_waits_for_them_and_a_bell_rings(house: House) -> None:
    claim = await house.hear("remind me to call mum", platform=Platform.WEB)
    await house.remind_of(claim)
    async with house.replies.listen(claim.conversation_id) as bell:
        await house.proactive.remind(NOON)
        assert await bell.wait(5)
    async with house.database.begin() as tx:
        [news] = await house.outbox.proactive_messages(tx, "bali", Platform.WEB, "42")
        assert (news.text, news.name.split("/")[0]) == (REMINDER, "reminder")
        assert await house.outbox.answer(tx, claim.turn_id) is None, "it is no answer to the message"


async def talk(house: House, claim: Claim, answer: str, gate: asyncio.Event | None = None) -> None:
    """A turn as far as the history sees it: the list is pinned first, and the answer stands under it in the end."""
    async with house.database.begin() as tx:
        session = await house.sessions.current(tx, claim.conversation_id, claim.user_id)
    if gate is not None:
        await gate.wait()
    entries = [GraphEntry({"role": "user", "content": claim.envelope.event.text}), GraphEntry({"role": "assistant", "content": answer})]
    async with house.database.begin() as tx:
        await house.inbox.hold(tx, claim)
        await house.graphs.append(tx, session.id, session.head, entries)
        await house.inbox.finish(tx, claim)


async def lists(house: House) -> list[list[tuple[str, Any]]]:
    """The current lists of all sessions, in the order of their beginning, without side data."""
    found = []
    for (session_id,) in await house.rows("select id from sessions order by number"):
        async with house.database.begin() as tx:
            graph = await house.graphs.load(tx, session_id)
        found.append([(message["role"], message["content"]) for message in graph])
    return found


async def test_a_reminder_stands_in_the_history_behind_the_turn_that_was_under_way(house: House) -> None:
    asked = await house.hear("remind me to call mum")
    await talk(house, asked, "It is set.")
    await house.remind_of(asked)
    running = await house.hear("and a bar for tonight?")
    gate, begun = asyncio.Event(), asyncio.Event()

    async def turn(_: UUID) -> None:
        begun.set()
        await talk(house, running, "Salt & Ember.", gate)

    async with house.database.begin() as tx:
        await house.work.defer_turn(tx, running.turn_id, running.conversation_id)
    async with house.working(turn=turn):
        await begun.wait()
        await house.proactive.remind(NOON)
        await until(lambda: is_sent(house, 1))
        gate.set()
        await house.no_job_left()
    assert house.post.got == [REMINDER], "it was sent at its time, whatever the turn did"
    assert await lists(house) == [
        [
            ("user", "remind me to call mum"),
            ("assistant", "It is set."),
            ("user", "and a bar for tonight?"),
            ("assistant", "Salt & Ember."),
            ("assistant", REMINDER),
        ]
    ]
    await talk(house, await house.hear("thanks, done"), "Great!")
    assert len(await lists(house)) == 1


async def is_sent(house: House, count: int) -> bool:
    return len(house.post.got) == count


async def test_after_a_long_silence_a_reminder_begins_the_session_that_its_answer_belongs_to(house: House) -> None:
    asked = await house.hear("remind me to call mum tomorrow")
    await talk(house, asked, "It is set.")
    await house.remind_of(asked)
    async with house.database.begin() as tx:
        await connection_of(tx).execute("update sessions set last_at = last_at - interval '13 hours'")
    await house.proactive.remind(NOON)
    async with house.working():
        await house.no_job_left()
    await talk(house, await house.hear("thanks, done"), "Great!")
    assert (await lists(house))[1] == [("assistant", REMINDER), ("user", "thanks, done"), ("assistant", "Great!")]


# --- dreams and vectors


async def learn(house: House, sender: str, *texts: str) -> UUID:
    claim = await house.hear("hello", sender=sender)
    learnt = [LearnedFact(text=text, origin=FactOrigin.SAID) for text in texts]
    await house.writer().save(claim.user_id, learnt, now=NOON - timedelta(hours=2))
    return claim.user_id


SURFS = ("I surf at dawn every Monday", "My new surf board is blue", "I taught my cousin to surf", "I hurt my knee while I was surfing")


async def test_a_dream_is_dreamt_once_in_its_period_however_many_tick(house: House) -> None:
    users = [await learn(house, str(number), *SURFS) for number in range(3)]
    nights = house.nights(ScriptedModel(lambda _: '{"insights": []}'))

    async def lightly(run: ChoreRun) -> None:
        await nights.under(run.transactions).dream(DreamDepth.LIGHT, now=run.now)

    async def deeply(run: ChoreRun) -> None:
        await nights.under(run.transactions).dream(DreamDepth.DEEP, now=run.now)

    chores = (Chore(name="light", every_s=60, do=lightly), Chore(name="deep", every_s=60, do=deeply))
    workers = [clockwork(house, *chores) for _ in range(2)]
    for minute in range(3):
        now = NOON + timedelta(minutes=minute)
        unasked = ChoreRun(now, house.database)
        await asyncio.gather(*(worker.tick(now) for worker in workers), lightly(unasked), deeply(unasked))
        await asyncio.gather(*(worker.idle() for worker in workers))
    nights_of = await house.rows("select user_id, depth, period::text from dream_nights order by depth, user_id")
    assert nights_of == [(user, depth, day) for depth, day in (("deep", "2026-11-09"), ("light", "2026-11-15")) for user in sorted(users)]


async def test_deep_dreams_ask_a_model_in_the_name_of_each_user(house: House) -> None:
    users = {await learn(house, str(number), *SURFS) for number in range(2)}
    insights = [{"text": "They surf at dawn with a blue board.", "evidence": [1, 2]}]
    models = ScriptedModel(lambda _: json.dumps({"insights": insights}))
    assert await house.nights(models).dream(DreamDepth.DEEP, now=NOON) == 2
    assert {(caller.user_id, caller.account, caller.source) for caller in models.callers} == {
        (user, "bali", CallSource.MEMORY) for user in users
    }
    for user in users:
        async with house.database.begin() as tx:
            assert (await house.dreams.newest(tx, user, DreamDepth.DEEP))[0].text == "They surf at dawn with a blue board."


async def test_without_a_model_no_user_dreams(house: House) -> None:
    await learn(house, "1", *SURFS)
    for depth in DreamDepth:
        assert await house.nights().dream(depth, now=NOON) == 0
        unread = replace(
            house.nights(ScriptedModel(str)), memory_model=replace(house.memory_model(ScriptedModel(str)), can_read=lambda _: False)
        )
        assert await unread.dream(depth, now=NOON) == 0
    assert await house.rows("select from dream_nights") == []


async def test_one_damaged_memory_keeps_nobody_else_from_dreaming(house: House) -> None:
    users = sorted([await learn(house, str(number), *SURFS) for number in range(3)])
    async with house.database.begin() as tx:
        damage = "update user_memory set value = set_byte(value, 20, 255 - get_byte(value, 20)) where user_id = %s"
        await connection_of(tx).execute(damage, [users[0]])
    assert await house.nights(ScriptedModel(lambda _: '{"insights": []}')).dream(DreamDepth.LIGHT, now=NOON) == 2
    assert await house.rows("select user_id from dream_nights order by user_id") == [(user,) for user in users[1:]]


class OtherModel(HashedEmbeddings):
    """The same vectors under another name."""

    model = "another"

    async def embed(self, texts: Sequence[str]) -> Sequence[Embedding]:
        return [Embedding("another", embedding.vector) for embedding in await super().embed(texts)]


async def test_facts_get_a_vector_of_the_current_model_by_the_clock(house: House) -> None:
    await learn(house, "1", *SURFS)
    house.embeddings = OtherModel()

    async def embed_anew(run: ChoreRun) -> None:
        await re_embed(run.transactions, house.memories, house.embeddings)

    works = clockwork(house, Chore(name="re_embedding", every_s=3_600, do=embed_anew))
    await works.tick(NOON)
    await works.idle()
    assert await house.rows("select distinct coalesce(sealed_model, model) from user_memory") == [("another",)]
