"""One poller for all readers: memory is bounded, a reader that is behind reads the store, the poller ends with the last reader."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from hermes.ports.errors import StoreUnavailable
from hermes.ports.events import ALL_EVENTS, STREAM_START, EventCursor, EventPage, EventSource, OperationsEvent
from hermes.ports.runtime import Transaction
from hermes.web import event_feed
from hermes.web.event_feed import EventFeed
from hermes.web.operations import stream_events


class Store:
    """Events in a list, with every read: where it began. `is_away` makes it unreachable."""

    def __init__(self) -> None:
        self.events: list[OperationsEvent] = []
        self.reads: list[EventCursor] = []
        self.is_away = False

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            cursor = EventCursor(1, len(self.events) + 1)
            self.events.append(
                OperationsEvent(cursor=cursor, source=EventSource.TURN, type="llm_called", at=datetime.now(UTC), turn_id=uuid4())
            )

    @asynccontextmanager
    async def once(self) -> AsyncIterator[Transaction]:
        if self.is_away:
            raise StoreUnavailable
        yield self

    begin = once

    async def read(self, _: Transaction, after: EventCursor, *, limit: int) -> EventPage:
        self.reads.append(after)
        later = [event for event in self.events if event.cursor > after]
        page = later[:limit]
        return EventPage(page, page[-1].cursor if page else after, is_last=len(later) <= limit)

    async def read_turn(
        self, _: Transaction, turn_id: UUID, after: EventCursor, *, only_settled: bool = False
    ) -> Sequence[OperationsEvent]:
        return [event for event in self.events if (event.turn_id, only_settled) == (turn_id, True) and event.cursor > after]

    async def end(self, _: Transaction) -> EventCursor:
        return EventCursor(1, len(self.events))


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def feed(store: Store) -> AsyncIterator[EventFeed]:
    feed = EventFeed(store, store, poll_s=0.01)
    yield feed
    await feed.aclose()


async def always() -> bool:
    return True


class Stream:
    """A reader of the stream, one chunk at a time."""

    def __init__(self, feed: EventFeed, after: EventCursor) -> None:
        self.closing = asyncio.Event()
        self.chunks = stream_events(feed, after, ALL_EVENTS, ping_s=60, closing=self.closing, still_may=always)

    async def next(self) -> str:
        """The id of the next event, or the name of a notice."""
        async with asyncio.timeout(5):
            while (chunk := await anext(self.chunks, None)) is not None:
                fields = dict(line.split(": ", 1) for line in chunk.decode().splitlines() if ": " in line and not line.startswith(":"))
                if fields:
                    return fields.get("id") or fields["event"]
        return "end"


async def test_a_slow_reader_costs_no_memory_and_misses_nothing(store: Store, feed: EventFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "MAX_KEPT_EVENTS", 50)
    monkeypatch.setattr(event_feed, "PAGE_EVENTS", 20)
    fast, slow = Stream(feed, STREAM_START), Stream(feed, STREAM_START)
    store.add()
    assert [await fast.next(), await slow.next()] == ["1-1", "1-1"]
    for number in range(1, 500):
        store.add()
        assert await fast.next() == f"1-{number + 1}"
    assert len(feed._kept) <= 50
    assert [await slow.next() for _ in range(499)] == [f"1-{number}" for number in range(2, 501)]
    for stream in (fast, slow):
        await stream.chunks.aclose()


async def test_many_readers_ask_the_store_once(store: Store, feed: EventFeed) -> None:
    streams = [Stream(feed, await feed.end()) for _ in range(200)]
    waiting = [asyncio.create_task(stream.next()) for stream in streams]
    async with asyncio.timeout(5):
        while feed.readers < 200 or not store.reads:  # noqa: ASYNC110  # the poller has no event for it
            await asyncio.sleep(0.005)
    before = len(store.reads)
    store.add()
    assert set(await asyncio.gather(*waiting)) == {"1-1"}
    assert len(store.reads) - before < 100
    for stream in streams:
        await stream.chunks.aclose()
    assert feed.readers == 0


async def test_the_poller_ends_with_its_last_reader_and_the_next_one_misses_nothing(store: Store, feed: EventFeed) -> None:
    first = Stream(feed, STREAM_START)
    store.add()
    assert await first.next() == "1-1"
    await first.chunks.aclose()
    poller = feed._poller
    assert poller is not None
    await asyncio.wait_for(poller, 5)
    store.add(3)
    second = Stream(feed, EventCursor(1, 1))
    assert [await second.next() for _ in range(3)] == ["1-2", "1-3", "1-4"]
    await second.chunks.aclose()


async def test_a_stream_pauses_while_the_store_is_away_and_says_so(store: Store, feed: EventFeed) -> None:
    stream = Stream(feed, STREAM_START)
    store.add()
    assert await stream.next() == "1-1"
    store.is_away = True
    assert await stream.next() == "stream.paused"
    store.add(2)
    store.is_away = False
    assert [await stream.next() for _ in range(3)] == ["stream.resumed", "1-2", "1-3"]
    stream.closing.set()
    assert await stream.next() == "end"


async def test_a_cursor_beyond_all_events_is_left_to_the_store_which_knows_whether_it_is_of_another_database(
    store: Store, feed: EventFeed
) -> None:
    here, moved = Stream(feed, STREAM_START), EventCursor(10**9, 1)
    store.add(2)
    assert [await here.next(), await here.next()] == ["1-1", "1-2"]
    async with asyncio.timeout(5):
        while feed._end is None:  # noqa: ASYNC110  # the poller has no event for it
            await asyncio.sleep(0.005)
    await feed.page(moved)
    assert moved in store.reads
    await here.chunks.aclose()


async def test_the_events_of_a_turn_are_read_alone(store: Store, feed: EventFeed) -> None:
    store.add(3)
    wanted = store.events[1]
    assert wanted.turn_id is not None
    assert await feed.turn(wanted.turn_id, STREAM_START) == EventPage([wanted], wanted.cursor, is_last=True)
    assert await feed.turn(wanted.turn_id, wanted.cursor) == EventPage([], wanted.cursor, is_last=True)
