"""Telegram's webhooks: in order within a chat, again and again until they are taken, and never for ever."""

import asyncio

from aiohttp import web

from hermes.channels.fakes import FakePlatforms, open_platforms
from hermes.testing.platforms import Disorder
from tests.unit.channels.fakes.receiver import Caller, Got, Receiver, next_try


def texts(receiver: Receiver) -> list[str]:
    return [got.body["message"]["text"] for got in receiver.got]


async def test_an_update_brings_the_secret_and_comes_once(platforms: FakePlatforms, receiver: Receiver) -> None:
    platforms.telegram.connect(receiver.url)
    platforms.telegram.person("Ada").say("hi")
    await platforms.telegram.wait_until_quiet()
    [got] = receiver.got
    assert (got.headers["X-Telegram-Bot-Api-Secret-Token"], got.body["message"]["text"]) == (platforms.telegram.secret, "hi")
    assert platforms.telegram.pending == 0


async def test_what_was_said_before_the_webhook_was_set_comes_too(platforms: FakePlatforms, receiver: Receiver, caller: Caller) -> None:
    ada = platforms.telegram.person("Ada")
    ada.say("early")
    await caller.post(f"/bot{platforms.telegram.token}/setWebhook", {"url": receiver.url, "secret_token": "A-b_9"})
    await platforms.telegram.wait_until_quiet()
    assert (texts(receiver), receiver.got[0].headers["X-Telegram-Bot-Api-Secret-Token"]) == (["early"], "A-b_9")


async def test_a_kind_that_nobody_knows_yet_comes_like_any_other(platforms: FakePlatforms, receiver: Receiver) -> None:
    platforms.telegram.connect(receiver.url)
    platforms.telegram.send_update("hologram", {"id": 1})
    await platforms.telegram.wait_until_quiet()
    assert receiver.got[0].body["hologram"] == {"id": 1}


async def test_pending_updates_can_be_dropped(platforms: FakePlatforms, receiver: Receiver, caller: Caller) -> None:
    ada = platforms.telegram.person("Ada")
    ada.say("early")
    await caller.post(f"/bot{platforms.telegram.token}/setWebhook", {"url": receiver.url, "drop_pending_updates": True})
    ada.say("late")
    await platforms.telegram.wait_until_quiet()
    assert texts(receiver) == ["late"]


async def test_a_chat_waits_for_its_first_update_and_other_chats_do_not(platforms: FakePlatforms, receiver: Receiver) -> None:
    ada, bob = platforms.telegram.person("Ada"), platforms.telegram.person("Bob")
    fails = iter([500, 500, 302, 400])
    receiver.answers = lambda got: web.Response(status=next(fails, 200) if got.body["message"]["from"]["id"] == int(ada.id) else 200)
    platforms.telegram.connect(receiver.url)
    ada.say("a1")
    ada.say("a2")
    bob.say("b1")
    await platforms.telegram.wait_until_quiet()
    assert [text for text in texts(receiver) if text.startswith("a")] == ["a1", "a1", "a1", "a1", "a1", "a2"]
    assert texts(receiver).index("b1") < texts(receiver).index("a2"), "Bob did not wait for Ada"


async def test_the_pauses_double_up_to_one_to_two_minutes(still: FakePlatforms, receiver: Receiver) -> None:
    receiver.then(*[500] * 9)
    still.telegram.connect(receiver.url)
    still.telegram.person("Ada").say("hi")
    for pause_s in (0, 0, 2, 4, 8, 16, 32):
        await next_try(still, still.telegram, pause_s)
    for _ in range(3):
        await next_try(still, still.telegram, 60, at_most_s=120)
    await still.telegram.wait_until_quiet()
    assert [one.status for one in still.telegram.attempts] == [500] * 9 + [200]


async def test_retry_after_is_honoured_and_capped_at_an_hour(still: FakePlatforms, receiver: Receiver) -> None:
    receiver.then(503, headers={"Retry-After": "300"})
    receiver.then(503, headers={"Retry-After": "999999"})
    still.telegram.connect(receiver.url)
    still.telegram.person("Ada").say("hi")
    for pause_s in (0, 300, 3_600):
        await next_try(still, still.telegram, pause_s)
    await still.telegram.wait_until_quiet()


async def test_an_update_is_given_up_after_a_day_and_a_button_press_after_150_seconds(still: FakePlatforms, receiver: Receiver) -> None:
    receiver.answers = lambda _: web.Response(status=500, headers={"Retry-After": "100"})
    still.telegram.connect(receiver.url)
    ada = still.telegram.person("Ada")
    said = ada.say("hi")
    ada.press(said, "x")
    await still.world.changes.wait_until(lambda: len(still.telegram.attempts) == 2, 5)
    still.skip(100.5)
    await still.world.changes.wait_until(lambda: len(still.telegram.attempts) == 4, 5)
    await still.world.changes.wait_until(lambda: still.telegram.pending == 1, 5)
    for _ in range(10):
        await asyncio.sleep(0)
    still.skip(86_300)
    await still.telegram.wait_until_quiet()
    assert (still.telegram.pending, len(receiver.got)) == (0, 5)
    receiver.answers = None
    ada.say("still here?")
    await still.telegram.wait_until_quiet()
    assert receiver.got[-1].body["message"]["text"] == "still here?"


async def test_no_answer_in_time_is_a_failure(platforms: FakePlatforms, receiver: Receiver) -> None:
    platforms.telegram.patience_s = 0.05
    receiver.hangs = 1
    platforms.telegram.connect(receiver.url)
    platforms.telegram.person("Ada").say("hi")
    await platforms.telegram.wait_until_quiet()
    assert [(one.status, one.error) for one in platforms.telegram.attempts] == [(None, "no answer in time"), (200, "")]


async def test_gone_for_23_hours_ends_the_webhook(platforms: FakePlatforms, receiver: Receiver, caller: Caller) -> None:
    receiver.answers = lambda _: web.Response(status=410)
    platforms.telegram.connect(receiver.url)
    platforms.telegram.person("Ada").say("hi")
    await platforms.world.changes.wait_until(lambda: len(platforms.telegram.attempts) >= 1, 5)
    platforms.skip(23.5 * 3_600)
    await platforms.telegram.wait_until_quiet()
    assert platforms.telegram.webhook is None
    info = (await caller.get(f"/bot{platforms.telegram.token}/getWebhookInfo")).body["result"]
    assert (info["url"], info["pending_update_count"]) == ("", 1)


async def test_an_unhappy_webhook_shows_in_its_info(platforms: FakePlatforms, receiver: Receiver, caller: Caller) -> None:
    receiver.then(500)
    platforms.telegram.connect(receiver.url, max_connections=7)
    platforms.telegram.person("Ada").say("hi")
    await platforms.telegram.wait_until_quiet()
    info = (await caller.get(f"/bot{platforms.telegram.token}/getWebhookInfo")).body["result"]
    assert (info["url"], info["max_connections"], info["last_error_message"]) == (
        receiver.url,
        7,
        "Wrong response from the webhook: 500",
    )


async def test_no_more_than_max_connections_at_once(platforms: FakePlatforms, receiver: Receiver) -> None:
    receiver.hangs, platforms.telegram.patience_s = 3, 5
    platforms.telegram.connect(receiver.url, max_connections=3)
    for number in range(6):
        platforms.telegram.person(f"P{number}").say("hi")
    async with asyncio.timeout(5):
        while len(receiver.got) < 3:  # noqa: ASYNC110  # the receiver rings no bell
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert len(receiver.got) == 3


async def test_what_the_answer_to_a_webhook_asks_for_is_done(platforms: FakePlatforms, receiver: Receiver) -> None:
    ada = platforms.telegram.person("Ada")
    receiver.script.append(lambda _: web.json_response({"method": "sendMessage", "chat_id": int(ada.id), "text": "from the answer"}))
    receiver.script.append(lambda _: web.json_response({"method": "sendMessage", "chat_id": 1, "text": "refused, and nobody hears of it"}))
    receiver.script.append(lambda _: web.json_response({"method": "deleteWebhook"}))
    platforms.telegram.connect(receiver.url)
    for text in ("one", "two", "three"):
        ada.say(text)
    await platforms.telegram.wait_until_quiet()
    assert [(one.text, one.is_answered) for one in ada.received] == [("from the answer", False)]
    assert platforms.telegram.webhook is not None


async def test_duplicates_come_out_the_same_for_the_same_seed_and_keep_the_order(receiver: Receiver) -> None:
    async def run(seed: int) -> list[str]:
        receiver.got.clear()
        async with open_platforms(seed=seed, speed=1000, disorder=Disorder(duplicates=0.4, held_back=0.5)) as platforms:
            platforms.telegram.connect(receiver.url)
            ada = platforms.telegram.person("Ada")
            for number in range(20):
                ada.say(str(number))
            await platforms.telegram.wait_until_quiet()
        return texts(receiver)

    first, again, other = await run(1), await run(1), await run(2)
    assert first == again != other
    assert len(first) > 20
    assert sorted(set(first), key=int) == list(dict.fromkeys(first)), "in order, whatever comes twice"


async def test_twenty_messages_of_fifty_people_come_once_and_in_order(platforms: FakePlatforms, receiver: Receiver) -> None:
    count: dict[int, int] = {}

    def now_and_then(got: Got) -> web.Response:
        sender = got.body["message"]["from"]["id"]
        count[sender] = count.get(sender, 0) + 1
        return web.Response(status=500 if count[sender] % 7 == 3 else 200)

    receiver.answers = now_and_then
    platforms.telegram.connect(receiver.url)
    people = [platforms.telegram.person(f"P{number}") for number in range(50)]
    for number in range(20):
        for person in people:
            person.say(str(number))
    await platforms.telegram.wait_until_quiet(30)
    taken: dict[int, list[str]] = {}
    for got in receiver.got:
        message = got.body["message"]
        said = taken.setdefault(message["from"]["id"], [])
        if not said or said[-1] != message["text"]:
            said.append(message["text"])
    assert set(map(tuple, taken.values())) == {tuple(map(str, range(20)))}
