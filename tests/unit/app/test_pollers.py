"""Asking Telegram for what is new: an answer that does not come whole is asked for in smaller portions."""

import asyncio
import json
from contextlib import suppress
from typing import Any, cast

from hermes.app.channels import MAX_UPDATES, TelegramPollers
from hermes.channels.telegram import BotApi, TelegramChannel
from hermes.ports.channels import MaybeSent, NotSent, PlatformRequest, PlatformResponse
from hermes.ports.errors import InboxFull
from hermes.ports.users import UserState
from hermes.turn import Platform


class Bot:
    """The lines of one bot; a platform that answers as it is told to; and somebody who hears."""

    def __init__(self, *acts: Any) -> None:
        self.acts, self.asked, self.heard, self.pauses = list(acts), [], [], []
        self.channel = TelegramChannel(account="bali", api=BotApi(token=f"123456789:{'A' * 35}"))
        self.done = asyncio.Event()

    def get(self, platform: Platform, name: str) -> TelegramChannel | None:
        return self.channel if (platform, name) == (Platform.TELEGRAM, "bali") else None

    def new_user_state(self, *_: Any) -> UserState:
        return UserState.STRANGER

    async def send(self, call: PlatformRequest, *, timeout_s: float) -> PlatformResponse:
        wanted = dict(call.json or {})
        self.asked.append((wanted.get("offset"), wanted["limit"]))
        if not self.acts:
            self.done.set()
            await asyncio.sleep(60)
        act = self.acts.pop(0)
        if isinstance(act, Exception):
            raise act
        return PlatformResponse(status=200, headers={}, body=json.dumps({"ok": True, "result": act}).encode())

    async def route(self, channel: Any, events: Any, *, newcomer: Any) -> int:
        self.heard.append(len(events))
        if len(self.heard) == 1 and self.fills:
            raise InboxFull
        return 1

    fills = False

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def poll(self) -> None:
        pollers = TelegramPollers(cast("Any", self), cast("Any", self), cast("Any", self), pause=self.pause)
        task = asyncio.create_task(pollers._poll("bali"))
        async with asyncio.timeout(10):
            await self.done.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def update(number: int) -> dict[str, Any]:
    sender = {"id": 7, "is_bot": False, "first_name": "Ada"}
    message = {"message_id": number, "date": 1_700_000_000, "chat": {"id": 7, "type": "private"}, "from": sender, "text": "hi"}
    return {"update_id": number, "message": message}


async def test_an_answer_that_is_too_long_is_asked_for_in_smaller_portions() -> None:
    bot = Bot(MaybeSent("the answer does not end"), MaybeSent("the answer does not end"), [update(5)])
    await bot.poll()
    assert bot.asked == [(None, MAX_UPDATES), (None, 10), (None, 1), (6, MAX_UPDATES)]
    assert (bot.heard, len(bot.pauses)) == ([1], 2)


async def test_a_platform_that_is_away_changes_no_portion() -> None:
    bot = Bot(NotSent("cannot connect"), [update(5)])
    await bot.poll()
    assert bot.asked == [(None, MAX_UPDATES), (None, MAX_UPDATES), (6, MAX_UPDATES)]


async def test_what_there_is_no_room_for_is_asked_for_again() -> None:
    bot = Bot([update(5)], [update(5)])
    bot.fills = True
    await bot.poll()
    assert [offset for offset, _ in bot.asked] == [None, None, 6]
    assert bot.heard == [1, 1]
