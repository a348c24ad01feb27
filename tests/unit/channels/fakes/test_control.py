"""Everything can be pulled over HTTP too; the page is our own and loads nothing from elsewhere."""

import asyncio
import base64

import aiohttp

from hermes.channels.fakes import FakePlatforms
from hermes.testing.platforms import sample_picture
from tests.unit.channels.fakes.receiver import RIGHT, Caller, Receiver


async def test_people_are_made_speak_and_receive(platforms: FakePlatforms, caller: Caller, receiver: Receiver) -> None:
    await caller.post("/_control/telegram/webhook", {"url": receiver.url})
    ada = (await caller.post("/_control/telegram/people", {"name": "Ada", "username": "ada"})).body
    said = await caller.post(f"/_control/telegram/people/{ada['id']}/say", {"text": "hello"})
    assert (said.status, said.body) == (200, {"id": ada["id"], "did": "1"})
    picture = base64.b64encode(sample_picture()).decode()
    await caller.post(f"/_control/telegram/people/{ada['id']}/picture", {"base64": picture, "caption": "look"})
    await caller.post(f"/_control/telegram/people/{ada['id']}/album", {"count": 2})
    await platforms.telegram.wait_until_quiet()
    assert [got.body["message"].get("text") or got.body["message"].get("caption") for got in receiver.got] == ["hello", "look", None, None]
    await caller.post(f"/bot{platforms.telegram.token}/sendMessage", {"chat_id": int(ada["id"]), "text": "hi"})
    [received] = (await caller.get(f"/_control/telegram/people/{ada['id']}/received")).body
    assert (received["by"], received["text"], received["is_answered"]) == ("account", "hi", True)


async def test_a_person_without_a_number_and_one_who_changes_it(platforms: FakePlatforms, caller: Caller) -> None:
    made = (await caller.post("/_control/whatsapp/people", {"name": "Made", "phone": None})).body
    assert made["id"].startswith("ID.")
    wayan = (await caller.post("/_control/whatsapp/people", {"name": "Wayan"})).body
    changed = await caller.post(f"/_control/whatsapp/people/{wayan['id']}/number", {"phone": "628111111111"})
    assert changed.body == {"id": "628111111111", "did": None}
    for act, is_blocking in (("block", True), ("unblock", False)):
        await caller.post(f"/_control/whatsapp/people/628111111111/{act}", {})
        assert platforms.whatsapp.people["628111111111"].is_blocking is is_blocking


async def test_faults_are_cued_shown_and_healed(platforms: FakePlatforms, caller: Caller) -> None:
    cue = {"kind": "refuse", "status": 429, "retry_after": 5, "method": "sendMessage", "times": 2}
    [shown] = (await caller.post("/_control/telegram/faults", cue)).body
    assert {key: shown[key] for key in cue} == cue
    lasting = (await caller.post("/_control/telegram/faults", {"kind": "html", "status": 503, "for_s": 60})).body[1]
    assert (lasting["times"], 0 < lasting["left_s"] <= 60) == (None, True)
    assert (await caller.delete("/_control/telegram/faults")).body == []
    assert platforms.telegram.schedule.faults == []


async def test_time_disorder_and_webhooks(platforms: FakePlatforms, caller: Caller, receiver: Receiver) -> None:
    before = platforms.world.clock.now()
    assert (await caller.post("/_control/time", {"skip_s": 90_000})).body["now"] >= before + 90_000
    disorder = (await caller.post("/_control/instagram/disorder", {"duplicates": 0.5})).body
    assert (disorder["duplicates"], platforms.instagram.disorder.duplicates) == (0.5, 0.5)
    right = await caller.post("/_control/instagram/webhook", {"url": receiver.url, "verify_token": RIGHT})
    wrong = await caller.post("/_control/instagram/webhook", {"url": receiver.url, "verify_token": "wrong"})
    assert (right.status, wrong.status) == (200, 400)


async def test_the_state_is_told_at_once_and_then_when_something_is_new(platforms: FakePlatforms, caller: Caller) -> None:
    first = (await caller.get("/_control/state")).body
    assert [platform["name"] for platform in first["platforms"]] == [
        "telegram",
        "whatsapp",
        "whatsapp_cloud",
        "instagram",
        "instagram_page",
    ]
    waiting = asyncio.create_task(caller.get(f"/_control/state?after={first['rings']}"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    platforms.telegram.person("Ada").say("hi")
    second = (await waiting).body
    [ada] = second["platforms"][0]["people"]
    assert (second["rings"] > first["rings"], [entry["text"] for entry in ada["talk"]]) == (True, ["hi"])


async def test_calls_are_shown_without_the_token(platforms: FakePlatforms, caller: Caller) -> None:
    await caller.post(f"/bot{platforms.telegram.token}/getMe", {})
    [call] = (await caller.get("/_control/state")).body["platforms"][0]["calls"]
    assert call == {"method": "POST", "path": "/bot…/getMe", "status": 200, "body": {}}


async def test_says_what_is_wrong(caller: Caller) -> None:
    wrong = [
        await caller.post("/_control/icq/people", {"name": "x"}),
        await caller.post("/_control/telegram/people/1/say", {"text": "x"}),
        await caller.post("/_control/telegram/people", {}),
        await caller.post("/_control/telegram/people", {"name": "x", "phone": "1"}),
        await caller.post("/_control/telegram/faults", {"kind": "magic"}),
        await caller.post("/_control/telegram/people", [1]),
    ]
    assert [one.status for one in wrong] == [404, 404, 400, 400, 400, 400]
    assert wrong[0].body == b"the platforms are telegram, whatsapp, whatsapp_cloud, instagram, instagram_page"


async def test_a_page_of_another_site_can_pull_nothing(platforms: FakePlatforms, client: aiohttp.ClientSession, caller: Caller) -> None:
    foreign = await caller.post("/_control/telegram/people", {"name": "x"}, {"Origin": "https://evil.example"})
    assert foreign.status == 403
    async with client.post(
        f"{platforms.url}/_control/telegram/people", data='{"name": "x"}', headers={"Content-Type": "text/plain"}
    ) as plain:
        assert plain.status == 415, "what a browser sends without asking first is not taken"
    assert platforms.telegram.people == {}
    own = await caller.post("/_control/telegram/people", {"name": "x"}, {"Origin": platforms.url})
    assert own.status == 201


async def test_the_page_is_our_own(caller: Caller) -> None:
    page = await caller.get("/")
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert b"://" not in page.body
    for name in ("page.js", "markup.js", "page.css", "icon.svg"):
        assert (await caller.get(f"/_page/{name}")).status == 200
    assert (await caller.get("/_page/__init__.py")).status == 404
