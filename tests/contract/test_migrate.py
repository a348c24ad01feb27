"""The schema: made once however many start at once, refused where it does not fit."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from hermes.console.turn_list import TurnLists
from hermes.gateway.chat_fingerprints import ChatFingerprinter
from hermes.gateway.spend_sums import HourSummer
from hermes.graph import CallRecord
from hermes.ports.errors import StoreUnavailable
from hermes.ports.inbox import Revival
from hermes.ports.models import CallAttempt, CallOutcome, CallPurpose, CallSource, ModelCall
from hermes.ports.sessions import GraphEntry, SessionQuery
from hermes.ports.turn_list import TurnFilter
from hermes.ports.users import UserChannel, UserState
from hermes.stores.postgres.api_keys import PostgresApiKeys
from hermes.stores.postgres.database import connection_of, open_database
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.journal import PostgresInteractions, PostgresJournal
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.migrate import MigrationFolder, SchemaRefused, migrate, own_migrations, pending_migrations, queue_migrations
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.postgres.sessions import PostgresClientChats, PostgresSessions
from hermes.stores.postgres.spend_sums import PostgresSpendSums
from hermes.stores.postgres.turn_list import PostgresTurnList
from hermes.stores.postgres.users import PostgresUsers
from hermes.turn import Platform
from tests.contract.turns import new_claim, new_turn


async def test_ten_processes_that_start_at_once_migrate_once(empty_database_url: str) -> None:
    ran = await asyncio.gather(*(migrate(empty_database_url) for _ in range(10)))
    assert sorted(map(len, ran)) == [0] * 9 + [1 + len(own_migrations())]
    assert await migrate(empty_database_url) == []
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("select count(*) from schema_migrations").fetchone() == (len(own_migrations()) + len(queue_migrations()),)


async def test_what_is_pending_is_named(empty_database_url: str) -> None:
    async with open_database(empty_database_url) as database:
        async with database.begin() as tx:
            assert await pending_migrations(connection_of(tx)) == [migration.name for migration in own_migrations()]
        await migrate(empty_database_url)
        async with database.begin() as tx:
            assert await pending_migrations(connection_of(tx)) == []


async def test_a_database_of_a_newer_hermes_is_refused(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("insert into schema_migrations (name, digest) values ('9999_wings', '')")
    with pytest.raises(SchemaRefused, match=r"newer Hermes \(9999_wings\)"):
        await migrate(database_url)


async def test_a_migration_that_was_changed_afterwards_is_refused(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("update schema_migrations set digest = 'x' where name = '0001_people'")
    with pytest.raises(SchemaRefused, match="0001_people is not the one that ran"):
        await migrate(database_url)


async def test_a_new_step_of_the_queue_is_run_when_it_comes(database_url: str) -> None:
    name = "queue/03.03.00_01_pre_priority_lock_fetch_job"
    with psycopg.connect(database_url) as connection:  # as if an older version of the queue had been here
        connection.execute("delete from schema_migrations where name = %s", [name])
        connection.execute("drop function procrastinate_fetch_job_v2")
    assert await migrate(database_url) == [name]
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select count(*) from pg_proc where proname = 'procrastinate_fetch_job_v2'").fetchone() == (1,)


AS_BEFORE_0027 = """
alter table api_keys rename column scopes to doors;
update user_channels set platform = 'door' where platform = 'completions';
update conversations set platform = 'door' where platform = 'completions';
update calls set source = 'door' where source = 'completions';
delete from schema_migrations where name = '0027_words'
"""
"""Puts back what an older Hermes called these: the column, the platform and the source of OpenAI clients."""


async def test_what_an_older_hermes_stored_under_the_word_door_is_still_found(database_url: str, keyring: Keyring) -> None:
    users, keys, sessions = PostgresUsers(keyring), PostgresApiKeys(), PostgresSessions(keyring)
    messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"}]
    [mark] = ChatFingerprinter(messages).fingerprints
    async with open_database(database_url) as database:
        chats = PostgresClientChats(database, keyring)
        async with database.begin() as tx:
            ada, _ = await users.find_or_create(tx, "shop", Platform.COMPLETIONS, "ada", state=UserState.ACTIVE)
            limited, secret = await keys.create(tx, "limited", "shop", scopes=["messages"])
            _, unlimited = await keys.create(tx, "unlimited", "shop")
            named = await chats.find_or_begin(tx, "shop", ada.id, "my chat", ())
        call = ModelCall(
            id=uuid4(),
            day=date(2026, 11, 15),
            account_id="shop",
            source=CallSource.COMPLETIONS,
            tier="pro",
            model="m",
            outcome=CallOutcome.ANSWERED,
            latency_ms=1,
            user_id=ada.id,
        )
        entries = [GraphEntry(messages[0]), GraphEntry(messages[1], is_sampled=True, call=CallRecord(model="m"), sample_id="a")]
        chat = await chats.add(ada.id, await chats.plan(ada.id), entries, mark, call)
        assert chat is not None

    with psycopg.connect(database_url) as connection:
        connection.execute(AS_BEFORE_0027)
        assert count_old_words(connection) == (1, 2, 1, 1)
    assert await migrate(database_url) == ["0027_words"]
    with psycopg.connect(database_url) as connection:
        assert count_old_words(connection) == (0, 0, 0, 0)

    async with open_database(database_url) as database:
        chats = PostgresClientChats(database, keyring)
        async with database.begin() as tx:
            same, is_new = await users.find_or_create(tx, "shop", Platform.COMPLETIONS, "ada", state=UserState.ACTIVE)
            assert (same.id, is_new) == (ada.id, False)
            assert await users.channels(tx, [ada.id]) == {ada.id: [UserChannel("shop", Platform.COMPLETIONS, "ada")]}
            found = await keys.find(tx, [secret, unlimited])
            assert (found[secret].id, found[secret].scopes, found[unlimited].scopes) == (limited.id, ["messages"], None)
            assert (await chats.find_or_begin(tx, "shop", ada.id, "my chat", ())).session_id == named.session_id
            assert (await chats.get(tx, ada.id, chat.session_id)) is not None
            assert await sessions.find(tx, SessionQuery(names=("my chat",))) == [named.session_id]
            assert await (await connection_of(tx).execute("select id, source from calls")).fetchall() == [(call.id, "completions")]
        seen = await chats.look(ada.id, [mark])
        assert seen is not None
        assert (seen.session_id, seen.known) == (chat.session_id, mark)


def count_old_words(connection: psycopg.Connection) -> tuple[int, ...]:
    """Rows of user_channels, conversations and calls, and columns of api_keys, that say `door`."""
    columns = "select count(*) from information_schema.columns where table_name = 'api_keys' and column_name = 'doors'"
    queries = (
        "select count(*) from user_channels where platform = 'door'",
        "select count(*) from conversations where platform = 'door'",
        "select count(*) from calls where source = 'door'",
        columns,
    )
    return tuple(connection.execute(query).fetchone()[0] for query in queries)  # type: ignore[index]


AS_BEFORE_0029 = """
drop table replays, replay_batches, audit, operator_entries, operators;
drop function refuse_to_rewrite_audit();
alter table inbox drop column revived_at, drop column revived_after;
alter table tool_hours drop column micro_usd;
drop index user_channels_by_sender, sessions_by_number, calls_without_turn, calls_fell_over, calls_by_time, calls_by_user;
create index calls_by_user on calls (user_id, day) include (tokens, micro_usd, id);
create index calls_by_time on calls (created_at);
delete from schema_migrations where name = '0029_console'
"""
"""Takes away what the console brought."""


async def test_what_a_hermes_without_the_console_stored_is_listed_summed_and_revived(database_url: str, keyring: Keyring) -> None:
    inbox, journal, answer = (
        PostgresInbox(keyring),
        PostgresJournal(keyring),
        CallAttempt("claude", "anthropic", "m", CallOutcome.ANSWERED, 1),
    )
    async with open_database(database_url) as database:
        buried, claim = await new_turn(database, keyring, "lost"), await new_claim(database, keyring, "find a cafe", channel="ada")
        hour = (datetime.now(UTC) - timedelta(days=3)).replace(minute=0, second=0, microsecond=0)
        async with database.begin() as tx:
            session = await PostgresSessions(keyring).current(tx, claim.conversation_id, claim.user_id)
            await journal.begin(tx, claim, "run_tools", 0, b"asked")
            await journal.finish(tx, claim, "run_tools", 0, b"found", facts={"name": "search", "ms": 5})
            await PostgresInteractions().add(
                tx, claim, session.id, {"outcome": "answered", "tools": [{"name": "search", "is_error": False}]}
            )
            await inbox.finish(tx, claim)
            purposes = ((CallPurpose.ANSWER, (answer, answer)), (CallPurpose.CONCLUDE, (answer,)), (None, ()))
            for micro_usd, (purpose, attempts) in enumerate(purposes, 70):
                await PostgresModelCalls().add(
                    tx, call_of(claim.user_id, micro_usd, purpose=purpose, attempts=attempts, turn_id=claim.turn_id if purpose else None)
                )
            run = connection_of(tx).execute
            await run("update calls set created_at = %s", [hour])
            await run("update interactions set created_at = %s", [hour])
            await run("update inbox set state = 'dead', ended_at = %s, reason = 'gave up' where turn_id = %s", [hour, buried])
            await run(
                "insert into tool_hours (hour, account_id, tool, runs, errors, ms, worst_ms) values (%s, 'shop', 'search', 1, 0, 5, 5)",
                [hour],
            )
            await run("insert into sum_marks values ('tools', now()), ('calls', now())")

    with psycopg.connect(database_url) as connection:
        connection.execute(AS_BEFORE_0029)
    assert await migrate(database_url) == ["0029_console"]

    async with open_database(database_url) as database:
        page = await TurnLists(database, PostgresTurnList()).page(TurnFilter(since=hour - timedelta(hours=1), purpose="any"))
        assert {(str(row.kind), row.outcome, row.micro_usd, row.fell_over) for row in page.rows} == {
            ("turn", "answered", 141, True),
            ("call", "answered", 72, False),
            ("turn", "buried", 0, False),
        }
        await HourSummer(database, PostgresSpendSums()).sum_recent()
        async with database.begin() as tx:
            found = await connection_of(tx).execute("select tool, runs, micro_usd from tool_hours")
            assert await found.fetchall() == [("search", 1, 71)], "what it cost is found for the time before, too"
            assert await inbox.revive(tx, buried) is Revival.REVIVED


def call_of(user_id: UUID, micro_usd: int, **more: Any) -> ModelCall:
    about = {"id": uuid4(), "day": date(2026, 11, 15), "account_id": "shop", "source": CallSource.ROUTER, "tier": "pro", "model": "m"}
    return ModelCall(**{**about, "outcome": CallOutcome.ANSWERED, "latency_ms": 1, "user_id": user_id, "micro_usd": micro_usd, **more})


async def test_a_migration_that_a_turn_stands_across_is_tried_again(database_url: str, tmp_path: Path) -> None:
    """A turn has locked the table that the migration comes to second, and needs the one that the migration has. PostgreSQL ends the one
    that has waited for `deadlock_timeout`."""
    (tmp_path / "0001_columns.sql").write_text("alter table runs add column x int; alter table inbox add column x int", encoding="utf-8")
    is_waiting = "select count(*) from pg_stat_activity where application_name = 'hermes migrate' and wait_event_type = 'Lock'"
    with psycopg.connect(database_url) as turn, psycopg.connect(database_url, autocommit=True) as watcher:
        turn.execute("set deadlock_timeout = '10min'")  # so that it is the migration, and never the turn
        turn.execute("select from inbox for update")
        migrating = asyncio.create_task(migrate(database_url, [MigrationFolder("probe", tmp_path)]))
        while watcher.execute(is_waiting).fetchone() != (1,):
            assert not migrating.done(), "it cannot end before the turn does"
            await asyncio.sleep(0.01)
        await asyncio.to_thread(turn.execute, "update runs set attempt = attempt")
        turn.commit()
        assert await migrating == ["probe/0001_columns"]


async def test_nobody_there_is_one_clear_line() -> None:
    with pytest.raises(StoreUnavailable, match="PostgreSQL cannot be used"):
        await migrate("host=/nowhere dbname=x connect_timeout=1")
