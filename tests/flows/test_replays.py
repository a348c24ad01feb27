"""Replays on a running Hermes: what they ask, what they cannot do, what they cost, and what is left of them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from hermes.config.console import ConsoleSettings
from hermes.console.access import AccessRefused
from hermes.console.replay_keep import NotKept
from hermes.console.replay_record import NotReplayable
from hermes.console.replays import ReplayInvalid, conversation_subject
from hermes.ports.errors import NotFound, StaleHead
from hermes.ports.operators import Role
from hermes.ports.replays import Replay, ReplayChange, ReplayFilter, ReplayState
from hermes.router.journal_retention import JournalRetention
from hermes.stores.postgres.database import connection_of
from tests.fakes.vendors import Say, ToolCall
from tests.flows.replaying import SEARCH, SONNET, Shop, actor, replaying, worker_process, working

NOTHING_CHANGED = ReplayChange()
BLOCKED = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query ~ 'calls'"


@pytest.fixture
async def shop(database_url: str, redis_url: str) -> AsyncIterator[Shop]:
    async with replaying(database_url, redis_url) as shop:
        yield shop


async def replay(shop: Shop, turn_id: UUID, change: ReplayChange = NOTHING_CHANGED, model: str = "claude-sonnet") -> Replay:
    """Replay a turn, to the end."""
    source = await shop.console.find_source(actor(), turn_id)
    [replay_id] = await shop.console.run(actor(Role.OPERATOR), source, model, change)
    shop.console.worker.start([replay_id])
    return await shop.ended(replay_id)


async def traces(shop: Shop) -> dict[str, Any]:
    """Everything that a customer could notice."""
    queries = {
        "sent": "select count(*) from outbox",
        "credit": "select credit_balances::text from credit_balances order by 1",
        "entries": "select count(*) from credit_entries",
        "heads": "select id, head, length, mark from sessions order by id",
        "memory": "select count(*) from user_memory",
        "journal": "select count(*) from run_events",
        "effects": "select count(*) from tool_effects",
        "turns": "select count(*) from inbox",
        "customers' calls": "select count(*), sum(micro_usd) from calls where purpose <> 'replay' or user_id in (select user_id from inbox)",  # noqa: E501
    }
    return {name: await shop.ask(query) for name, query in queries.items()}


async def search(shop: Shop) -> UUID:
    """A turn that searches, and answers with what it found."""
    shop.vendors.anthropic.say("", tool_calls=[SEARCH])
    shop.vendors.anthropic.say("Two cafes are near you.")
    return await shop.say("Find me a cafe in Ubud.")


async def test_a_replay_asks_the_recorded_request_word_for_word_and_leaves_no_trace(shop: Shop) -> None:
    turn_id = await search(shop)
    await shop.service.hermes.gateway.wait_settled()
    first, second = shop.vendors.anthropic.requests[-2:]
    before = await traces(shop)
    shop.vendors.anthropic.say("", tool_calls=[ToolCall("venue_search", '{"area":"Ubud",  "query":"cafe"}', id="toolu_other")])
    shop.vendors.anthropic.say("Three cafes are near you.")
    done = await replay(shop, turn_id)

    again, concluded = shop.vendors.anthropic.requests[-2:]
    assert again.body["messages"] == first.body["messages"]
    assert (again.body["system"], again.body["tools"]) == (first.body["system"], first.body["tools"])
    assert again.body["model"] == SONNET
    recorded_result = json.dumps(second.body["messages"][-1]).replace(
        second.body["messages"][-1]["content"][0]["tool_use_id"], "toolu_other"
    )
    assert json.dumps(concluded.body["messages"][-1]) == recorded_result, (
        "the recorded result, although the arguments are spelled otherwise"
    )
    assert (done.state, done.is_diverged, done.same_tools, done.same_text) == (ReplayState.DONE, False, True, False)
    assert done.likeness == pytest.approx(0.8)
    assert (done.tokens_in, done.tokens_out) == (24, 10)
    await shop.service.hermes.gateway.wait_settled()
    assert await traces(shop) == before
    rows = await shop.ask(
        "select purpose, source, tier, turn_id, agent, sum(micro_usd) from calls where purpose = 'replay' group by 1, 2, 3, 4, 5"
    )
    assert rows == [("replay", "replay", "replay", None, None, done.micro_usd)]


async def test_a_call_that_was_not_recorded_ends_the_replay_and_the_tool_does_not_run(shop: Shop) -> None:
    turn_id = await search(shop)
    before = await traces(shop)
    shop.vendors.anthropic.say("", tool_calls=[ToolCall("venue_search", {"query": "bar", "area": "Canggu"})])
    done = await replay(shop, turn_id)
    assert (done.state, done.is_diverged, done.same_tools) == (ReplayState.DONE, True, False)
    assert done.error == "diverged: would call venue_search"
    assert await traces(shop) | {"customers' calls": 0} == before | {"customers' calls": 0}

    source = await shop.console.find_source(actor(), turn_id)
    opened = await shop.console.access.open(actor(), conversation_subject(source))
    view = await shop.console.view(opened, done, source)
    assert [json.loads(call.arguments) for call in view.progress.not_run] == [{"query": "bar", "area": "Canggu"}]
    assert [(tool.name, tool.is_same) for tool in view.tools] == [("venue_search", False)]
    with pytest.raises(AccessRefused):
        await shop.console.view(
            await shop.console.access.open(actor(), conversation_subject(source).__class__(kind="conversation", id="x")), done, source
        )


async def test_a_tool_that_only_reads_runs_if_it_was_ticked_and_no_other_does(shop: Shop) -> None:
    turn_id = await search(shop)
    shop.vendors.anthropic.say("", tool_calls=[ToolCall("venue_search", {"query": "bar", "area": "Canggu"})])
    shop.vendors.anthropic.say("A bar is near you.")
    done = await replay(shop, turn_id, ReplayChange(run_tools=("venue_search", "save_preference")))
    assert (done.state, done.is_diverged, done.same_tools) == (ReplayState.DONE, False, False)

    before = await traces(shop)
    shop.vendors.anthropic.say("", tool_calls=[ToolCall("save_preference", {"key": "diet", "value": "vegan"})])
    done = await replay(shop, turn_id, ReplayChange(run_tools=("venue_search", "save_preference")))
    assert (done.is_diverged, done.error) == (True, "diverged: would call save_preference")
    assert await traces(shop) == before


async def test_system_text_tools_and_sampling_can_be_changed(shop: Shop) -> None:
    turn_id = await search(shop)
    shop.vendors.anthropic.say("No.")
    done = await replay(
        shop, turn_id, ReplayChange(system="Say no.", tools=(), sampling={"temperature": 0.25, "max_tokens": 77}), "claude-haiku"
    )
    body = shop.vendors.anthropic.requests[-1].body
    assert json.dumps(body["system"]).count("Say no.") == 1
    assert "tools" not in body
    assert (body["temperature"], body["max_tokens"]) == (0.25, 77)
    assert (done.same_tools, done.same_text) == (False, False)


async def test_a_call_of_the_completions_api_is_replayed_from_its_graph(shop: Shop) -> None:
    shop.vendors.anthropic.say("Ahoy.")
    asked = {"model": "hermes", "messages": [{"role": "system", "content": "Be a sailor."}, {"role": "user", "content": "Hello"}]}
    reply = await shop.service.post("/v1/chat/completions", asked, shop.key)
    assert reply.status == 200, reply.body
    first = shop.vendors.anthropic.requests[-1]
    await shop.service.hermes.gateway.wait_settled()
    [(call_id,)] = await shop.ask("select id from calls where source = 'completions'")
    shop.vendors.anthropic.say("Ahoy there.")
    done = await replay(shop, call_id)
    again = shop.vendors.anthropic.requests[-1]
    assert (again.body["messages"], again.body["system"]) == (first.body["messages"], first.body["system"])
    assert (done.state, done.same_text, done.likeness) == (ReplayState.DONE, False, 0.0)


async def test_the_money_of_a_day_ends(database_url: str, redis_url: str) -> None:
    async with replaying(database_url, redis_url, more={"console": ConsoleSettings(replay_daily_usd=0.00001)}) as shop:
        turn_id = await shop.say("Hello")
        assert (await replay(shop, turn_id)).state is ReplayState.DONE
        assert (await replay(shop, turn_id)).error == "the day's money for replays is spent"
        await shop.service.hermes.gateway.wait_settled()
        asked = len(shop.vendors.anthropic.requests)
        await shop.say("Hello again")
        assert len(shop.vendors.anthropic.requests) == asked + 1, "users are answered all the same"


async def test_the_kill_switch_holds_for_replays(shop: Shop) -> None:
    turn_id = await shop.say("Hello once more")
    asked = len(shop.vendors.anthropic.requests)
    await shop.service.hermes.spend.kill_switch("a drill", by="olga")
    refused = await replay(shop, turn_id)
    assert (refused.state, refused.error) == (ReplayState.REFUSED, "calls are paused: kill switch")
    assert len(shop.vendors.anthropic.requests) == asked
    await shop.service.hermes.spend.release(by="olga")
    assert (await replay(shop, turn_id)).state is ReplayState.DONE


async def test_nobody_without_the_role_replays_and_no_unknown_model_is_asked(shop: Shop) -> None:
    turn_id = await shop.say("Hello")
    source = await shop.console.find_source(actor(), turn_id)
    with pytest.raises(AccessRefused):
        await shop.console.run(actor(Role.VIEWER), source, "claude-sonnet", NOTHING_CHANGED)
    with pytest.raises(ReplayInvalid, match="did you mean claude-sonnet"):
        await shop.console.run(actor(), source, "claude-sonet", NOTHING_CHANGED)
    with pytest.raises(ReplayInvalid, match="between 1 and 8"):
        await shop.console.run(actor(), source, "claude-sonnet", NOTHING_CHANGED, count=9)
    with pytest.raises(NotFound):
        await shop.console.find_source(actor(accounts=frozenset({"other"})), turn_id)
    assert await shop.ask("select action, allowed from audit order by id") == [("replay.run", False)]
    assert await shop.ask("select count(*) from replays") == [(0,)]


async def test_a_kept_replay_is_a_sample_beside_the_list_and_no_other_is(shop: Shop) -> None:
    turn_id = await search(shop)
    [(session_id, head)] = await shop.ask("select id, head from sessions")
    shop.vendors.anthropic.say("", tool_calls=[SEARCH])
    shop.vendors.anthropic.say("Three cafes are near you.")
    done = await replay(shop, turn_id)
    graphs = shop.service.hermes.adapters.graphs

    async def responses() -> list[tuple[str, str | None]]:
        async with shop.service.database.begin() as tx:
            graph = await graphs.load(tx, session_id)
        assert graph.head == head
        assert graph.verify()
        return [
            (each.message.get("content") or "", (each.call.extra or {}).get("source"))
            for each in graph.responses()
            if each.call is not None
        ]

    assert len(await responses()) == 2
    with pytest.raises(AccessRefused):
        await shop.console.keep(actor(Role.OPERATOR), done.id)
    with pytest.raises(NotKept, match="does not allow training"):
        await shop.console.keep(actor(), done.id)
    async with shop.service.database.begin() as tx:
        await shop.service.hermes.adapters.people.allow_training(tx, done.user_id, trains=True)
    kept = await shop.console.keep(actor(), done.id)
    assert await responses() == [("", None), ("Two cafes are near you.", None), ("", "replay"), ("Three cafes are near you.", "replay")]
    again, _ = await shop.console.get(actor(), done.id)
    assert again.kept_as == kept
    with pytest.raises(NotKept, match="kept already"):
        await shop.console.keep(actor(), done.id)
    await shop.say("And a bar?")  # the live conversation goes on
    assert [(row[0], row[1]) for row in await shop.ask("select action, allowed from audit where action = 'replay.keep' order by id")] == [
        ("replay.keep", False),
        ("replay.keep", True),
        ("replay.keep", True),
        ("replay.keep", True),
    ]


async def test_forgetting_the_user_erases_the_replays(shop: Shop) -> None:
    turn_id = await shop.say("I am Ada and I like figs")
    other = await shop.say("Hello", user="ben")
    done, kept = await replay(shop, turn_id), await replay(shop, other)
    async with shop.service.database.begin() as tx:
        await shop.service.hermes.adapters.people.forget(tx, done.user_id)
    assert await shop.ask("select id from replays") == [(kept.id,)]
    source = await shop.console.find_source(actor(), turn_id)
    assert source.why_not == "erased"
    with pytest.raises(NotReplayable, match="erased"):
        await shop.console.run(actor(), source, "claude-sonnet", NOTHING_CHANGED)


async def test_a_batch_is_estimated_first_and_says_why_a_turn_cannot_be_replayed(shop: Shop) -> None:
    turns = [await shop.say(f"Hello {number}") for number in range(3)]
    await shop.ask(
        f"update run_events set request = null, type = 'llm_called' where turn_id = '{turns[0]}' and step = 'call_model' returning 1"  # noqa: S608
    )
    await shop.service.hermes.gateway.wait_settled()
    asked = len(shop.vendors.anthropic.requests)
    plan = await shop.console.plan(actor(), ReplayFilter(), ["claude-sonnet", "claude-haiku"], 50)
    assert len(shop.vendors.anthropic.requests) == asked, "an estimate asks no model"
    assert (len(plan.sources), plan.replayable) == (3, 2)
    assert plan.estimates == {"claude-sonnet": 2 * (12 * 3 + 5 * 15), "claude-haiku": 2 * (12 + 5 * 5)}
    assert plan.title == "the last 50 turns"
    shop.vendors.anthropic.otherwise = lambda _: Say(text="Hello yourself")
    batch_id = await shop.console.run_batch(actor(), plan)
    await shop.until(f"select state from replay_batches where id = '{batch_id}'", [("done",)])  # noqa: S608
    batch, replays, sources = await shop.console.get_batch(actor(), batch_id)
    assert (batch.total, batch.ended, batch.micro_usd) == (6, 6, plan.micro_usd)
    assert [(each.state.value, each.error) for each in replays] == [("done", None)] * 4 + [("refused", "expired")] * 2
    assert [sources[each.source_id].turn_id for each in replays[::2]] == turns[::-1]
    with pytest.raises(NotFound):
        await shop.console.get_batch(actor(accounts=frozenset({"other"})), batch_id)


async def test_what_is_left_of_a_dead_or_stopped_batch_ends(shop: Shop) -> None:
    """A replay that was cut off three times fails; one that runs in a stopped batch is not taken again; then the batch has ended."""
    await shop.say("Hello")
    plan = await shop.console.plan(actor(), ReplayFilter(), ["claude-sonnet"], 1)
    batch_id = await shop.console.run_batch(actor(), plan)
    await shop.until("select state from replay_batches", [("done",)])
    old = "update replays set state = 'running', attempt = {}, claimed_at = now() - interval '1 hour' returning 1"
    await shop.ask(old.format(3))
    await shop.ask("update replay_batches set state = 'running' returning 1")
    await shop.until("select r.state, r.error, b.state from replays r, replay_batches b", [("failed", "cut off", "done")])
    await shop.ask(old.format(1))
    await shop.ask("update replay_batches set state = 'stopped' returning 1")
    await shop.until("select r.state, r.error, b.state from replays r, replay_batches b", [("refused", "stopped", "stopped")])
    assert await shop.console.resume(actor(), batch_id) == 1
    await shop.until("select r.state, b.state from replays r, replay_batches b", [("done", "done")])


async def test_an_answer_that_was_stored_is_not_asked_for_again(shop: Shop) -> None:
    """As after a kill between the first answer and the second: the row runs, its claim is stale, and it has one answer."""
    turn_id = await search(shop)
    shop.vendors.anthropic.say("", tool_calls=[SEARCH])
    shop.vendors.anthropic.hang()
    source = await shop.console.find_source(actor(), turn_id)
    [replay_id] = await shop.console.run(actor(), source, "claude-sonnet", NOTHING_CHANGED)
    asked = len(shop.vendors.anthropic.requests)
    await shop.vendors.anthropic.asked(asked + 2, timeout_s=30.0)
    await shop.until("select state, attempt, result is not null from replays", [("running", 1, True)])
    shop.vendors.anthropic.say("Three cafes are near you.")
    await shop.console.worker.aclose()  # gives it back; the next sweep of the worker takes it again
    done = await shop.ended(replay_id)
    assert (done.state, done.same_tools) == (ReplayState.DONE, True)
    bodies = [request.body["messages"] for request in shop.vendors.anthropic.requests[asked:]]
    assert [len(messages) for messages in bodies] == [len(bodies[0]), len(bodies[0]) + 2, len(bodies[0]) + 2], "the first was asked once"
    rows = await shop.ask("select outcome from calls where purpose = 'replay' order by created_at")
    assert [outcome for (outcome,) in rows] == ["answered", "cancelled", "answered"]


STALL = """
create function stall() returns trigger language plpgsql as $$ begin perform pg_sleep(60); return new; end $$;
create trigger stall before update on replays for each row when (new.state = 'done') execute function stall()
"""
STALLED = "select pid from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"


async def test_an_answer_that_was_paid_before_its_worker_was_killed_is_paid_once(database_url: str, redis_url: str) -> None:
    """The worker is killed after the answer was recorded, and before its replay has ended."""
    async with replaying(database_url, redis_url, has_worker=False) as shop:
        async with working(shop):
            await shop.say("Hello")
        await change(shop, STALL)
        asked = len(shop.vendors.anthropic.requests)
        await shop.console.run_batch(actor(), await shop.console.plan(actor(), ReplayFilter(), ["claude-sonnet"], 1))
        with worker_process(shop) as worker:
            async with asyncio.timeout(60):
                while not await shop.ask(STALLED):  # noqa: ASYNC110  # another process rings no bell
                    await asyncio.sleep(0.05)
            worker.kill()
        await change(shop, f"select pg_terminate_backend(pid) from ({STALLED}) as stalled; drop trigger stall on replays")  # noqa: S608
        async with working(shop):
            await shop.until("select r.state, b.state from replays r, replay_batches b", [("done", "done")])
        assert len(shop.vendors.anthropic.requests) == asked + 1
        assert await shop.ask("select count(*) from calls where purpose = 'replay'") == [(1,)]
        assert await shop.ask("select r.micro_usd = c.micro_usd, r.attempt from replays r, calls c where purpose = 'replay'") == [(True, 2)]


async def change(shop: Shop, statements: str) -> None:
    async with shop.service.database.begin() as tx:
        await connection_of(tx).execute(statements.encode())


async def test_a_replay_that_is_given_back_in_a_stopped_batch_can_be_resumed(shop: Shop) -> None:
    """A worker that stops gives its replay back. In a batch that an operator stopped it does not wait for ever."""
    await shop.say("Hello")
    shop.vendors.anthropic.hang()
    asked = len(shop.vendors.anthropic.requests)
    batch_id = await shop.console.run_batch(actor(), await shop.console.plan(actor(), ReplayFilter(), ["claude-sonnet"], 1))
    await shop.vendors.anthropic.asked(asked + 1, timeout_s=30.0)
    assert await shop.console.stop(actor(), batch_id) == 0, "the only one runs"
    await shop.console.worker.aclose()
    assert await shop.ask("select state, error from replays") == [("refused", "stopped")]
    async with shop.service.database.begin() as tx:
        assert not await shop.console.replays.has_waiting(tx, stale_s=60.0), "workers look for nothing"
    assert await shop.console.resume(actor(), batch_id) == 1
    await shop.until("select r.state, b.state from replays r, replay_batches b", [("done", "done")])


async def test_a_worker_that_lost_its_claim_asks_no_model(shop: Shop) -> None:
    """As of a process that was frozen: another one has taken its replay over, or the user was forgotten meanwhile."""
    turn_id = await search(shop)
    shop.vendors.anthropic.say("", tool_calls=[SEARCH])
    shop.vendors.anthropic.hang()
    source = await shop.console.find_source(actor(), turn_id)
    asked = len(shop.vendors.anthropic.requests)
    await shop.console.run(actor(), source, "claude-sonnet", NOTHING_CHANGED)
    await shop.vendors.anthropic.asked(asked + 2, timeout_s=30.0)
    [(replay_id,)] = await shop.ask("select id from replays")
    frozen = replace(await found(shop, replay_id), attempt=0)
    await shop.console.worker._runner.run(frozen)
    assert len(shop.vendors.anthropic.requests) == asked + 2
    assert await shop.ask("select state, attempt from replays") == [("running", 1)]


async def test_an_answer_that_is_being_written_while_its_worker_stops_is_not_asked_for_again(shop: Shop) -> None:
    turn_id = await shop.say("Hello")
    source = await shop.console.find_source(actor(), turn_id)
    asked = len(shop.vendors.anthropic.requests)
    async with shop.service.database.begin() as tx:
        # The row of the call has to wait for this lock; the replay's own row is free.
        await connection_of(tx).execute("lock table calls in share mode")
        [replay_id] = await shop.console.run(actor(), source, "claude-sonnet", NOTHING_CHANGED)
        await shop.until(BLOCKED, [(1,)])
        closing = asyncio.create_task(shop.console.worker.aclose())
        await asyncio.wait([closing], timeout=0.3)
    await closing
    done = await shop.ended(replay_id)
    assert done.state is ReplayState.DONE
    assert len(shop.vendors.anthropic.requests) == asked + 1
    assert await shop.ask("select outcome from calls where purpose = 'replay'") == [("answered",)]


async def test_a_replay_that_fails_after_a_paid_answer_says_what_it_cost(shop: Shop) -> None:
    await search(shop)
    shop.vendors.anthropic.say("", tool_calls=[SEARCH])
    for _ in range(4):
        shop.vendors.anthropic.fail(400)
    batch_id = await shop.console.run_batch(actor(), await shop.console.plan(actor(), ReplayFilter(), ["claude-sonnet"], 1))
    await shop.until("select state from replay_batches", [("done",)])
    await shop.service.hermes.gateway.wait_settled()
    [(paid,)] = await shop.ask("select sum(micro_usd)::bigint from calls where purpose = 'replay'")
    batch, [failed], _ = await shop.console.get_batch(actor(), batch_id)
    assert failed.state is ReplayState.FAILED
    assert (failed.micro_usd, batch.micro_usd) == (paid, paid)
    assert paid > 0


async def test_the_words_of_a_model_are_in_no_error(shop: Shop) -> None:
    """The name of a tool that a model made up is what a model wrote; the error of a replay is read without opening anything."""
    turn_id = await search(shop)
    shop.vendors.anthropic.say("", tool_calls=[ToolCall("call_ada_at_628123456789", {})])
    done = await replay(shop, turn_id)
    assert (done.is_diverged, done.error) == (True, "diverged: would call an unknown tool")


async def test_an_operator_of_some_accounts_neither_stops_nor_resumes_what_belongs_to_others(shop: Shop) -> None:
    turns = [await shop.say("Hello"), await shop.say("Hello again")]
    batch_id = await shop.console.run_batch(actor(), await shop.console.plan(actor(), ReplayFilter(), ["claude-sonnet"], 2))
    await shop.until("select state from replay_batches", [("done",)])
    await shop.ask(f"update replays set account_id = 'other', state = 'failed' where turn_id = '{turns[0]}' returning 1")  # noqa: S608
    narrow = actor(Role.OPERATOR, accounts=frozenset({"other"}))
    batch, replays, _ = await shop.console.get_batch(narrow, batch_id)
    assert (batch.total, len(replays)) == (1, 1), "the sums are of what they see"
    for act in (shop.console.stop, shop.console.resume):
        with pytest.raises(AccessRefused):
            await act(narrow, batch_id)
    assert await shop.ask("select state from replays order by state") == [("done",), ("failed",)]


async def test_eight_answers_are_eight_calls_and_no_more_than_the_money_of_the_day(shop: Shop) -> None:
    turn_id = await shop.say("Hello")
    source = await shop.console.find_source(actor(), turn_id)
    ids = await shop.console.run(actor(), source, "claude-sonnet", NOTHING_CHANGED, count=8)
    shop.console.worker.start(ids)
    done = [await shop.ended(each) for each in ids]
    assert {each.state for each in done} == {ReplayState.DONE}
    await shop.service.hermes.gateway.wait_settled()
    rows = await shop.ask("select count(*), sum(micro_usd)::bigint from calls where purpose = 'replay'")
    assert rows == [(8, sum(each.micro_usd or 0 for each in done))]


async def found(shop: Shop, replay_id: UUID) -> Replay:
    running, _ = await shop.console.get(actor(), replay_id)
    return running


async def test_two_owners_who_keep_at_once_keep_it_once_and_the_conversation_goes_on(shop: Shop) -> None:
    turn_id = await shop.say("Hello")
    done, twin = await replay(shop, turn_id), await replay(shop, turn_id)
    async with shop.service.database.begin() as tx:
        await shop.service.hermes.adapters.people.allow_training(tx, done.user_id, trains=True)
    both = await asyncio.gather(
        shop.console.keep(actor(), done.id), shop.console.keep(actor(), done.id), shop.say("Go on"), return_exceptions=True
    )
    assert not isinstance(both[2], BaseException), "a live turn is not disturbed"
    assert [type(each) for each in both[:2] if isinstance(each, BaseException)] in ([NotKept], [StaleHead], [StaleHead, StaleHead])
    for each in (done, twin):  # the same words, sampled twice
        with suppress(NotKept):
            await shop.console.keep(actor(), each.id)
    [(session_id,)] = await shop.ask("select id from sessions")
    async with shop.service.database.begin() as tx:
        graph = await shop.service.hermes.adapters.graphs.load(tx, session_id)
    assert graph.verify()
    kept = [each for each in graph.responses() if each.call is not None and (each.call.extra or {}).get("source") == "replay"]
    assert sorted((each.call.extra or {})["replay_id"] for each in kept if each.call) == sorted([str(done.id), str(twin.id)])


async def test_no_more_is_paid_for_a_user_who_is_forgotten_while_a_replay_of_theirs_runs(shop: Shop) -> None:
    turn_id = await search(shop)
    source = await shop.console.find_source(actor(), turn_id)
    asked = len(shop.vendors.anthropic.requests)
    shop.vendors.anthropic.say("", tool_calls=[SEARCH])
    async with shop.service.database.begin() as tx:
        # The first answer waits for this lock, until the user is forgotten.
        await connection_of(tx).execute("lock table calls in share mode")
        await shop.console.run_batch(actor(), await shop.console.plan(actor(), ReplayFilter(), ["claude-sonnet"], 1))
        await shop.until(BLOCKED, [(1,)])
        await shop.service.hermes.adapters.people.forget(tx, source.user_id)
    await shop.until("select state from replay_batches", [("done",)])
    await shop.service.hermes.gateway.wait_settled()
    assert len(shop.vendors.anthropic.requests) == asked + 1
    assert await shop.ask("select outcome from calls where purpose = 'replay'") == [("answered",)]
    assert await shop.ask("select count(*) from replays") == [(0,)]


async def test_the_estimate_of_turns_that_no_model_answered_is_not_nothing(shop: Shop) -> None:
    for _ in range(8):
        shop.vendors.anthropic.fail(400)
    await shop.say("Hello, find me a cafe in Ubud")
    plan = await shop.console.plan(actor(), ReplayFilter(status="failed"), ["claude-sonnet"], 5)
    assert plan.replayable == 1
    shop.vendors.anthropic._script.clear()
    assert plan.micro_usd > 0


async def test_what_is_stored_of_a_replay_is_emptied_with_the_journal_also_if_no_model_answered(shop: Shop) -> None:
    turn_id = await shop.say("Hello")
    await replay(shop, turn_id)
    for _ in range(4):
        shop.vendors.anthropic.fail(400)
    failed = await replay(shop, turn_id, ReplayChange(system="Ada likes figs."))
    assert failed.state is ReplayState.FAILED
    retention = JournalRetention(shop.service.database, shop.service.hermes.adapters.journal, 30)
    await retention.empty_old(datetime.now(UTC) + timedelta(days=31))
    assert await shop.ask("select distinct change is null, result is null from replays") == [(True, True)]
