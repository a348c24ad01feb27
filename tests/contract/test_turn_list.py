"""The list of turns on PostgreSQL: what each filter finds, in which order, and where a bounded look stops."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.types.json import Jsonb

from hermes.console import turn_list
from hermes.console.search import ConsoleSearch
from hermes.console.turn_list import TurnListPage, TurnLists
from hermes.ports.operators import Operator, Role
from hermes.ports.search import HitKind
from hermes.ports.turn_list import ANY_PURPOSE, ListedKind, TurnFilter, TurnListCursor, TurnStatus
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.live import PostgresLive
from hermes.stores.postgres.search import PostgresSearch
from hermes.stores.postgres.turn_list import PostgresTurnList
from tests.contract.turns import new_turn

NOW = datetime.now(UTC)


@dataclass
class Listed:
    """Turns of which a test says how they went."""

    database: Database
    keyring: Keyring
    now: datetime = NOW
    """A run of all tests takes a quarter of an hour: what is counted for so long before the real time needs that time."""

    async def run(self, query: str, **values: Any) -> list[Any]:
        async with self.database.pool.connection() as connection:
            cursor = await connection.execute(query.encode(), values)
            return await cursor.fetchall() if cursor.description else []

    async def turn(self, minutes: float, *, channel: str = "c1", took_s: float = 1.0, delivery: str = "sent", **meta: Any) -> UUID:
        """A turn that ended so many minutes ago."""
        turn_id = await new_turn(self.database, self.keyring, channel=channel)
        at = self.now - timedelta(minutes=minutes)
        await self.run(
            "update inbox set state = 'done', attempts = %(attempts)s, received_at = %(at)s - %(took)s, ended_at = %(at)s "
            "where turn_id = %(id)s",
            id=turn_id,
            at=at,
            took=timedelta(seconds=took_s),
            attempts=meta.get("attempt", 1),
        )
        await self.run(
            "insert into sessions (account_id, conversation_id, user_id, seed, head) "
            "select account_id, conversation_id, user_id, '', '' from inbox where turn_id = %(id)s",
            id=turn_id,
        )
        await self.run(
            "insert into interactions (turn_id, account_id, user_id, session_id, platform, meta, created_at) "
            "select i.turn_id, i.account_id, i.user_id, s.id, 'rest', %(meta)s, %(at)s from inbox i "
            "join sessions s using (conversation_id) where turn_id = %(id)s order by s.number desc limit 1",
            id=turn_id,
            at=at,
            meta=Jsonb({"outcome": "answered", "agent": "hermes", "tier": "free", "tools": [], "attempt": 1, **meta}),
        )
        await self.run(
            "insert into outbox (account_id, platform, channel_id, conversation_id, user_id, turn_id, seq, part, state, body, died_at) "
            "select account_id, 'rest', 'c', conversation_id, user_id, turn_id, seq, 0, %(state)s, '', "
            "case when %(state)s = 'dead' then %(at)s end from inbox where turn_id = %(id)s",
            id=turn_id,
            state=delivery,
            at=at,
        )
        return turn_id

    async def call(self, minutes: float, turn_id: UUID | None = None, *, purpose: str = "answer", tries: int = 1, **more: Any) -> UUID:
        values = {"model": "sonnet", "outcome": "answered", "key": None, **more}
        call_id, at = uuid4(), self.now - timedelta(minutes=minutes)
        await self.run(
            "insert into calls (id, turn_id, account_id, source, tier, model, attempts, tokens_in, tokens_out, cache_read, cache_write, "
            "cache_write_1h, micro_usd, is_estimated, cache_hit, outcome, latency_ms, day, created_at, purpose, api_key_id) values (%(id)s,"
            " %(turn)s, 'shop', 'router', 'free', %(model)s, %(tries)s, 10, 2, 0, 0, 0, 100, false, false, %(outcome)s, 7, %(at)s::date, "
            "%(at)s, %(purpose)s, %(key)s)",
            id=call_id,
            turn=turn_id,
            at=at,
            purpose=purpose,
            tries=Jsonb(
                [{"backend": "a", "outcome": "Timeout", "ms": 5}] * (tries - 1) + [{"backend": "b", "outcome": "answered", "ms": 9}]
            ),
            **values,
        )
        return call_id

    async def page(self, *, before: TurnListCursor | None = None, limit: int = 50, **wanted: Any) -> TurnListPage:
        chosen = TurnFilter(**{"since": NOW - timedelta(hours=24), **wanted})
        return await TurnLists(self.database, PostgresTurnList()).page(chosen, before=before, limit=limit)

    async def ids(self, **wanted: Any) -> list[UUID]:
        return [row.id for row in (await self.page(**wanted)).rows]


@pytest.fixture
def listed(database: Database, keyring: Keyring) -> Listed:
    return Listed(database, keyring)


async def test_each_filter_finds_its_turns(listed: Listed) -> None:
    plain = await listed.turn(10)
    failed = await listed.turn(9, outcome="retry_later", error="ChainFailed", step="call_model")
    broke = await listed.turn(8, outcome="upgrade", error="OutOfCredit", step="take_credit")
    tooled = await listed.turn(7, tools=[{"name": "find_venues", "is_error": True, "ms": 3}], agent="spa", tier="pro")
    retried = await listed.turn(6, attempt=3)
    slow = await listed.turn(5, took_s=11.0)
    dead = await listed.turn(4, delivery="dead")
    switched = await listed.turn(3)
    await listed.call(3, switched, tries=2, model="haiku")
    await listed.call(2.9, switched, purpose="remember", model="tiny")
    completion = await listed.call(2, purpose="completions")
    dream = await listed.call(1, purpose="dream")
    expected: list[tuple[dict[str, Any], list[UUID]]] = [
        ({}, [completion, switched, dead, slow, retried, tooled, broke, failed, plain]),
        ({"status": TurnStatus.FAILED}, [failed]),
        ({"status": TurnStatus.UNANSWERED}, [broke, failed]),
        ({"status": TurnStatus.FELL_OVER}, [switched]),
        ({"status": TurnStatus.RETRIED}, [retried]),
        ({"status": TurnStatus.TOOL_ERROR}, [tooled]),
        ({"status": TurnStatus.UNDELIVERED}, [dead]),
        ({"status": TurnStatus.SLOW}, [slow]),
        ({"status": TurnStatus.COMPLETIONS}, [completion]),
        ({"status": TurnStatus.WAITING}, []),
        ({"agent": "spa"}, [tooled]),
        ({"tier": "pro"}, [tooled]),
        ({"tool": "find_venues"}, [tooled]),
        ({"model": "haiku"}, [switched]),
        ({"purpose": "remember"}, [switched]),
        ({"purpose": "dream"}, [dream]),
        ({"purpose": ANY_PURPOSE}, [dream, completion, switched, dead, slow, retried, tooled, broke, failed, plain]),
        ({"account": "elsewhere"}, []),
        ({"platform": "telegram"}, []),
        ({"accounts": frozenset({"elsewhere"})}, []),
        ({"since": NOW - timedelta(minutes=3.5)}, [completion, switched]),
        ({"until": NOW - timedelta(minutes=8.5)}, [failed, plain]),
    ]
    for wanted, ids in expected:
        assert await listed.ids(**wanted) == ids, wanted
    [row] = (await listed.page(model="haiku")).rows
    assert (row.micro_usd, row.tokens, row.calls, row.fell_over, row.model, row.delivery, row.sender) == (
        200,
        24,
        2,
        True,
        "haiku",
        "sent",
        "c1",
    )
    assert (row.ms, row.kind) == (1_000, ListedKind.TURN)


async def test_pages_meet_without_a_gap_or_a_repetition(listed: Listed) -> None:
    made = [await listed.turn(2) for _ in range(3)] + [await listed.call(2, purpose="completions") for _ in range(3)]
    seen, before = [], None
    while True:
        page = await listed.page(before=before, limit=2)
        seen += [row.id for row in page.rows]
        if page.next is None:
            break
        before = page.next
    assert sorted(seen) == sorted(made)
    assert len(seen) == 6


async def test_a_filter_without_an_index_looks_at_so_many_and_says_so(listed: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_list, "MAX_SCANNED", 2)
    old = await listed.turn(9, agent="spa")
    for minutes in (8, 7, 6, 5):
        await listed.turn(minutes)
    page = await listed.page(agent="spa")
    assert (page.rows, page.looked_through) == ([], 2)
    page = await listed.page(agent="spa", before=page.next)
    assert page.rows == []
    page = await listed.page(agent="spa", before=page.next)
    assert [row.id for row in page.rows] == [old]
    assert (page.next, page.looked_through) == (None, None)


MATCHING: dict[TurnStatus, dict[str, Any]] = {
    TurnStatus.FAILED: {"outcome": "retry_later"},
    TurnStatus.UNANSWERED: {"outcome": "upgrade"},
    TurnStatus.FELL_OVER: {},
    TurnStatus.RETRIED: {"attempt": 2},
    TurnStatus.TOOL_ERROR: {"tools": [{"name": "find_venues", "is_error": True, "ms": 3}]},
    TurnStatus.UNDELIVERED: {"delivery": "dead"},
    TurnStatus.SLOW: {"took_s": 11.0},
}


@pytest.mark.parametrize("status", MATCHING)
async def test_the_pages_of_a_filter_hold_every_turn_that_matches_however_many_they_are(
    listed: Listed, monkeypatch: pytest.MonkeyPatch, status: TurnStatus
) -> None:
    monkeypatch.setattr(turn_list, "MAX_SCANNED", 3)
    monkeypatch.setattr(turn_list, "MAX_SCANNED_SLOWLY", 3)
    matching = []
    for minutes in range(9):
        await listed.turn(minutes + 0.5)
        turn_id = await listed.turn(minutes + 0.2, **MATCHING[status])
        if status is TurnStatus.FELL_OVER:
            await listed.call(minutes + 0.3, turn_id, tries=2)
            await listed.call(minutes + 0.1, turn_id, tries=3, purpose="remember")
        matching.append(turn_id)
    seen, before, pages = list[UUID](), None, 0
    while True:
        page = await listed.page(status=status, before=before, limit=2)
        seen, pages = seen + [row.id for row in page.rows], pages + 1
        assert pages < 40
        if page.next is None:
            break
        assert before is None or page.next < before
        before = page.next
    assert seen == matching


async def test_open_turns_say_where_they_are(listed: Listed) -> None:
    waiting = await new_turn(listed.database, listed.keyring, channel="w")
    running = await new_turn(listed.database, listed.keyring, channel="r")
    await listed.run(
        "insert into runs (turn_id, account_id, conversation_id, user_id, epoch, attempt, claimed_at) "
        "select turn_id, account_id, conversation_id, user_id, 1, 1, now() from inbox where turn_id = %(id)s",
        id=running,
    )
    await listed.run("update inbox set attempts = 1 where turn_id = %(id)s", id=running)

    async def step() -> list[tuple[UUID, bool, str | None]]:
        return [(turn.turn_id, turn.is_running, turn.step) for turn in (await listed.page()).open]

    assert await step() == [(waiting, False, None), (running, True, None)]
    await listed.run(
        "insert into run_events (turn_id, step, index, type, attempt) values (%(id)s, 'call_model', 0, 'effect', 1)", id=running
    )
    assert await step() == [(waiting, False, None), (running, True, "call_model")]
    await listed.run("update run_events set done_at = now() where turn_id = %(id)s", id=running)
    assert await step() == [(waiting, False, None), (running, True, "run_tools")]
    await listed.run(
        "insert into run_events (turn_id, step, index, type, attempt, epoch) values (%(id)s, 'x', 0, 'attempt_failed', 1, 1)", id=running
    )
    assert await step() == [(waiting, False, None), (running, False, None)]
    assert (await listed.page(agent="hermes")).open == ()  # it is not known yet which agent answers
    assert [turn.turn_id for turn in (await listed.page(status=TurnStatus.WAITING)).open] == [waiting, running]


async def test_a_message_that_could_not_be_opened_is_among_the_failed(listed: Listed) -> None:
    turn_id = await new_turn(listed.database, listed.keyring)
    await listed.run("update inbox set state = 'dead', ended_at = now(), reason = 'damaged' where turn_id = %(id)s", id=turn_id)
    [row] = (await listed.page(status=TurnStatus.FAILED)).rows
    assert (row.id, row.outcome, row.error) == (turn_id, "buried", "damaged")


async def test_figures_of_now(listed: Listed) -> None:
    listed.now = datetime.now(UTC)
    await listed.turn(1, took_s=1.0)
    await listed.turn(1, took_s=3.0, outcome="busy")
    await listed.turn(20, outcome="busy")
    await listed.call(1, tries=2)
    await new_turn(listed.database, listed.keyring, channel="w")
    async with listed.database.begin() as tx:
        figures = await PostgresLive().figures(tx, within_s=900, accounts=None)
        none = await PostgresLive().figures(tx, within_s=900, accounts=frozenset({"elsewhere"}))
        backends = await PostgresLive().backends(tx, within_s=900, accounts=None)
    assert (figures.turns, figures.failed, figures.p50_ms, figures.waiting, figures.running) == (2, 1, 2_000, 1, 0)
    assert (none.turns, none.failed, none.waiting, none.p95_ms) == (0, 0, 0, None)
    assert [(each.backend, each.attempts, each.failed, each.last_error) for each in backends] == [("a", 1, 1, "Timeout"), ("b", 1, 0, None)]


async def test_what_waits_is_the_same_in_the_figures_and_in_the_list(listed: Listed) -> None:
    """A message whose attempt failed, that was revived, or whose worker has gone, waits; only one with a worker of its own runs."""
    workers = [uuid4() for _ in range(3)]
    await listed.run(
        "insert into processes (id, role, host, pid, version, stopped_at, stalled_at) values "
        "(%(live)s, 'worker', 'vm', 1, '1', null, null), "
        "(%(stopped)s, 'worker', 'vm', 2, '1', now(), null), (%(stalled)s, 'worker', 'vm', 3, '1', null, now())",
        **dict(zip(("live", "stopped", "stalled"), workers, strict=True)),
    )
    begun = [await new_turn(listed.database, listed.keyring, channel=f"b{place}") for place in range(5)]
    for turn_id, worker in zip(begun, [*workers, workers[0], workers[0]], strict=True):
        await listed.run("update inbox set attempts = 1 where turn_id = %(id)s", id=turn_id)
        await listed.run(
            "insert into runs (turn_id, account_id, conversation_id, user_id, epoch, attempt, worker, worker_epoch, claimed_at) "
            "select turn_id, account_id, conversation_id, user_id, 1, 1, %(worker)s, 1, now() from inbox where turn_id = %(id)s",
            id=turn_id,
            worker=worker,
        )
    *_, failed, revived = begun
    await listed.run(
        "insert into run_events (turn_id, step, index, type, attempt, epoch) values (%(id)s, 'x', 0, 'attempt_failed', 1, 1)", id=failed
    )
    await listed.run("update runs set state = 'dead', ended_at = now() where turn_id = %(id)s", id=revived)
    await listed.run(
        "update inbox set received_at = now() - interval '3 days', revived_at = now() - interval '40 seconds', revived_after = 1 "
        "where turn_id = %(id)s",
        id=revived,
    )
    async with listed.database.begin() as tx:
        figures = await PostgresLive().figures(tx, within_s=900, accounts=None)
    shown = (await listed.page()).open
    assert [turn.turn_id for turn in shown if turn.is_running] == begun[:1]
    assert (figures.waiting, figures.running) == (4, 1)
    assert 40 <= figures.oldest_s < 100, "a revived message waits since its revival"
    assert 40 <= next(turn.age_s for turn in shown if turn.turn_id == revived) < 100


async def test_the_figures_count_as_failed_what_the_list_of_failed_turns_has(listed: Listed) -> None:
    listed.now = datetime.now(UTC)
    await listed.turn(1, outcome="retry_later")
    buried = await new_turn(listed.database, listed.keyring)
    await listed.run("update inbox set state = 'dead', ended_at = now(), reason = 'damaged' where turn_id = %(id)s", id=buried)
    async with listed.database.begin() as tx:
        figures = await PostgresLive().figures(tx, within_s=900, accounts=None)
    assert figures.failed == len(await listed.ids(status=TurnStatus.FAILED)) == 2


async def test_a_revived_message_does_not_make_the_answers_of_today_look_slow(listed: Listed) -> None:
    listed.now = datetime.now(UTC)
    turn_id = await listed.turn(1, took_s=3 * 86_400.0)
    await listed.run("update inbox set revived_at = ended_at - interval '2 seconds', revived_after = 5 where turn_id = %(id)s", id=turn_id)
    async with listed.database.begin() as tx:
        figures = await PostgresLive().figures(tx, within_s=900, accounts=None)
    assert figures.p95_ms == 2_000
    assert [row.ms for row in (await listed.page()).rows] == [2_000]


async def test_a_message_that_waited_for_a_month_breaks_no_page(listed: Listed) -> None:
    """Its milliseconds are more than an integer of the store holds."""
    listed.now = datetime.now(UTC)
    await listed.turn(1, took_s=30 * 86_400.0)
    buried = await new_turn(listed.database, listed.keyring)
    await listed.run(
        "update inbox set state = 'dead', received_at = now() - interval '40 days', ended_at = now() where turn_id = %(id)s", id=buried
    )
    async with listed.database.begin() as tx:
        figures = await PostgresLive().figures(tx, within_s=900, accounts=None)
    assert figures.p95_ms == 30 * 86_400_000
    assert sorted(row.ms or 0 for row in (await listed.page()).rows) == [30 * 86_400_000, 40 * 86_400_000]


async def test_search_finds_by_ids_codes_and_senders(listed: Listed) -> None:
    turn_id = await listed.turn(1, channel="+62811")
    call_id = await listed.call(1, turn_id)
    [[user_id, code, conversation_id]] = await listed.run(
        "select u.id, u.referral_code, i.conversation_id from users u join inbox i on i.user_id = u.id where i.turn_id = %(id)s", id=turn_id
    )
    search = ConsoleSearch(listed.database, PostgresSearch())

    def operator(role: Role, accounts: frozenset[str] | None = None) -> Operator:
        return Operator(id=uuid4(), name="ann", role=role, accounts=accounts, created_at=NOW, created_by="test")

    viewer, full = operator(Role.VIEWER), operator(Role.OPERATOR)
    for text, kind in ((str(turn_id), HitKind.TURN), (turn_id.hex[:8], HitKind.TURN), (call_id, HitKind.CALL), (user_id, HitKind.USER)):
        assert kind in {hit.kind for hit in await search.find(str(text), viewer)}
    assert [hit.kind for hit in await search.find(str(conversation_id), viewer)] == [HitKind.CONVERSATION]
    assert [hit.id for hit in await search.find(code, viewer)] == [user_id]
    assert [hit.sender for hit in await search.find("+628", full)] == ["+62811"]
    assert await search.find("+628", viewer) == []
    assert await search.find("%", full) == []
    assert await search.find("+62_1", full) == []
    assert await search.find(str(turn_id), operator(Role.OWNER, frozenset({"elsewhere"}))) == []
    assert await search.find(str(user_id), operator(Role.OWNER, frozenset({"elsewhere"}))) == []
