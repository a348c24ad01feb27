"""Content that was kept long enough is deleted in batches; numbers, times and money stay, and Hermes goes on."""

from datetime import UTC, datetime

from psycopg import sql

from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.retention import ContentRetention
from tests.flows.service import running
from tests.flows.test_backup import rows, say


async def no_pause(_: float) -> None:
    """A test waits for nothing."""


def retention(*, messages_days: int = 0, graphs_days: int = 0) -> ContentRetention:
    return ContentRetention(messages_days=messages_days, graphs_days=graphs_days, idle_s=3_600, batch_size=1, pause=no_pause)


async def age(database: Database, days: int) -> None:
    """Make everything that there is so many days older."""
    async with database.begin() as tx:
        for table, column in (("inbox", "ended_at"), ("outbox", "touched_at"), ("sessions", "last_at")):
            query = sql.SQL("update {} set {} = {} - make_interval(days => %s)")
            await connection_of(tx).execute(query.format(sql.Identifier(table), sql.Identifier(column), sql.Identifier(column)), [days])


async def counts(url: str) -> dict[str, int]:
    """How much content is there, and how many rows that only count."""
    query = """select (select count(*) from inbox where length(envelope) > 0), (select count(*) from outbox where length(body) > 0),
        (select count(*) from graph_messages), (select count(*) from graph_samples),
        (select count(*) from inbox), (select count(*) from interactions), (select count(*) from credit_entries)"""
    [found] = await rows(url, query)
    return dict(zip(("messages", "answers", "graph", "samples", "inbox", "interactions", "credits"), found, strict=True))


async def settle(url: str) -> None:
    """As after the platform confirmed every answer."""
    await rows(url, "update outbox set state = 'sent' returning 1")


async def test_old_content_goes_and_numbers_stay(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url) as service:
        key = await service.key()
        for text in ("one", "two"):
            await say(service, key, text=text)
        await settle(database_url)
        await age(service.database, 100)
        await say(service, key, user="ben", text="new")
        before, now = await counts(database_url), datetime.now(UTC)
        assert await retention().delete_old(service.database, now) == 0, "0 days keep everything"
        assert await counts(database_url) == before
        await retention(messages_days=101, graphs_days=101).delete_old(service.database, now)
        assert await counts(database_url) == before, "nothing is so old"
        kept = retention(messages_days=99, graphs_days=99)
        assert await kept.delete_old(service.database, now) > 3
        after = await counts(database_url)
        assert {name: after[name] for name in ("inbox", "interactions", "credits")} == {
            name: before[name] for name in ("inbox", "interactions", "credits")
        }
        assert (after["messages"], after["samples"]) == (1, before["samples"] - 2)
        assert 0 < after["graph"] < before["graph"]
        assert await kept.delete_old(service.database, now) == 0
        assert (await say(service, key, text="and still here"))["text"]
        data = await service.get("/v1/users/alice/data", key)
        assert (data.status, data.body["kept"]["messages"]) == (200, 3)
