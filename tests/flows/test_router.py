"""Whole conversations on real stores: over HTTP, through the ten steps, the gateway and the tools, to an answer and what is left of it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.config import CreditSettings, LinkSettings, LlmSettings
from hermes.packs.concierge import concierge_on
from hermes.ports.credits import Balance
from hermes.ports.timeline import PLOT
from hermes.ports.users import UserState
from hermes.router.replies import ReplyKind, reply
from hermes.stores.postgres.database import connection_of
from hermes.turn import Envelope, MessageEvent, Platform
from tests.flows.echo import without_note
from tests.flows.service import Service, running


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url, echoes=False) as found:
        yield found


class Guest:
    """Somebody who talks to a service over its API."""

    def __init__(self, service: Service, headers: dict[str, str], name: str = "ada") -> None:
        self._service, self._headers, self.name = service, headers, name
        self.turns: list[UUID] = []

    async def say(self, text: str, **more: Any) -> str:
        got = await self._service.post("/v1/messages", {"text": text, "user": self.name, **more}, self._headers)
        assert got.status == 200, got.body
        self.turns.append(UUID(got.body["turn_id"]))
        return str(got.body["text"])

    async def meta(self, turn: int = -1) -> dict[str, Any]:
        [[meta]] = await ask(self._service, "select meta from interactions where turn_id = %s", self.turns[turn])
        return dict(meta)


async def ask(service: Service, query: str, *values: object) -> list[Any]:
    async with service.database.begin() as tx:
        return list(await (await connection_of(tx).execute(query.encode(), values)).fetchall())


async def test_the_founding_example_a_sunset_bar_in_canggu(service: Service) -> None:
    guest = Guest(service, await service.key())
    said = await guest.say("find me a sunset bar in Canggu")
    [(venue,)] = await ask(service, "select name from venues where category = 'bar' and area = 'Canggu' and 'sunset' = any(tags) limit 1")
    names = [name for (name,) in await ask(service, "select name from venues where area = 'Canggu' and category in ('bar', 'beach_club')")]
    assert venue in names
    assert any(name in said for name in names), said
    meta = await guest.meta()
    assert {"outcome": "answered", "llm_cache_hit": False, "language": "en"}.items() <= meta.items()
    assert [tool["name"] for tool in meta["tools"]] == ["venue_search"]
    assert not meta["tools"][0]["is_error"]
    assert (meta["tokens_in"] > 0, meta["tokens_out"] > 0, len(meta["calls"]), len(meta["context_ids"])) == (True, True, 2, 2)
    assert meta["head"] == meta["nodes"][-1]
    [[session]] = await ask(service, "select id from sessions")
    async with service.database.begin() as tx:
        graph = await service.hermes.adapters.graphs.load(tx, session)
        journal = await service.hermes.adapters.journal.read(tx, guest.turns[0])
    assert [message["role"] for message in graph] == ["user", "assistant", "tool", "assistant"]
    assert [response.context_id for response in graph.responses()] == meta["context_ids"]
    assert without_note(graph[0]["content"]) == "find me a sunset bar in Canggu"
    assert graph[-1]["content"] == said
    types = {event.type for event in journal}
    assert types >= {"user_resolved", "credit_reserved", "soul_loaded", "intent_classified", "tools_gated", "credit_posted"}
    assert {name: meta[name] for name in ("agent", "tier", "intent")} == {"agent": "hermes", "tier": "free", "intent": meta["tools_gated"]}
    async with service.database.begin() as tx:
        timeline = await service.hermes.adapters.timelines.read(tx, guest.turns[0])
    assert timeline is not None
    [attempt] = timeline.attempts
    assert ([step.step for step in attempt.steps], attempt.worker) == (list(PLOT), service.hermes.process_id)
    steps = {step.step: step for step in attempt.steps}
    assert [layer["name"] for layer in steps["load_soul"].facts["layers"]] == ["personality", "note"]
    assert steps["load_history"].facts["is_missing"] is False
    assert [(effect.type, effect.index) for effect in steps["run_tools"].effects] == [("tool_invoked", 0), ("llm_called", 1)]
    assert await ask(service, "select count(*) from run_events where event_number is null") == [(0,)]


async def test_a_conversation_remembers_who_it_is_with(service: Service) -> None:
    guest = Guest(service, await service.key())
    await guest.say("I'm vegetarian and allergic to peanuts")
    await settled(service)
    [[user_id]] = await ask(service, "select distinct user_id from inbox")
    async with service.database.begin() as tx:
        facts = {fact.key: fact.text for fact in await service.hermes.adapters.memories.all(tx, user_id)}
    assert facts == {"diet": "vegetarian", "allergies": "peanuts"}
    saved = await ask(service, "select facts::text from run_events where type = 'memory_saved'")
    assert "allergies" not in str(saved), "what is known about a user is not readable in the journal"
    await guest.say("find me a restaurant in Ubud", channel="another conversation")
    [[request]] = await ask(service, "select max(id) from run_events where step = 'call_model' and index = 0")
    assert request is not None
    async with service.database.begin() as tx:
        soul = await service.hermes.user_memory.souls.load(
            await service.hermes.adapters.people.get(tx, user_id),
            service.hermes.turns.services.agent_on("shop"),
            "hi",
            now=service.hermes.turns.services.clock.now(),
            conversation_id=uuid4(),
        )
    assert "diet: vegetarian" in soul.system
    assert "allergies: peanuts" in soul.system


async def settled(service: Service) -> None:
    """Wait until nothing is left to do, memory included."""
    for _ in range(200):
        async with service.database.begin() as tx:
            waiting = await service.hermes.work.waiting(tx)
        jobs = await ask(service, "select count(*) from procrastinate_jobs")
        if not any(waiting.values()) and jobs == [(0,)]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("there is still work")


async def test_two_accounts_with_the_same_sender_share_nothing(service: Service) -> None:
    shop, cafe = Guest(service, await service.key("shop")), Guest(service, await service.key("cafe"))
    await shop.say("My name is Ada and I'm vegan")
    await settled(service)
    await cafe.say("what do you know about me?")
    users = await ask(service, "select distinct user_id from inbox")
    assert len(users) == 2
    sessions = await ask(
        service,
        "select sessions.id from sessions join conversations on conversations.id = conversation_id order by conversations.account_id",
    )
    async with service.database.begin() as tx:
        there, here = [await service.hermes.adapters.graphs.load(tx, session) for (session,) in sessions]
    told = [str(message) for graph in (there,) for message in graph] + [str(r.context) for r in there.responses()]
    assert not any("vegan" in text for text in told), "the café knows nothing of what the shop was told"
    assert any("vegan" in str(message) for message in here)


@pytest.mark.parametrize(
    ("state", "kind", "link"),
    [(UserState.STRANGER, ReplyKind.SIGNUP, "https://hermes.example/join"), (UserState.INVITED, ReplyKind.ACTIVATION, None)],
)
async def test_who_is_not_activated_is_told_how_to_be_and_not_charged(
    database_url: str, redis_url: str, state: UserState, kind: ReplyKind, link: str | None
) -> None:
    more = {"links": LinkSettings(signup=link)}  # type: ignore[arg-type]
    async with running(database_url, redis_url, echoes=False, has_worker=False, more=more) as service:
        event = MessageEvent(platform=Platform.TELEGRAM, sender_id="7", text="busco un bar tranquilo para esta noche")
        envelope = Envelope(event=event, account="bot", channel_id="7", event_key="1")
        turn_id = (await service.hermes.intake.accept(envelope, newcomer=state)).turn_id
        await service.hermes.turn(turn_id)
        async with service.database.begin() as tx:
            answer = await service.hermes.adapters.outbox.answer(tx, turn_id)
        assert answer is not None
        assert answer.text == reply(kind, "es", link=link)
        assert answer.meta["outcome"] == kind
        assert await ask(service, "select kind from credit_entries where turn_id = %s and kind = 'post'", turn_id) == []


async def test_the_kill_switch_pauses_everybody_in_their_own_language(service: Service) -> None:
    guest = Guest(service, await service.key())
    await service.hermes.spend.kill_switch("a test", "somebody")
    said = await guest.say("recherche un restaurant calme pour demain soir")
    assert said == reply(ReplyKind.PAUSED, "fr", resets_at=None)
    assert (await guest.meta())["outcome"] == "paused"
    [[user_id]] = await ask(service, "select distinct user_id from inbox")
    async with service.database.begin() as tx:
        balance = await service.hermes.adapters.credits.balance(tx, user_id)
    assert balance == Balance(available=CreditSettings().signup_grant, reserved=0)


async def test_steps_turns_intents_and_skipped_recalls_are_counted(service: Service) -> None:
    guest = Guest(service, await service.key())
    await guest.say("thanks!")
    await guest.say("find me a sunset bar in Canggu")
    lines = (await service.get("/metrics")).body.splitlines()
    numbers = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith("hermes_")}
    assert numbers["hermes_semantic_recall_skipped_trivial_total"] == 1
    assert numbers['hermes_turns_total{outcome="answered"}'] == 2
    assert (numbers['hermes_intents_total{kind="none"}'], numbers['hermes_intents_total{kind="venue"}']) == (1, 1)
    assert {numbers[f'hermes_step_seconds_count{{step="{step}"}}'] for step in ("resolve_user", "call_model", "run_tools", "record")} == {2}


async def test_without_any_model_the_user_hears_to_come_back_and_is_not_charged(database_url: str, redis_url: str, tmp_path: Any) -> None:
    script = tmp_path / "script.toml"
    script.write_text('[[rule]]\nfail = "overloaded"\n', encoding="utf-8")
    async with running(database_url, redis_url, echoes=False, more={"llm": LlmSettings(script=script)}) as service:
        guest = Guest(service, await service.key())
        assert await guest.say("hello there, how are you today?") == reply(ReplyKind.RETRY_LATER, "en")
        meta = await guest.meta()
        assert (meta["outcome"], meta["error"], meta["step"], meta["cost_usd"]) == ("retry_later", "ChainFailed", "call_model", 0)
        assert await ask(service, "select kind from credit_entries where kind = 'post'") == []
        [[length]] = await ask(service, "select length from sessions")
        assert length == 0


async def test_a_reminder_is_said_when_its_time_has_come_and_stands_in_the_history(service: Service) -> None:
    headers = await service.key()
    guest = Guest(service, headers)
    await guest.say("hello, I will water the plants tomorrow")
    [[user_id]] = await ask(service, "select distinct user_id from inbox")
    now = datetime.now(UTC)
    async with service.database.begin() as tx:
        await concierge_on(service.hermes.packs.services).reminders.add(tx, user_id, guest.turns[0], now, "water the plants")
    assert await service.hermes.background_jobs.proactive.remind(now) == 1
    assert await service.hermes.background_jobs.proactive.remind(now) == 0
    [news] = (await service.get("/v1/news?user=ada", headers)).body["news"]
    assert "water the plants" in news["text"]
    assert (await service.get(f"/v1/news?user=ada&after={news['id']}", headers)).body == {"news": []}
    assert (await service.get("/v1/news?user=bob", headers)).body == {"news": []}
    await settled(service)
    [[session]] = await ask(service, "select id from sessions")
    async with service.database.begin() as tx:
        graph = await service.hermes.adapters.graphs.load(tx, session)
    assert [message["role"] for message in graph] == ["user", "assistant", "assistant"]
    await guest.say("thanks, done")
    assert (await guest.meta())["outcome"] == "answered"


async def test_what_the_users_of_a_training_key_say_becomes_training_data(service: Service) -> None:
    for trains in (True, False):
        await Guest(service, await service.key(f"account {trains}", trains=trains)).say("find me a sunset bar in Canggu")
    async with service.database.begin() as tx:
        allowed = [
            await service.hermes.adapters.sessions.may_train(tx, session)
            for (session,) in await (await connection_of(tx).execute("select id from sessions order by started_at")).fetchall()
        ]
    assert allowed == [True, False]
