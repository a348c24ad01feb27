"""What goes wrong on cue, and what the message log says of it: it tells what really arrived, whatever the caller saw."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from hermes.channels.fakes import FakePlatforms, InstagramPerson, TelegramPerson, WhatsAppPerson
from hermes.testing.platforms import FakePerson, HtmlFault, RefuseFault
from tests.unit.channels.fakes.receiver import Caller, Reply


class Line:
    """Sends a text to somebody, whatever the platform."""

    def __init__(self, caller: Caller, platforms: FakePlatforms, name: str) -> None:
        self.caller = caller
        self.platform = getattr(platforms, name)
        self.person: FakePerson = self.platform.person("Ada")
        self.person.say("hi")

    def call(self, text: str, person: FakePerson) -> tuple[str, Mapping[str, Any], Mapping[str, str]]:
        match person:
            case TelegramPerson():
                return f"/bot{self.platform.token}/sendMessage", {"chat_id": person.id, "text": text}, {}
            case WhatsAppPerson():
                body = {"messaging_product": "whatsapp", "to": person.id, "text": {"body": text}}
                return "/messages", body, {"D360-API-KEY": self.platform.key}
            case InstagramPerson():
                body = {"recipient": {"id": person.id}, "message": {"text": text}}
                return "/v23.0/me/messages", body, {"Authorization": f"Bearer {self.platform.token}"}
        raise AssertionError(person)

    async def send(self, text: str, person: FakePerson | None = None, timeout_s: float = 5.0) -> Reply:
        path, body, headers = self.call(text, person or self.person)
        return await self.caller.post(path, body, headers, timeout_s)


@pytest.fixture(params=["telegram", "whatsapp", "instagram"])
def line(request: pytest.FixtureRequest, platforms: FakePlatforms, caller: Caller) -> Line:
    return Line(caller, platforms, request.param)


async def test_a_reset_after_reading_delivers_and_the_caller_cannot_know(line: Line) -> None:
    line.platform.reset()
    with pytest.raises(aiohttp.ClientOSError, match="reset by peer"):
        await line.send("one")
    assert (await line.send("one")).status == 200, "who tries again sends it twice"
    assert [(one.text, one.is_answered) for one in line.person.received] == [("one", False), ("one", True)]
    assert line.platform.message_log.copies() == {(line.person.id, "one"): 2}


async def test_a_reset_may_lose_the_message_too(line: Line) -> None:
    line.platform.reset(arrives=False)
    with pytest.raises(aiohttp.ClientOSError):
        await line.send("one")
    assert line.person.received == []


@pytest.mark.parametrize("arrives", [True, False])
async def test_no_answer_ever(line: Line, arrives: bool) -> None:
    line.platform.hang(arrives=arrives)
    with pytest.raises(TimeoutError):
        await line.send("one", timeout_s=0.5)
    assert line.person.texts == (["one"] if arrives else [])


async def test_a_slow_body_comes_whole_in_the_end(line: Line) -> None:
    line.platform.slow(0.3)
    start = time.monotonic()
    reply = await line.send("one")
    assert (reply.status, time.monotonic() - start >= 0.3, line.person.texts) == (200, True, ["one"])
    line.platform.slow(5)
    with pytest.raises(TimeoutError):
        await line.send("two", timeout_s=0.5)
    assert line.person.texts == ["one", "two"], "it arrived although nobody waited for the answer"


async def test_a_page_instead_of_json_delivers_nothing(line: Line) -> None:
    line.platform.html(503)
    reply = await line.send("one")
    assert (reply.status, reply.headers["Content-Type"], reply.body[:9]) == (503, "text/html", b"<!doctype")
    assert line.person.received == []


async def test_an_answer_that_says_nothing(line: Line) -> None:
    line.platform.raw("")
    line.platform.raw('{"half": ', status=500, arrives=False)
    replies = [await line.send("one"), await line.send("two")]
    assert [(one.status, one.body) for one in replies] == [(200, b""), (500, b'{"half": ')]
    assert line.person.texts == ["one"]


async def test_faults_strike_in_order_and_only_whom_and_what_they_are_meant_for(platforms: FakePlatforms, caller: Caller) -> None:
    line = Line(caller, platforms, "telegram")
    bob = platforms.telegram.person("Bob")
    bob.start()
    platforms.telegram.fail(500, to=bob, times=2)
    platforms.telegram.fail(502, method="sendChatAction")
    platforms.telegram.fail(429, retry_after=7)
    ada_first, bob_first, ada_second, bob_second, bob_third = [
        await line.send("x", person) for person in (line.person, bob, line.person, bob, bob)
    ]
    assert (ada_first.status, ada_first.body["parameters"], ada_first.headers["Retry-After"]) == (429, {"retry_after": 7}, "7")
    assert [one.status for one in (bob_first, ada_second, bob_second, bob_third)] == [500, 200, 500, 200]
    assert len(platforms.telegram.schedule.faults) == 1
    platforms.telegram.heal()
    assert platforms.telegram.schedule.faults == []


async def test_an_outage_lasts_as_long_as_it_lasts(line: Line, platforms: FakePlatforms) -> None:
    line.platform.outage(3_600)
    assert [(await line.send(str(number))).status for number in range(3)] == [503, 503, 503]
    platforms.skip(3_600)
    assert ((await line.send("over")).status, line.person.texts) == (200, ["over"])


async def test_an_outage_may_look_any_way(line: Line) -> None:
    line.platform.outage(3_600, RefuseFault(status=500, code=2, message="Service temporarily unavailable"))
    assert "Service temporarily unavailable" in str((await line.send("x")).body)


async def test_what_is_wrong_is_refused_before_a_fault_is_used_up(platforms: FakePlatforms, caller: Caller) -> None:
    line = Line(caller, platforms, "telegram")
    platforms.telegram.schedule_fault(HtmlFault())
    assert (await line.send("")).status == 400
    assert [(await line.send("x")).status for _ in range(2)] == [502, 200]


async def test_meta_says_the_same_trouble_with_any_status(platforms: FakePlatforms, caller: Caller) -> None:
    whatsapp, instagram = Line(caller, platforms, "whatsapp"), Line(caller, platforms, "instagram")
    for status in (400, 403, 429):
        platforms.whatsapp.fail(status, 130429)
        platforms.instagram.fail(status, 613, parameters={"is_transient": True})
    for status in (400, 403, 429):
        reply = await whatsapp.send("x")
        assert (reply.status, reply.body["error"]["code"], reply.body["error"]["message"]) == (status, 130429, "(#130429) Rate limit hit")
        reply = await instagram.send("x")
        assert (reply.status, reply.body["error"]["code"], reply.body["error"]["is_transient"]) == (status, 613, True)


async def test_360dialog_throttles_with_a_400_and_no_code(platforms: FakePlatforms, caller: Caller) -> None:
    line = Line(caller, platforms, "whatsapp")
    platforms.whatsapp.throttle()
    reply = await line.send("x")
    words = "You have exceeded the endpoint rate limit."
    assert (reply.status, reply.body) == (400, {"meta": {"success": False, "http_code": 400, "developer_message": words}})


async def test_every_call_is_written_down_with_what_it_was_answered(line: Line) -> None:
    line.platform.hang()
    with pytest.raises(TimeoutError):
        await line.send("one", timeout_s=0.5)
    await line.send("")
    await line.send("two")
    assert [seen.status for seen in line.platform.requests] == [None, 400, 200]
    assert "two" in str(line.platform.requests[-1].body)


async def test_the_ledger_can_be_waited_for(line: Line) -> None:
    waiting = asyncio.create_task(line.person.wait_for_messages(2))
    for text in ("one", "two"):
        await line.send(text)
    assert [one.text for one in await waiting] == ["one", "two"]
    with pytest.raises(TimeoutError):
        await line.person.wait_for_messages(3, timeout_s=0.05)
