"""Four founding promises, each as a user meets it: the fitness layer in a prompt, the 10 s send limit, the monthly budget, and the queue
that holds 5,000 failed sends. A phone at a platform, the whole router, real stores; nothing between them is replaced."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import structlog

from hermes.channels.fakes import FakePlatforms, open_platforms
from hermes.channels.telegram.fake.people import TelegramPerson
from hermes.config import BackendSettings, DeliverySettings, Secret, TierSettings
from hermes.packs.concierge.fact_keys import FITNESS_HEADING
from hermes.ports.channels import ChannelAccount
from hermes.stores.postgres.database import connection_of
from hermes.turn import Platform
from tests.fakes.messages_api import MessagesApi
from tests.fakes.vendors import ToolCall, vendors
from tests.flows.service import Service, running

pytestmark = pytest.mark.usefixtures("redis_url")

COPY_4998_TIMES = """
with copies as (
    insert into outbox (account_id, platform, channel_id, conversation_id, user_id, turn_id, seq, state, tries, body, outcome, failures,
        not_before, part)
    select account_id, platform, channel_id, conversation_id, user_id, turn_id, seq, state, tries, body, outcome, failures,
        not_before, part + copy
    from outbox, generate_series(1, 4998) as copy returning 1
) select count(*) from copies"""


@dataclass(frozen=True)
class Street:
    """Hermes with a vendor's model behind it, and Ada with Telegram in her hand."""

    service: Service
    platforms: FakePlatforms
    model: MessagesApi
    ada: TelegramPerson

    async def ask(self, query: str) -> list[tuple[Any, ...]]:
        async with self.service.database.begin() as tx:
            return [tuple(row) for row in await (await connection_of(tx).execute(query.encode())).fetchall()]

    async def until(self, query: str, expected: list[tuple[Any, ...]], *, within_s: float = 20.0) -> None:
        """Wait until the database says so."""
        for _ in range(round(within_s / 0.05)):
            if (found := await self.ask(query)) == expected:
                return
            await asyncio.sleep(0.05)
        assert found == expected

    async def say(self, text: str) -> str:
        """Say something, and return the answer that arrives."""
        before = len(self.ada.received)
        self.ada.say(text)
        return (await self.ada.wait_for_messages(before + 1, timeout_s=20))[before].text


@asynccontextmanager
async def street(database_url: str, redis_url: str, **more: Any) -> AsyncIterator[Street]:
    async with vendors() as fakes, open_platforms() as platforms:
        backend = BackendSettings(base_url=fakes.anthropic.url, api_key=Secret(fakes.anthropic.key))
        settings: Mapping[str, Any] = {"backends": {"anthropic": backend}, **more}
        async with running(database_url, redis_url, echoes=False, more=settings) as service:
            platforms.connect(service.url)
            bot = platforms.telegram
            about = {"token": bot.token, "secret": bot.secret, "base_url": platforms.url, "is_open": "yes"}
            async with service.database.begin() as tx:
                account = ChannelAccount(platform=Platform.TELEGRAM, account="fake", about=about)
                await service.hermes.adapters.channel_accounts.put(tx, account)
            await service.hermes.account_channels.refresh()
            yield Street(service, platforms, fakes.anthropic, bot.person("Ada"))


async def test_what_a_user_says_about_calories_and_goals_is_the_fitness_layer_of_the_next_prompt(database_url: str, redis_url: str) -> None:
    async with street(database_url, redis_url) as s:
        await s.say("My goal is 1800 kcal a day")
        await s.say("I want to lose weight")
        sugar = {"key": "dietary_restrictions", "value": "no sugar"}
        s.model.say("", tool_calls=[ToolCall("save_preference", sugar)])
        s.model.say("Noted.")
        assert await s.say("please remember that I eat no sugar") == "Noted."
        await s.until("select count(*) from procrastinate_jobs", [(0,)])
        assert FITNESS_HEADING not in json.dumps(s.model.requests[0].body), "nothing was known yet"
        s.model.say("Grilled fish, then.")
        assert await s.say("what should I have for dinner?") == "Grilled fish, then."
        prompt = system_prompt(s.model.requests[-1].body)
        layer = prompt.partition(FITNESS_HEADING)[2].partition("</user_data>")[0].split("\n")
        assert layer == ["", "<user_data>", "calorie_target: 1800", "dietary_restrictions: no sugar", "fitness_goal: lose weight", ""]


def system_prompt(body: Mapping[str, Any]) -> str:
    """The system prompt of a request to Anthropic: a text, or blocks of text."""
    return body["system"] if isinstance(body["system"], str) else "\n".join(block["text"] for block in body["system"])


async def test_a_send_that_hangs_ends_after_ten_seconds_and_the_answer_arrives_from_the_queue(database_url: str, redis_url: str) -> None:
    # The time limit is the default one, 10 s; only the queue's own wait is shorter than by default.
    async with street(database_url, redis_url, delivery=DeliverySettings(queue_s=(1.0, 1.0, 1.0))) as s:
        s.platforms.telegram.hang(method="sendMessage", arrives=False)
        s.model.say("Salt & Ember.")
        s.ada.say("find me a sunset bar in Canggu")
        await s.until("select state from outbox", [("attempting",)])
        began = time.monotonic()
        await s.until("select count(*) from run_events where type = 'delivery_failed'", [(1,)])
        assert 9.0 < time.monotonic() - began < 13.0
        [received] = await s.ada.wait_for_messages(1, timeout_s=20)
        assert received.text == "Salt & Ember."
        await s.until("select state, tries, doubts from outbox", [("sent", 2, 1)])
        assert s.platforms.telegram.message_log.copies() == {}
        assert await s.ask("select kind from credit_entries where kind <> 'grant' order by id") == [("reserve",), ("post",)]


async def test_a_user_whose_month_is_used_up_is_told_until_when_and_is_not_charged(database_url: str, redis_url: str) -> None:
    tiers = {"free": TierSettings(day_tokens=1_000_000, month_tokens=20_000)}
    async with street(database_url, redis_url, tiers=tiers) as s:
        s.model.say("hello Ada", tokens_in=19_300, tokens_out=200)
        with structlog.testing.capture_logs() as logs:
            assert await s.say("tell me all about Ubud") == "hello Ada"
            await s.service.hermes.gateway.wait_settled()
        thresholds = [each for each in logs if each["event"] == "budget_threshold"]
        assert [(each["window"], each["percent"]) for each in thresholds] == [("month", 80)]
        asked = len(s.model.requests)
        answer = await s.say("and about Canggu?")
        assert "month" in answer, answer
        assert len(s.model.requests) == asked, "no vendor is paid for a refusal"
        await s.until(
            "select meta ->> 'outcome', meta ->> 'error' from interactions order by created_at",
            [("answered", None), ("month_budget", "BudgetSpent")],
        )
        kinds = await s.ask("select kind from credit_entries where kind <> 'grant' order by id")
        assert kinds == [("reserve",), ("post",), ("reserve",), ("void",)]


async def test_of_5000_sends_that_wait_the_next_is_a_dead_letter_at_once_with_an_alert_and_refunded(
    database_url: str, redis_url: str
) -> None:
    # The cap is the default one; the waits are long, so that nothing is taken out of the queue meanwhile.
    async with street(database_url, redis_url, delivery=DeliverySettings(queue_s=(3_600.0,))) as s:
        telegram = s.platforms.telegram
        telegram.fail(status=429, retry_after=3_600, method="sendMessage", times=None)
        s.ada.say("one")
        await s.until("select state, outcome from outbox", [("pending", "rate_limited")])
        # 4,998 more failed sends of the same account, which differ from the real one only in their part.
        await s.ask(COPY_4998_TIMES)
        bob, eve = telegram.person("Bob"), telegram.person("Eve")
        bob.say("two")
        await s.until("select count(*) from outbox where state = 'pending' and outcome = 'rate_limited'", [(5_000,)])
        assert await s.ask("select count(*) from outbox where state = 'dead'") == [(0,)]
        with structlog.testing.capture_logs() as logs:
            eve.say("three")
            await s.until("select state, outcome, count(*) from outbox where state = 'dead' group by 1, 2", [("dead", "rate_limited", 1)])
        [alert] = [each for each in logs if each["event"] == "failed_sends_overflowed"]
        assert (alert["platform"], alert["account"], alert["outcome"]) == ("telegram", "fake", "rate_limited")
        async with s.service.database.begin() as tx:
            assert (await s.service.hermes.adapters.outbox.lengths(tx)).failed_sends == 5_000
        [(reason,)] = await s.ask("select reason from outbox where state = 'dead'")
        assert "5000 other messages wait" in reason
        refunded = (
            "select count(*) from credit_entries where kind = 'refund' and turn_id = (select turn_id from outbox where state = 'dead')"
        )
        assert await s.ask(refunded) == [(1,)]
