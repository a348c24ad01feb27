"""Typing, in a time that passes only where a task waits: when it is shown, how often, and when no more."""

import asyncio
import heapq
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from hermes.channels.telegram import BotApi, TelegramChannel
from hermes.channels.whatsapp import Dialog360, WhatsAppChannel
from hermes.delivery.typing_indicator import MAX_CALLS, MAX_KNOWN_CHATS, TypingIndicator
from hermes.ports.channels import MaybeSent, NotSent, PlatformRequest, PlatformResponse
from hermes.ports.outbox import ChannelName
from hermes.turn import Envelope, MessageEvent, Platform
from tests.flows.directory import Directory

TELEGRAM = TelegramChannel(account="bali", api=BotApi(token="12345:abcdefghijklmnop"))  # noqa: S106  # nobody's
NUMBER = WhatsAppChannel(account="bali", provider=Dialog360(api_key="k", webhook_secrets=("s",)))
OK = PlatformResponse(status=200, headers={}, body=b'{"ok": true, "result": true}')
TAKEN = PlatformResponse(status=200, headers={}, body=b'{"success": true}')
FLOOD = b'{"ok": false, "error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 30}}'
LIMITED = PlatformResponse(status=429, headers={}, body=FLOOD)
DOWN = PlatformResponse(status=502, headers={}, body=b"<html>")


@dataclass
class House:
    """Typing around a platform that answers as it is told to."""

    answers: list[PlatformResponse | Exception] = field(default_factory=list)
    usual: PlatformResponse = OK
    now: float = 0.0
    calls: list[tuple[float, Mapping[str, Any]]] = field(default_factory=list)
    """When each was made, and its body."""
    hangs: bool = False
    most: int = 0
    """Calls that were under way at once."""
    waiting: list[tuple[float, int, asyncio.Event]] = field(default_factory=list)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.typing = TypingIndicator(channels=Directory([TELEGRAM, NUMBER]), post=self, pause=self.pause, timer=lambda: self.now)

    async def send(self, call: PlatformRequest, *, timeout_s: float) -> PlatformResponse:
        assert call.json is not None
        self.calls.append((round(self.now, 3), call.json))
        self.most = max(self.most, len(self.typing.calling))
        if self.hangs:
            await asyncio.Event().wait()
        answer = self.answers.pop(0) if self.answers else self.usual
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def pause(self, seconds: float) -> None:
        event = asyncio.Event()
        heapq.heappush(self.waiting, (self.now + seconds, next(self.numbers), event))
        await event.wait()

    async def passes(self, seconds: float) -> None:
        """Let time go by, and everybody do what is due in it."""
        until = self.now + seconds
        await settled()
        while self.waiting and self.waiting[0][0] <= until:
            self.now, _, event = heapq.heappop(self.waiting)
            event.set()
            await settled()
        self.now = until

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.calls]


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def said(platform: Platform = Platform.TELEGRAM, channel_id: str = "42", key: str = "12345:7", **more: Any) -> Envelope:
    event = MessageEvent(platform=platform, sender_id="42", text="hi")
    return Envelope(event=event, account="bali", channel_id=channel_id, event_key=key, **more)


async def test_it_is_shown_after_a_moment_and_then_every_four_seconds() -> None:
    house = House()
    async with house.typing.show_during(said(thread="9")):
        await house.passes(0.6)
        assert house.calls == []
        await house.passes(10)
    await house.passes(60)
    assert house.calls == [(at, {"chat_id": 42, "message_thread_id": 9, "action": "typing"}) for at in (0.7, 4.7, 8.7)]
    assert house.typing.showing == set()


async def test_an_answer_that_comes_at_once_shows_nothing() -> None:
    house = House()
    async with house.typing.show_during(said()):
        pass
    await house.passes(60)
    assert (house.calls, house.typing.showing) == ([], set())


async def test_the_end_of_the_block_waits_for_no_call() -> None:
    house = House(hangs=True)
    async with asyncio.timeout(1):
        async with house.typing.show_during(said()):
            await house.passes(1)
    await settled()
    assert (house.times, house.typing.showing, house.typing.calling) == ([0.7], set(), set())


async def test_what_the_block_raises_is_what_is_raised() -> None:
    house = House(answers=[NotSent()])

    async def turn() -> None:
        async with house.typing.show_during(said()):
            await house.passes(1)
            raise KeyError

    with pytest.raises(KeyError):
        await turn()


@pytest.mark.parametrize("answer", [LIMITED, DOWN, NotSent("cannot connect"), MaybeSent("the connection broke")])
async def test_whatever_goes_wrong_ends_it_for_this_turn(answer: PlatformResponse | Exception) -> None:
    house = House(answers=[answer])
    with capture_logs() as logs:
        async with house.typing.show_during(said()):
            await house.passes(60)
    assert house.times == [0.7]
    assert [line["event"] for line in logs] == ["typing_stopped"]


async def test_a_chat_that_is_limited_is_left_alone_as_long_as_it_was_told() -> None:
    house = House(answers=[LIMITED])
    for _ in range(2):
        async with house.typing.show_during(said()):
            await house.passes(10)
    async with house.typing.show_during(said(channel_id="43")):
        await house.passes(1)
    async with house.typing.show_during(said()):
        await house.passes(14)
    assert house.times == [0.7, 20.7, 33.7]


async def test_turns_that_follow_each_other_closely_show_it_no_more_than_once_a_second() -> None:
    house = House()
    for _ in range(4):
        async with house.typing.show_during(said()):
            await house.passes(0.75)
    assert house.times == [0.7, 2.2]


async def test_a_group_is_shown_it_every_fifteen_seconds() -> None:
    house = House()
    async with house.typing.show_during(said(channel_id="-1007")):
        await house.passes(40)
    assert house.times == [0.7, 15.7, 30.7]


async def test_whatsapp_is_told_which_message_is_answered_every_25_seconds() -> None:
    house = House(usual=TAKEN)
    async with house.typing.show_during(replace(said(Platform.WHATSAPP), message_id="wamid.HBg")):
        await house.passes(30)
    assert house.times == [0.7, 25.7]
    assert house.calls[0][1]["message_id"] == "wamid.HBg"


async def test_where_there_is_no_such_thing_nothing_is_shown() -> None:
    house = House()
    for envelope in (said(Platform.REST), said(Platform.WHATSAPP, "group:Y2Fw", "1055:wamid.1"), said(Platform.INSTAGRAM)):
        async with house.typing.show_during(envelope):
            await house.passes(60)
    assert house.calls == []


async def test_one_account_shows_it_to_seven_chats_a_second_at_most() -> None:
    house = House()
    async with asyncio.TaskGroup() as turns:
        for chat in range(50):
            turns.create_task(held(house, str(chat)))
        await house.passes(0.75)
        assert house.times == [0.7]
        await house.passes(99)
    assert all(len([at for at in house.times if start <= at < start + 1]) <= 8 for start in house.times)


async def held(house: House, chat: str) -> None:
    async with house.typing.show_during(said(channel_id=chat)):
        await house.pause(20)


async def test_a_platform_that_hangs_holds_a_few_connections_only() -> None:
    house = House(hangs=True)
    async with asyncio.TaskGroup() as turns:
        for chat in range(50):
            turns.create_task(held(house, str(chat)))
            await house.passes(0.2)
        await house.passes(99)
    assert (house.most, house.typing.calling) == (MAX_CALLS, set())


async def test_what_is_remembered_of_chats_has_an_end() -> None:
    house = House()
    line = ChannelName(Platform.TELEGRAM, "bali")
    house.typing.rests.update({(line, f"old {number}"): 0.0 for number in range(MAX_KNOWN_CHATS)} | {(line, "busy"): 99.0})
    async with house.typing.show_during(said()):
        await house.passes(1)
    assert set(house.typing.rests) == {(line, "busy"), (line, "42"), (line, "")}


async def test_a_defect_of_ours_is_logged_and_hurts_nobody() -> None:
    house = House(answers=[KeyError("oh")])
    with capture_logs() as logs:
        async with house.typing.show_during(said()):
            await house.passes(60)
        await settled()
    assert [line["event"] for line in logs] == ["typing_failed"]
