"""`/v1/runs` from outside, driven as Paperclip drives it: a real server, a real worker, real stores."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest

from hermes.config import ApiSettings, CreditSettings, Secret
from hermes.ports.backends import Completion, ModelRequest, Usage
from hermes.ports.models import Answer, Caller
from hermes.ports.users import UserChannel
from hermes.router.stop import TurnStopper
from hermes.stores.postgres.database import connection_of
from hermes.stores.seal import new_master_key
from hermes.turn import Platform
from tests.fakes.paperclip import PaperclipAgent
from tests.flows.echo import own_words
from tests.flows.service import Service, running
from tests.flows.test_web import error, eventually

TASK = "Water the plants.\n\nThe ferns first."


class PricedEcho:
    """Answers with what it was told, at a price."""

    async def complete(self, ask: ModelRequest, _: Caller) -> Answer:
        message = {"role": "assistant", "content": own_words(ask)}
        completion = Completion(
            message=message, finish_reason="stop", usage=Usage(tokens_in=7, tokens_out=3), model="echo-1", request_digest=""
        )
        return Answer(uuid4(), completion, "echo", "echo", 1_500, {}, (), 0)


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url, ping_s=0.2) as service:
        yield service


async def agent_of(service: Service, **more: Any) -> PaperclipAgent:
    key = await service.key(scopes=["runs"])
    return PaperclipAgent(service.client, service.url, key["Authorization"].removeprefix("Bearer "), **more)


async def credit(service: Service) -> tuple[int, int]:
    """What the user `default` has, and what is reserved of it."""
    async with service.database.begin() as tx:
        user = await service.hermes.adapters.people.find(tx, UserChannel("shop", Platform.REST, "default"))
        assert user is not None
        balance = await service.hermes.adapters.credits.balance(tx, user.id)
    return balance.available, balance.reserved


async def read_frames(response: aiohttp.ClientResponse, count: int) -> list[tuple[str, str]]:
    """The id and name of the next events."""
    found: list[tuple[str, str]] = []
    fields: dict[str, str] = {}
    async for line in response.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name in {"id", "event"}:
            fields[name] = value
        if name == "data":
            found.append((fields.pop("id", ""), fields.pop("event", "")))
            if len(found) == count:
                break
    return found


# --- a run as Paperclip makes it


async def test_paperclip_gives_a_task_and_gets_its_answer_with_usage_and_cost(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, models=PricedEcho()) as service:
        # It may not poll: on a busy machine the poll would end the run before the stream has told of it.
        paperclip = await agent_of(service, template={"model": "hermes-agent", "priority": 3}, poll_s=60)
        result = await paperclip.execute("pc-run-1", TASK)
        key = paperclip.headers("pc-run-1", "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed")["X-Hermes-Session-Key"]
        health = await service.get("/health", paperclip.headers("pc-run-1", None))
    assert health.status == 200
    assert (result.exit_code, result.error_code, result.model, result.session_id) == (0, None, "echo-1", key)
    assert result.summary == f"Follow the wake instructions.\n\n{TASK}"
    assert (result.usage, result.cost_usd) == ({"input": 7, "output": 3}, 0.0015)
    names = [name for name, _ in paperclip.seen]
    assert names[-2:] == ["message.delta", "run.completed"]
    assert {"user.resolved", "intent.classified", "model.called", "credit.charged"} <= set(names)
    assert UUID(str(result.run_id))
    assert all("status" not in record for name, record in paperclip.seen if not name.startswith("run."))
    in_between = str([record for name, record in paperclip.seen if not name.startswith(("run.", "message."))])
    assert "ferns" not in in_between


async def test_without_a_stream_paperclip_polls(service: Service) -> None:
    paperclip = await agent_of(service, events_path="/no/stream/{}")
    result = await paperclip.execute("pc-run-1", TASK)
    assert (result.exit_code, result.summary) == (0, f"Follow the wake instructions.\n\n{TASK}")
    assert set(paperclip.statuses) == {404}
    assert (paperclip.seen, paperclip.polled[-1]) == ([], "completed")


async def test_a_stream_that_breaks_off_is_taken_up_again(service: Service) -> None:
    service.thinker.may_answer.clear()
    paperclip = await agent_of(service, frames_before_break=1, poll_s=60)
    run = asyncio.create_task(paperclip.execute("pc-run-1", TASK))
    await eventually(lambda: told(len(paperclip.statuses) >= 2), wanted=True)
    service.thinker.may_answer.set()
    assert (await run).exit_code == 0


async def told(value: bool) -> bool:
    return value


async def test_the_same_run_twice_is_one_turn(service: Service) -> None:
    paperclip = await agent_of(service)
    first, second = await asyncio.gather(paperclip.execute("pc-run-1", TASK), paperclip.execute("pc-run-1", TASK))
    third = await paperclip.execute("pc-run-1", TASK)
    assert {first.run_id, second.run_id, third.run_id} == {first.run_id}
    assert [each.exit_code for each in (first, second, third)] == [0, 0, 0]
    assert (len(service.thinker.asked), await service.turns()) == (1, 1)
    headers = {**paperclip.headers("pc-run-1", None)}
    assert error(await service.post("/v1/runs", {"input": "something else"}, headers)) == (422, "idempotency_key_reused", None)


async def test_runs_of_one_issue_share_a_conversation_and_others_have_their_own(service: Service) -> None:
    for strategy, expected in (("issue", 1), ("run", 3), ("none", 5)):
        paperclip = await agent_of(service, strategy=strategy)
        for number in range(2):
            assert (await paperclip.execute(f"{strategy}-{number}", TASK)).exit_code == 0
        async with service.database.begin() as tx:
            [(conversations,)] = await (await connection_of(tx).execute("select count(*) from conversations")).fetchall()
        assert conversations == expected


async def test_a_run_that_got_no_answer_has_failed_and_says_why(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, more={"credits": CreditSettings(signup_grant=0)}) as service:
        paperclip = await agent_of(service)
        result = await paperclip.execute("pc-run-1", TASK)
        assert (result.exit_code, result.error_code, result.usage) == (1, "upgrade", None)
        assert result.error
        assert service.thinker.asked == []


async def test_the_kill_switch_stops_runs_as_it_stops_messages(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, echoes=False) as service:
        await service.hermes.spend.kill_switch("a test", "ada")
        result = await (await agent_of(service)).execute("pc-run-1", TASK)
        assert (result.exit_code, result.error_code, await credit(service)) == (1, "paused", (100, 0))


async def test_a_run_whose_worker_died_is_finished_once_by_the_next_one(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, has_worker=False) as service:
        service.thinker.may_answer.clear()
        paperclip = await agent_of(service, poll_s=60)
        run = asyncio.create_task(paperclip.execute("pc-run-1", TASK))
        await eventually(service.turns, 1)
        async with service.database.begin() as tx:
            [(turn_id,)] = await (await connection_of(tx).execute("select turn_id from inbox")).fetchall()
        worker = asyncio.create_task(service.hermes.turn(turn_id))
        await eventually(lambda: told(bool(service.thinker.asked)), wanted=True)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        service.thinker.may_answer.set()
        await service.hermes.turn(turn_id)
        assert ((await run).exit_code, await credit(service)) == (0, (99, 0))
    names = [name for name, _ in paperclip.seen]
    assert [names.count(name) for name in ("model.called", "credit.charged", "message.delta", "run.completed")] == [1, 1, 1, 1]


# --- stopped runs


async def test_a_run_that_takes_too_long_is_stopped_and_its_worker_answers_nothing(service: Service) -> None:
    service.thinker.may_answer.clear()
    paperclip = await agent_of(service, timeout_s=1.0)
    result = await paperclip.execute("pc-run-1", TASK)
    assert (result.timed_out, result.error, paperclip.stop_body and paperclip.stop_body["status"]) == (True, "cancelled", "cancelled")
    assert await credit(service) == (100, 0)
    service.thinker.may_answer.set()
    paperclip.timeout_s = 20
    assert (await paperclip.execute("pc-run-2", TASK)).exit_code == 0  # of the same conversation: it waited for the worker to let go
    assert await credit(service) == (99, 0)
    key = {"Authorization": (await service.key())["Authorization"]}
    assert error(await service.get(f"/v1/messages/{result.run_id}", key)) == (410, "stopped", None)
    async with service.database.begin() as tx:
        events = await service.hermes.adapters.journal.read(tx, UUID(str(result.run_id)))
        [(answers,)] = await (await connection_of(tx).execute("select count(*) from outbox where turn_id = %s", [result.run_id])).fetchall()
    assert [(event.type, dict(event.facts)) for event in events if event.type == "turn_stopped"] == [
        ("turn_stopped", {"is_charged": False})
    ]
    assert answers == 0


async def test_a_run_that_waits_is_withdrawn(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, has_worker=False) as service:
        key = await service.key()
        begun = await service.post("/v1/runs", {"input": "hi"}, key)
        where = begun.headers["Location"]
        assert (begun.status, begun.body["status"], where) == (202, "queued", f"/v1/runs/{begun.body['run_id']}")
        stopped = await service.post(f"{where}/stop", None, key)
        assert (stopped.status, stopped.body["status"], stopped.body["error_code"]) == (200, "cancelled", "stopped")
        assert (await service.post(f"{where}/stop", None, key)).body == stopped.body
        await service.hermes.turn(UUID(begun.body["run_id"]))
        assert (await service.get(where, key)).body == stopped.body
        async with service.client.get(f"{service.url}{where}/events", headers=key) as response:
            assert await read_frames(response, 9) == [(cursor, name) for cursor, name in await replay(service, where, key)]
    assert service.thinker.asked == []


async def replay(service: Service, where: str, key: dict[str, str]) -> list[tuple[str, str]]:
    async with service.client.get(f"{service.url}{where}/events", headers=key) as response:
        frames = await read_frames(response, 9)
    assert [name for _, name in frames] == ["turn.stopped", "run.cancelled"]
    return frames


async def test_what_was_paid_before_the_stop_is_charged(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, has_worker=False) as service:
        parts, key = service.hermes.adapters, await service.key()
        run_id = UUID((await service.post("/v1/runs", {"input": "hi"}, key)).body["run_id"])
        async with service.database.begin() as tx:
            claim = await parts.inbox.claim(tx, run_id)
            assert claim is not None
            await parts.credits.reserve(tx, claim.user_id, run_id)
        async with service.database.begin() as tx:
            await parts.journal.begin(tx, claim, "call_model", 0, b"asked")
            paid = {"model": "echo-1", "tokens_in": 7, "tokens_out": 3, "micro_usd": 1_500, "copy_of": None}
            await parts.journal.finish(tx, claim, "call_model", 0, b"answered", facts=paid)
        stopped = await service.post(f"/v1/runs/{run_id}/stop", None, key)
        assert await credit(service) == (99, 0)
        assert not await TurnStopper(service.database, parts.inbox, parts.credits, parts.journal, parts.replies).stop(run_id)
    assert stopped.body == {
        "object": "hermes.run",
        "run_id": str(run_id),
        "status": "cancelled",
        "session_id": stopped.body["session_id"],
        "error": "The client stopped this run.",
        "error_code": "stopped",
        "model": "echo-1",
        "usage": {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10},
        "cost_usd": 0.0015,
        "last_event": "run.cancelled",
    }


async def test_a_stop_at_any_moment_leaves_one_end_and_exact_credit(service: Service) -> None:
    service.thinker.may_answer.set()
    key, dice = await service.key(), random.Random(17)

    async def race(number: int) -> tuple[UUID, str]:
        begun = await service.post("/v1/runs", {"input": f"run {number}"}, key)
        where = begun.headers["Location"]
        if number % 2:
            await asyncio.sleep(dice.random() * 0.2)  # at any moment of the run
        else:
            await eventually(lambda: has_seen_a_model(service, begun.body["run_id"]), wanted=True)  # while it is recorded, or after
        await service.post(f"{where}/stop", None, key)
        await eventually(lambda: has_ended(service, where, key), wanted=True)
        return UUID(begun.body["run_id"]), (await service.get(where, key)).body["status"]

    ends = [end for first in range(0, 32, 4) for end in await asyncio.gather(*(race(first + more) for more in range(4)))]
    await eventually(lambda: running_turns(service), 0)
    charged = 0
    for run_id, status in ends:
        async with service.database.begin() as tx:
            noted = [event for event in await service.hermes.adapters.journal.read(tx, run_id) if event.type in SETTLED]
            answers = await (await connection_of(tx).execute("select 1 from outbox where turn_id = %s", [run_id])).fetchall()
        assert (len(noted), len(answers)) == (1, 1 if status == "completed" else 0), (status, noted)
        charged += noted[0].type == "credit_posted" or bool(noted[0].facts.get("is_charged"))
        assert (await service.get(f"/v1/runs/{run_id}", key)).body["status"] == status
    assert charged > 0
    assert await credit(service) == (100 - charged, 0)


SETTLED = {"credit_posted", "credit_voided", "turn_stopped"}


async def has_seen_a_model(service: Service, run_id: str) -> bool:
    async with service.database.begin() as tx:
        journal = await service.hermes.adapters.journal.read(tx, UUID(run_id))
    return any(event.type == "llm_called" and event.done_at for event in journal)


async def has_ended(service: Service, where: str, key: dict[str, str]) -> bool:
    return (await service.get(where, key)).body["status"] not in {"queued", "running"}


async def running_turns(service: Service) -> int:
    async with service.database.begin() as tx:
        [(count,)] = await (await connection_of(tx).execute("select count(*) from runs where state = 'running'")).fetchall()
    return int(count)


async def test_a_run_that_has_ended_stays_as_it_is(service: Service) -> None:
    paperclip = await agent_of(service)
    done = await paperclip.execute("pc-run-1", TASK)
    headers = paperclip.headers("pc-run-1", None)
    before = await service.get(f"/v1/runs/{done.run_id}", headers)
    assert (await service.post(f"/v1/runs/{done.run_id}/stop", None, headers)).body == before.body
    assert before.body["status"] == "completed"


# --- streams that go on


async def test_a_stream_goes_on_behind_the_last_event_that_its_client_saw(service: Service) -> None:
    paperclip = await agent_of(service)
    done = await paperclip.execute("pc-run-1", TASK)
    headers, url = paperclip.headers("pc-run-1", None), f"{service.url}/v1/runs/{done.run_id}/events"
    async with service.client.get(url, headers=headers) as response:
        frames = await read_frames(response, 99)
    assert [name for _, name in frames[-2:]] == ["message.delta", "run.completed"]
    for at, (cursor, _) in enumerate(frames[:-1]):
        async with service.client.get(url, headers={**headers, "Last-Event-ID": cursor}) as response:
            rest = await read_frames(response, 99)
        assert rest == frames[at + 1 :]
    async with service.client.get(url, headers={**headers, "Last-Event-ID": frames[-1][0]}) as response:
        assert response.status == 204


async def test_open_streams_of_a_key_are_limited_and_a_closed_one_makes_room(database_url: str, redis_url: str) -> None:
    more = {"api": ApiSettings(max_streams=1)}
    async with running(database_url, redis_url, has_worker=False, ping_s=0.2, more=more) as service:
        key = await service.key()
        run = await service.post("/v1/runs", {"input": "hi"}, key)
        url = f"{service.url}{run.headers['Location']}/events"

        async def status() -> int:
            async with service.client.get(url, headers=key) as response:
                return response.status

        async with service.client.get(url, headers=key) as first:
            await first.content.readline()
            assert await status() == 429
        async with asyncio.timeout(10):
            while await status() != 200:  # noqa: ASYNC110  # the server notices when it next writes
                await asyncio.sleep(0.05)


async def test_a_run_outlives_the_web_process_that_took_it_in(database_url: str, redis_url: str) -> None:
    same_keys, connected = {"master_keys": (Secret(new_master_key()),)}, asyncio.Event()
    async with running(database_url, redis_url, has_worker=False, more=same_keys) as service:
        key = await service.key()
        where = (await service.post("/v1/runs", {"input": "hi"}, key)).headers["Location"]
        stream = asyncio.create_task(read_stream(f"{service.url}{where}/events", key, connected))
        await connected.wait()
    assert await stream == []  # the server stopped, and the stream ended without an end of the run
    async with running(database_url, redis_url, more=same_keys) as service:
        names = [name for _, name in await read_stream(f"{service.url}{where}/events", key, connected)]
    assert names[-2:] == ["message.delta", "run.completed"]


async def read_stream(url: str, headers: dict[str, str], connected: asyncio.Event) -> list[tuple[str, str]]:
    async with aiohttp.ClientSession() as client, client.get(url, headers=headers) as response:
        connected.set()
        return await read_frames(response, 99)


# --- rights, and wrong requests


async def test_a_key_sees_only_the_runs_of_its_account(service: Service) -> None:
    paperclip = await agent_of(service)
    run_id = (await paperclip.execute("pc-run-1", TASK)).run_id
    other, limited = await service.key("another"), await service.key(channels=["elsewhere"])
    for key in (other, limited):
        assert error(await service.get(f"/v1/runs/{run_id}", key)) == (404, "not_found", None)
        assert error(await service.get(f"/v1/runs/{run_id}/events", key)) == (404, "not_found", None)
        assert error(await service.post(f"/v1/runs/{run_id}/stop", None, key)) == (404, "not_found", None)
    assert error(await service.post("/v1/runs", {"input": "hi"}, limited)) == (403, "wrong_channel", "channel")
    assert error(await service.get("/v1/runs/nonsense", other)) == (404, "not_found", None)
    wrong = await service.key(scopes=["messages", "ops"])
    assert error(await service.post("/v1/runs", {"input": "hi"}, wrong)) == (403, "wrong_scope", None)
    assert error(await service.post("/v1/runs", {"input": "hi"})) == (401, "invalid_api_key", None)


async def test_a_wrong_task_is_refused(service: Service) -> None:
    key = await service.key()
    assert error(await service.post("/v1/runs", {"instructions": "be brief"}, key)) == (422, "missing", "input")
    assert error(await service.post("/v1/runs", {"input": ""}, key)) == (422, "string_too_short", "input")
    long = {"input": "x" * 60_000, "instructions": "y" * 60_000}
    assert error(await service.post("/v1/runs", long, key)) == (422, "string_too_long", "input")
    assert error(await service.post("/v1/runs", {"input": "hi", "session_id": "a\nb"}, key)) == (
        422,
        "string_pattern_mismatch",
        "session_id",
    )
    assert await service.turns() == 0
