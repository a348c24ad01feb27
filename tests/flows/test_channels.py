"""Whole conversations over platforms that check everything: a webhook comes in, ten steps, and what the person really received."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import structlog

from hermes.channels.fakes import FakeInstagram, FakePlatforms, FakeWhatsApp, open_platforms
from hermes.channels.telegram.fake.people import TelegramPerson
from hermes.config import InboxSettings, MemorySettings
from hermes.ports.channels import ChannelAccount, SendOutcome
from hermes.router.replies import ReplyKind, reply
from hermes.stores.postgres.database import connection_of
from hermes.testing.platforms import Disorder
from hermes.turn import Platform
from tests.flows.service import Service, running, stopped

pytestmark = pytest.mark.usefixtures("redis_url")


@dataclass(frozen=True)
class Town:
    """Hermes, the platforms, and what connects them."""

    service: Service
    platforms: FakePlatforms

    async def open(
        self, platform: Platform, about: dict[str, str], *, name: str = "fake", is_open: bool = True, is_polled: bool = False
    ) -> None:
        """Give Hermes an account at a platform."""
        told = {**about, **({"is_open": "yes"} if is_open else {})}
        account = ChannelAccount(platform=platform, account=name, about=told, is_polled=is_polled)
        async with self.service.database.begin() as tx:
            await self.service.hermes.adapters.channel_accounts.put(tx, account)
        await self.service.hermes.account_channels.refresh()

    async def until(self, query: str, expected: list[Any]) -> None:
        """Wait until the database says so: a message arrives before that is written down."""
        for _ in range(100):
            if (found := await self.ask(query)) == expected:
                return
            await asyncio.sleep(0.05)
        assert found == expected

    async def ask(self, query: str) -> list[Any]:
        async with self.service.database.begin() as tx:
            return list(await (await connection_of(tx).execute(query.encode())).fetchall())


@pytest.fixture
async def town(database_url: str, redis_url: str) -> AsyncIterator[Town]:
    more = {"memory": MemorySettings(asks_models=False)}
    async with open_platforms() as platforms, running(database_url, redis_url, echoes=False, more=more) as service:
        platforms.connect(service.url)
        yield Town(service, platforms)


async def at_360dialog(town: Town, *, is_open: bool = True) -> None:
    fake = town.platforms.whatsapp
    header, secret = fake.secret_header
    about = {"api_key": fake.key, "webhook_secrets": secret, "secret_header": header, "base_url": town.platforms.url}
    await town.open(Platform.WHATSAPP, about, is_open=is_open)


async def test_the_founding_example_from_the_360dialog_webhook_to_the_delivered_reply(town: Town) -> None:
    await at_360dialog(town)
    ada = town.platforms.whatsapp.person("Ada")
    ada.say("find me a sunset bar in Canggu")
    [received] = await ada.wait_for_messages(1, timeout_s=15)
    assert "Salt & Ember" in received.text
    ada.say("thanks!")
    await ada.wait_for_messages(2, timeout_s=15)
    assert town.platforms.whatsapp.message_log.copies() == {}
    await town.until("select count(*) from interactions where meta ->> 'outcome' = 'answered'", [(2,)])
    await town.until("select distinct state from outbox", [("sent",)])


async def test_a_stranger_on_telegram_hears_how_to_sign_up_and_is_not_charged(town: Town) -> None:
    fake = town.platforms.telegram
    await town.open(Platform.TELEGRAM, {"token": fake.token, "secret": fake.secret, "base_url": town.platforms.url}, is_open=False)
    bob = fake.person("Bob")
    bob.say("find me a sunset bar in Canggu")
    [received] = await bob.wait_for_messages(1, timeout_s=15)
    assert received.text == reply(ReplyKind.SIGNUP, "en", link=None)
    assert await town.ask("select kind from credit_entries") == []


async def test_telegram_is_asked_for_what_is_new_where_it_cannot_reach_us(town: Town) -> None:
    fake = town.platforms.telegram
    fake.disconnect()
    await town.open(Platform.TELEGRAM, {"token": fake.token, "base_url": town.platforms.url}, is_polled=True)
    bob = fake.person("Bob")
    bob.say("find me a quiet cafe in Ubud")
    [received] = await bob.wait_for_messages(1, timeout_s=15)
    assert "Ubud" in received.text


async def test_a_webhook_that_proves_nothing_is_refused_and_stores_nothing(town: Town) -> None:
    await at_360dialog(town)
    for path in ("/webhooks/whatsapp/fake", "/webhooks/whatsapp/fake/guess"):
        assert (await town.service.post(path, {"object": "whatsapp_business_account", "entry": []})).status == 403
    for path in ("/webhooks/whatsapp/nobody", "/webhooks/pigeon/fake"):
        assert (await town.service.post(path, {})).status == 404
    assert await town.ask("select count(*) from inbox") == [(0,)]


async def test_what_a_platform_refuses_for_a_moment_arrives_once(town: Town) -> None:
    await at_360dialog(town)
    ada = town.platforms.whatsapp.person("Ada")
    town.platforms.whatsapp.fail(status=503, times=2)
    ada.say("hello")
    received = await ada.wait_for_messages(1, timeout_s=30)
    assert len(received) == 1
    await town.until("select state from outbox", [("sent",)])


async def test_instagram_answers_in_plain_text_and_its_echo_starts_no_turn(town: Town) -> None:
    fake = town.platforms.instagram
    about = {"instagram_id": fake.account_id, "access_token": fake.token, "app_secrets": fake.app_secret, "base_url": town.platforms.url}
    await town.open(Platform.INSTAGRAM, about)
    ada = fake.person("Ada")
    ada.say("find me a sunset bar in Canggu")
    received = await ada.wait_for_messages(1, timeout_s=15)
    assert "Salt & Ember" in "".join(part.text for part in received)
    await town.platforms.wait_until_quiet()
    assert await town.ask("select count(*) from inbox") == [(1,)]


async def on_telegram(town: Town) -> TelegramPerson:
    fake = town.platforms.telegram
    await town.open(Platform.TELEGRAM, {"token": fake.token, "secret": fake.secret, "base_url": town.platforms.url})
    return fake.person("Ada")


async def test_what_is_written_in_one_go_is_answered_together_where_the_settings_say_so(database_url: str, redis_url: str) -> None:
    more = {"inbox": InboxSettings(burst_s=1.0)}
    async with open_platforms() as platforms, running(database_url, redis_url, more=more) as service:
        platforms.connect(service.url)
        town = Town(service, platforms)
        ada = await on_telegram(town)
        for text in ("find me", "a sunset bar", "in Canggu"):
            ada.say(text)
        [received] = await ada.wait_for_messages(1, timeout_s=15)
        assert received.text.endswith("find me\na sunset bar\nin Canggu")
        await town.until("select count(*) from credit_entries where kind = 'post'", [(1,)])
        await town.until("select state, count(*) from inbox group by state", [("done", 3)])


async def test_who_writes_too_fast_is_told_so_and_not_charged(database_url: str, redis_url: str) -> None:
    more = {"inbox": InboxSettings(per_minute=2)}
    async with open_platforms() as platforms, running(database_url, redis_url, more=more) as service:
        platforms.connect(service.url)
        town = Town(service, platforms)
        ada = await on_telegram(town)
        for number in range(3):
            ada.say(f"message {number}")
        received = await ada.wait_for_messages(3, timeout_s=20)
        assert [each.text for each in received[:2]] == [received[0].text, received[1].text]
        assert received[2].text == reply(ReplyKind.TOO_MANY_MESSAGES, "en", retry_in=timedelta(minutes=1))
        await town.until("select count(*) from credit_entries where kind = 'post'", [(2,)])


def telegrammed(ada: TelegramPerson, update: int, text: str, sent_at: float) -> dict[str, Any]:
    """An update as Telegram sends it."""
    person = {"id": ada.id, "is_bot": False, "first_name": "Ada"}
    chat = {"id": ada.id, "type": "private", "first_name": "Ada"}
    return {"update_id": update, "message": {"message_id": update, "date": int(sent_at), "text": text, "chat": chat, "from": person}}


async def test_a_message_that_was_held_up_for_more_than_a_day_is_apologised_for(town: Town) -> None:
    ada = await on_telegram(town)
    ada.say("hi")
    await ada.wait_for_messages(1, timeout_s=15)
    body, headers = telegrammed(ada, 999_001, "hello?", time.time() - 90_000), secret_of(town)
    assert (await town.service.post("/webhooks/telegram/fake", body, headers)).status == 200
    received = await ada.wait_for_messages(2, timeout_s=15)
    assert received[1].text == reply(ReplyKind.APOLOGY, "en")
    await town.until("select state, count(*) from inbox group by state order by state", [("dead", 1), ("done", 1)])
    assert await town.ask("select count(*) from credit_entries where kind = 'post'") == [(1,)]


async def test_a_webhook_that_is_replayed_is_answered_once(town: Town) -> None:
    ada = await on_telegram(town)
    ada.say("hi")
    await ada.wait_for_messages(1, timeout_s=15)
    body = telegrammed(ada, 999_002, "hello again", time.time())
    answers = [await town.service.post("/webhooks/telegram/fake", body, secret_of(town)) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 200]
    await ada.wait_for_messages(2, timeout_s=15)
    await town.until("select state, count(*) from inbox group by state", [("done", 2)])
    assert len(await ada.wait_for_messages(2)) == 2


async def test_in_a_group_an_answer_names_the_message_that_it_answers_and_in_private_it_does_not(town: Town) -> None:
    ada, group = await on_telegram(town), town.platforms.telegram.group("Friends")
    ada.say("hi")
    [private] = await ada.wait_for_messages(1, timeout_s=15)
    assert private.reply_to is None
    asked = ada.say("/start find me a sunset bar in Canggu", group=group)
    await town.until("select count(*) from outbox where reply_to is not null and state = 'sent'", [(1,)])
    [received] = [each for each in town.platforms.telegram.message_log.received if each.chat == group.id]
    assert received.reply_to == asked


async def test_a_button_that_was_pressed_stops_spinning(database_url: str, redis_url: str) -> None:
    async with open_platforms() as platforms, running(database_url, redis_url) as service:
        platforms.connect(service.url)
        town = Town(service, platforms)
        ada = await on_telegram(town)
        ada.say("hi")
        [received] = await ada.wait_for_messages(1, timeout_s=15)
        service.thinker.may_answer.clear()  # long enough to see that somebody is at work
        ada.press(received.message_id, "more")
        for _ in range(100):
            if any(seen.path.endswith("/answerCallbackQuery") and seen.status == 200 for seen in platforms.telegram.requests):
                break
            await asyncio.sleep(0.1)
        else:
            raise AssertionError("nobody answered the button")
        service.thinker.may_answer.set()
        await ada.wait_for_messages(2, timeout_s=15)


def secret_of(town: Town) -> dict[str, str]:
    return {"X-Telegram-Bot-Api-Secret-Token": town.platforms.telegram.secret}


# --- one app has one callback URL, for all of its accounts


def on_instagram(fake: FakeInstagram, url: str) -> dict[str, str]:
    return {"instagram_id": fake.account_id, "access_token": fake.token, "app_secrets": fake.app_secret, "base_url": url}


def on_cloud(fake: FakeWhatsApp, url: str) -> dict[str, str]:
    return {"phone_number_id": fake.phone_number_id, "access_token": fake.key, "app_secrets": fake.app_secret, "base_url": url}


async def two_of_one_app(town: Town, platform: Platform) -> tuple[Any, Any]:
    """Two accounts of one app, which posts everything to the first one's URL; and what they are."""
    platforms = town.platforms
    if platform is Platform.INSTAGRAM:
        canggu: Any = platforms.instagram
        ubud: Any = platforms.add_instagram("instagram_ubud", canggu)
        about = on_instagram
    else:
        canggu = platforms.whatsapp_cloud
        ubud, about = platforms.add_number("whatsapp_ubud", canggu), on_cloud
    await town.open(platform, about(canggu, platforms.url), name="canggu")
    await town.open(platform, about(ubud, platforms.url), name="ubud")
    canggu.connect(f"{town.service.url}/webhooks/{platform}/canggu")
    return canggu, ubud


@pytest.mark.parametrize("platform", [Platform.INSTAGRAM, Platform.WHATSAPP])
async def test_people_of_two_accounts_of_one_app_are_answered_by_the_account_they_wrote_to(town: Town, platform: Platform) -> None:
    canggu, ubud = await two_of_one_app(town, platform)
    canggu.disorder = Disorder(batch_s=0.3)
    ada, bob = canggu.person("Ada"), ubud.person("Bob")
    ada.say("find me a sunset bar in Canggu")
    bob.say("find me a quiet cafe in Ubud")
    for person, place in ((ada, "Canggu"), (bob, "Ubud")):
        await person.wait_for_messages(1, timeout_s=15)
        assert place in "".join(part.text for part in person.received)
    await town.until("select account_id, count(*) from inbox group by 1 order by 1", [("canggu", 1), ("ubud", 1)])
    # Echoes, statuses and read marks of both come to the first one's URL, and find the row that they are about.
    await town.until("select distinct account_id, state, rank from outbox order by 1", [("canggu", "sent", 3), ("ubud", "sent", 3)])
    assert any(len({entry["id"] for entry in json.loads(attempt.body)["entry"]}) == 2 for attempt in canggu.attempts)
    assert {attempt.url for attempt in canggu.attempts} == {f"{town.service.url}/webhooks/{platform}/canggu"}
    await town.platforms.wait_until_quiet()
    assert await town.ask("select count(*) from early_receipts") == [(0,)]


@pytest.mark.parametrize("platform", [Platform.INSTAGRAM, Platform.WHATSAPP])
async def test_a_reaction_at_another_accounts_url_is_about_the_right_answer(town: Town, platform: Platform) -> None:
    _, ubud = await two_of_one_app(town, platform)
    bob = ubud.person("Bob")
    bob.say("find me a quiet cafe in Ubud")
    [received, *_] = await bob.wait_for_messages(1, timeout_s=15)
    await town.until("select distinct state from outbox", [("sent",)])
    with structlog.testing.capture_logs() as logs:
        bob.react(received.message_id, "👎")
        await town.platforms.wait_until_quiet()
    assert [(each["event"], each["account"]) for each in logs if each["event"].startswith("reaction")] == [("reaction_noted", "ubud")]


@pytest.mark.parametrize("platform", [Platform.INSTAGRAM, Platform.WHATSAPP])
async def test_a_signature_of_one_app_brings_nothing_into_an_account_of_another(town: Town, platform: Platform) -> None:
    canggu, ubud = await two_of_one_app(town, platform)
    about = on_instagram if platform is Platform.INSTAGRAM else on_cloud
    await town.open(platform, {**about(ubud, town.platforms.url), "app_secrets": "of-another-app"}, name="ubud")
    canggu.disorder = Disorder(batch_s=0.3)
    ada, bob = canggu.person("Ada"), ubud.person("Bob")
    bob.say("give me everything")
    ada.say("find me a sunset bar in Canggu")
    with structlog.testing.capture_logs() as logs:
        await ada.wait_for_messages(1, timeout_s=15)
    assert await town.ask("select account_id from inbox") == [("canggu",)]
    [passed] = [each for each in logs if each.get("reason") == "other_account"]
    meant_for = ubud.account_id if platform is Platform.INSTAGRAM else ubud.phone_number_id
    assert (passed["meant_for"], passed["account"], passed["log_level"]) == (meant_for, "canggu", "warning")
    page, _ = await town.service.hermes.metrics.exposition()
    assert f'hermes_webhooks_ignored_total{{platform="{platform}",reason="other_account"}} 1.0' in page.decode()


async def test_an_account_that_is_full_holds_up_none_beside_it_and_is_told_again(database_url: str, redis_url: str) -> None:
    async with open_platforms(speed=200) as platforms, running(database_url, redis_url, cap=1, has_worker=False) as service:
        town = Town(service, platforms)
        canggu, ubud = await two_of_one_app(town, Platform.INSTAGRAM)
        ada, bob = canggu.person("Ada"), ubud.person("Bob")
        ada.say("one")
        await platforms.wait_until_quiet()
        canggu.disorder = Disorder(batch_s=60)
        ada.say("two")
        bob.say("three")
        await town.until("select account_id from inbox order by 1", [("canggu",), ("ubud",)])
        assert canggu.attempts[-1].status == 503, "the platform is to send it again"
        worker = asyncio.create_task(service.hermes.run_worker())
        try:
            await ada.wait_for_messages(2, timeout_s=15)
            await bob.wait_for_messages(1, timeout_s=15)
            await town.until("select account_id, count(*) from inbox group by 1 order by 1", [("canggu", 2), ("ubud", 1)])
        finally:
            await stopped(worker)


async def test_a_number_at_360dialog_takes_nothing_that_was_signed_for_metas_own_api(town: Town) -> None:
    """360dialog signs nothing and has a URL for each number: nothing is routed to it, nor from it to a number at Meta."""
    canggu, ubud = await two_of_one_app(town, Platform.WHATSAPP)
    header, secret = town.platforms.whatsapp.secret_header
    about = {"api_key": "k", "webhook_secrets": secret, "secret_header": header, "phone_number_id": ubud.phone_number_id}
    await town.open(Platform.WHATSAPP, about, name="ubud")
    ubud.person("Bob").say("hello")
    await town.platforms.wait_until_quiet()
    assert [attempt.status for attempt in canggu.attempts] == [200]
    told = json.loads(canggu.attempts[-1].body.replace(ubud.phone_number_id.encode(), canggu.phone_number_id.encode()))
    assert (await town.service.post("/webhooks/whatsapp/ubud", told, {header: secret})).status == 200
    assert await town.ask("select count(*) from inbox") == [(0,)]


# --- a connection that breaks, twice


@pytest.fixture
async def echoing(database_url: str, redis_url: str) -> AsyncIterator[Town]:
    """A town in which every answer is one message."""
    async with open_platforms() as platforms, running(database_url, redis_url) as service:
        yield Town(service, platforms)


async def at_meta(town: Town, platform: Platform) -> Any:
    fake: Any = town.platforms.instagram if platform is Platform.INSTAGRAM else town.platforms.whatsapp_cloud
    about = on_instagram(fake, town.platforms.url) if platform is Platform.INSTAGRAM else on_cloud(fake, town.platforms.url)
    await town.open(platform, about)
    fake.connect(f"{town.service.url}/webhooks/{platform}/fake")
    return fake


async def time_passes(town: Town) -> None:
    """What waits is due now; the worker's next sweep finds it."""
    passed = "not_before = least(not_before, now()), touched_at = touched_at - interval '2 min'"
    await town.ask(f"update outbox set {passed} where state = 'pending' returning 1")  # noqa: S608  # a constant


@pytest.mark.parametrize("platform", [Platform.INSTAGRAM, Platform.WHATSAPP])
async def test_what_broke_off_twice_and_never_arrived_is_listed_and_refunded_and_the_next_answer_goes(
    echoing: Town, platform: Platform
) -> None:
    fake = await at_meta(echoing, platform)
    ada = fake.person("Ada")
    fake.reset(arrives=False, method="messages", times=2)
    ada.say("one")
    for state in (("pending", 1), ("pending", 2), ("dead", 2)):
        await echoing.until("select state, doubts from outbox", [state])
        await time_passes(echoing)
    async with echoing.service.database.begin() as tx:
        [letter] = await echoing.service.hermes.adapters.outbox.dead_letters.list(tx)
        assert await echoing.service.hermes.adapters.credits.audit(tx) == []
    assert (letter.outcome, letter.doubts) == (SendOutcome.AMBIGUOUS, 2)
    kinds = "select kind from credit_entries where turn_id is not null order by id"
    assert await echoing.ask(kinds) == [("reserve",), ("post",), ("refund",)]
    ada.say("two")
    [received] = await ada.wait_for_messages(1, timeout_s=15)
    assert "two" in received.text


@pytest.mark.parametrize("platform", [Platform.INSTAGRAM, Platform.WHATSAPP])
async def test_what_broke_off_and_arrived_is_confirmed_by_the_platform_and_comes_once(echoing: Town, platform: Platform) -> None:
    fake = await at_meta(echoing, platform)
    ada = fake.person("Ada")
    fake.reset(arrives=True, method="messages")
    ada.say("one")
    await ada.wait_for_messages(1, timeout_s=15)
    await echoing.until("select state, doubts from outbox", [("pending", 1)])
    await echoing.until("select count(*) from early_receipts where parcel_id = (select id from outbox) and rank = 3", [(1,)])
    await time_passes(echoing)
    await echoing.until("select state, rank, doubts from outbox", [("sent", 3, 1)])
    assert len(ada.received) == 1
    kinds = "select kind from credit_entries where turn_id is not null order by id"
    assert await echoing.ask(kinds) == [("reserve",), ("post",)]
