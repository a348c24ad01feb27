"""The web from outside: a real server, a real worker, real stores."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import psycopg
import pytest

from hermes.config import ApiSettings, Secret, WorkSettings
from hermes.stores.postgres.database import connection_of
from hermes.stores.seal import new_master_key
from tests.flows.service import Got, Service, got, running

NO_REDIS = "unix:///tmp/no-such-redis.sock"


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url, answer_timeout_s=20.0, ping_s=0.2) as service:
        yield service


def reply(turn_id: str, text: str) -> dict[str, Any]:
    """What an echo answers, as a whole."""
    return {
        "turn_id": turn_id,
        "text": text,
        "tokens_in": 0,
        "tokens_out": 0,
        "cost_usd": 0.0,
        "tool_calls_made": 0,
        "backend": "echo",
        "cache_hit": False,
        "saved_usd": 0.0,
    }


def error(refused: Got) -> tuple[int, str, str | None]:
    """The status, code and parameter of an error, whose shape is looked at on the way."""
    assert list(refused.body) == ["error"]
    assert sorted(refused.body["error"]) == ["code", "message", "param", "type"]
    return refused.status, refused.body["error"]["code"], refused.body["error"]["param"]


def events(text: str) -> list[tuple[str, Any, str | None]]:
    """Read a stream of server-sent events: name, data, id. Pings are left out."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            found.append((fields["event"], json.loads(fields["data"]), fields.get("id")))
    return found


async def eventually(look: Any, wanted: Any) -> None:
    async with asyncio.timeout(10):
        while await look() != wanted:  # noqa: ASYNC110  # what is looked at is in another process, or behind a socket
            await asyncio.sleep(0.02)


# --- health, readiness, metrics


async def test_health_says_that_the_process_lives(service: Service) -> None:
    answer = await service.get("/health")
    assert (answer.status, answer.body) == (200, {"status": "ok"})
    async with service.client.head(service.url + "/health") as response:
        assert response.status == 200


async def test_an_answer_does_not_wait_for_the_client_to_acknowledge_its_head(service: Service) -> None:
    took_s = []
    for _ in range(40):  # a young connection is acknowledged at once, so only later requests would wait their 40 ms
        began = time.perf_counter()
        await service.get("/health")
        took_s.append(time.perf_counter() - began)
    assert min(took_s[20:]) < 0.03


WELL = {"postgres": "ok", "redis": "ok", "models": "ok", "workers": "ok", "queue": "ok"}


async def ready_when(service: Service, part: str, beginning: str) -> Got:
    """What `/ready` says as soon as its word on a part begins so."""
    async with asyncio.timeout(30):
        while True:
            answer = await service.get("/ready")
            if answer.body["parts"][part].startswith(beginning):
                return answer
            await asyncio.sleep(0.05)


async def test_ready_asks_every_part(service: Service) -> None:
    answer = await ready_when(service, "workers", "ok")  # it has to give its first beat
    assert (answer.status, answer.body) == (200, {"status": "ready", "parts": WELL})


async def test_without_redis_hermes_is_degraded_and_ready(database_url: str) -> None:
    async with running(database_url, NO_REDIS) as service:
        answer = await ready_when(service, "workers", "ok")
    assert (answer.status, answer.body) == (200, {"status": "degraded", "parts": {**WELL, "redis": "down: ConnectionError"}})


async def test_without_a_worker_messages_are_accepted_and_hermes_is_degraded_with_the_reasons(database_url: str, redis_url: str) -> None:
    work = WorkSettings(late_after_s=0.2)
    async with running(database_url, redis_url, has_worker=False, more={"work": work}) as service:
        no_worker = "degraded: no worker gave a beat for 10 s; messages are accepted and wait"
        answer = await service.get("/ready")
        assert (answer.status, answer.body) == (200, {"status": "degraded", "parts": {**WELL, "workers": no_worker}})
        asked = await service.post("/v1/messages", {"user": "ann", "text": "hello"}, await service.key())
        assert asked.status in {200, 202}
        answer = await ready_when(service, "queue", "degraded: the oldest message has waited for ")
        assert (answer.status, answer.body["status"]) == (200, "degraded")


async def test_without_postgres_hermes_is_not_ready_but_lives(service: Service, database_url: str) -> None:
    with out_of_reach(database_url):
        answer, alive = await service.get("/ready"), await service.get("/health")
    assert (answer.status, alive.status) == (503, 200)
    parts = answer.body["parts"]
    assert (answer.body["status"], parts["redis"], parts["models"]) == ("unavailable", "ok", "ok")
    # A pool that still opens new connections has no answer yet.
    assert {parts["postgres"], parts["workers"], parts["queue"]} <= {"down: StoreUnavailable", "down: no answer within 2 s"}


async def test_requests_are_counted_by_route_template_and_queues_by_name(service: Service) -> None:
    key = await service.key()
    await service.get(f"/v1/messages/{uuid4()}", key)
    await service.get(f"/v1/messages/{uuid4()}", key)
    await service.get("/wp-login.php")
    await service.get("/openapi.json")
    async with service.client.delete(service.url + "/v1/messages"):
        pass
    answer = await service.get("/metrics")
    lines = answer.body.splitlines()
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert sorted(line for line in lines if line.startswith("hermes_request_count_total{")) == [
        'hermes_request_count_total{method="DELETE",route="/v1/messages",status="405"} 1.0',
        'hermes_request_count_total{method="GET",route="/openapi.json",status="200"} 1.0',
        'hermes_request_count_total{method="GET",route="/v1/messages/{turn_id}",status="404"} 2.0',
        'hermes_request_count_total{method="GET",route="unmatched",status="404"} 1.0',
    ]
    assert [line for line in lines if line.startswith("hermes_queue_length{")] == [
        'hermes_queue_length{queue="dead_letters"} 0.0',
        'hermes_queue_length{queue="deliveries"} 0.0',
        'hermes_queue_length{queue="failed_sends"} 0.0',
        'hermes_queue_length{queue="inbox"} 0.0',
        'hermes_queue_length{queue="memory"} 0.0',
        'hermes_queue_length{queue="outbox"} 0.0',
        'hermes_queue_length{queue="turns"} 0.0',
    ]


async def test_the_metrics_are_there_when_the_database_is_not(service: Service, database_url: str) -> None:
    with out_of_reach(database_url):
        answer = await service.get("/metrics")
    assert (answer.status, "hermes_queue_length{" in answer.body, "hermes_loop_blocked_total 0.0" in answer.body) == (200, False, True)


# --- who may


async def test_without_a_known_key_nothing_is_taken_in(service: Service) -> None:
    for authorization, challenge in [
        (None, "Bearer"),
        ("Basic dXNlcjpwYXNz", "Bearer"),
        ("Bearer hk_nobody-has-this-one", 'Bearer error="invalid_token"'),
        ("Bearer " + "x" * 5_000, 'Bearer error="invalid_token"'),
    ]:
        headers = {"Authorization": authorization} if authorization else {}
        for answer in (
            await service.post("/v1/messages", {"text": "hi"}, headers),
            await service.post("/v1/messages", {"txt": "hi"}, headers),
            await service.get(f"/v1/messages/{uuid4()}", headers),
        ):
            assert (error(answer), answer.headers["WWW-Authenticate"]) == ((401, "invalid_api_key", None), challenge)
    assert await service.turns() == 0


async def test_a_key_for_some_channels_writes_and_reads_there_only(service: Service) -> None:
    scoped, whole = await service.key(channels=["support", "sales"]), await service.key()
    there = await service.post("/v1/messages", {"text": "hi", "channel": "support"}, scoped)
    elsewhere = await service.post("/v1/messages", {"text": "hi", "channel": "board"}, whole)
    assert (there.status, elsewhere.status) == (200, 200)
    assert error(await service.post("/v1/messages", {"text": "hi", "channel": "board"}, scoped)) == (403, "wrong_channel", "channel")
    assert error(await service.post("/v1/messages", {"text": "hi", "user": "ada"}, scoped)) == (403, "wrong_channel", "channel")
    assert (await service.get(f"/v1/messages/{there.body['turn_id']}", scoped)).status == 200
    assert error(await service.get(f"/v1/messages/{elsewhere.body['turn_id']}", scoped)) == (404, "not_found", None)
    assert error(await service.get("/v1/news?channel=board", scoped)) == (403, "wrong_channel", "channel")
    assert error(await service.get("/v1/users/ada/data", scoped)) == (403, "wrong_channel", None)


async def test_a_key_of_one_scope_is_refused_at_the_others(service: Service) -> None:
    key = await service.key(scopes=["messages"])
    assert (await service.post("/v1/messages", {"text": "hi"}, key)).status == 200
    assert error(await service.get("/v1/users/default/data", key)) == (403, "wrong_scope", None)
    assert (await service.get("/v1/models", key)).status == 403


async def test_a_key_that_sends_too_fast_is_told_when_to_come_again(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, more={"api": ApiSettings(per_minute=2)}) as service:
        key, other = await service.key(), await service.key()
        answers = [await service.post("/v1/messages", {"text": "hi"}, key) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert 1 <= int(answers[2].headers["Retry-After"]) <= 30
        assert (await service.post("/v1/messages", {"text": "hi"}, other)).status == 200
        assert await service.turns() == 3


async def test_an_address_that_keeps_guessing_keys_is_sent_away(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, refused_per_minute=2) as service:
        guesses = [await service.post("/v1/messages", {"text": "hi"}, {"Authorization": f"Bearer hk_{n}"}) for n in range(3)]
        assert [guess.status for guess in guesses] == [401, 401, 429]


async def test_a_right_key_is_let_in_five_hundred_times_at_once_whatever_wrong_ones_came_before_and_come_beside(
    database_url: str, redis_url: str
) -> None:
    async with running(database_url, redis_url) as service, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def status(headers: Mapping[str, str]) -> int:
            async with client.get(service.url + "/v1/models", headers=headers) as response:
                return response.status

        def wrong(count: int) -> list[dict[str, str]]:
            return [{"Authorization": f"Bearer hk_{uuid4()}"} for _ in range(count)]

        before = [await status(headers) for headers in wrong(70)]
        assert (before[:60], before[-1]) == ([401] * 60, 429)
        right = await service.key()
        mixed = [headers for pair in zip(wrong(500), [right] * 500, strict=True) for headers in pair]
        statuses = await asyncio.gather(*map(status, mixed))
    assert set(statuses[1::2]) == {200}
    assert set(statuses[::2]) <= {401, 429}


async def test_a_revoked_key_is_refused(service: Service) -> None:
    key = await service.key()
    async with service.database.begin() as tx:
        await service.hermes.adapters.api_keys.revoke(tx, "test")
    assert error(await service.get(f"/v1/messages/{uuid4()}", key)) == (401, "invalid_api_key", None)


# --- what may be sent


WRONG: list[tuple[object, tuple[int, str, str]]] = [
    ({}, (422, "missing", "text")),
    ({"text": ""}, (422, "missing", "text")),
    ({"text": "x" * 100_001}, (422, "string_too_long", "text")),
    ({"text": 7}, (422, "string_type", "text")),
    ({"text": "\ud800"}, (422, "string_unicode", "text")),
    ({"text": "hi", "user": ""}, (422, "string_too_short", "user")),
    ({"text": "hi", "user": "x" * 129}, (422, "string_too_long", "user")),
    ({"text": "hi", "user": "a\x00b"}, (422, "string_pattern_mismatch", "user")),
    ({"text": "hi", "channel": "a\nb"}, (422, "string_pattern_mismatch", "channel")),
    ({"text": "hi", "stream": "yes"}, (422, "bool_type", "stream")),
    ({"text": "hi", "media_url": "file:///etc/passwd"}, (422, "string_pattern_mismatch", "media_url")),
    ({"text": "hi", "usr": "me"}, (422, "extra_forbidden", "usr")),
    (["hi"], (422, "model_attributes_type", "body")),
]


async def test_a_body_that_is_wrong_is_refused_with_the_name_of_the_field(service: Service) -> None:
    key = await service.key()
    refused = [(body, error(await service.post("/v1/messages", body, key))) for body, _ in WRONG]
    assert refused == WRONG
    assert await service.turns() == 0


async def test_an_unknown_field_is_refused_with_the_nearest_known_one_and_no_value_is_repeated(service: Service) -> None:
    answer = await service.post("/v1/messages", {"text": "a secret", "usr": "me"}, await service.key())
    assert answer.body["error"]["message"] == "usr: unknown field; did you mean user?"
    assert "secret" not in json.dumps(answer.body)


async def test_what_is_not_json_is_a_bad_request(service: Service) -> None:
    headers = {**await service.key(), "Content-Type": "application/json"}
    for body in (b"{", b'{"text": "hi"', b"\xff\xfe", b"[" * 5_000, b"not json"):
        async with service.client.post(service.url + "/v1/messages", data=body, headers=headers) as response:
            assert error(await got(response))[0] == 400, body


async def test_a_body_that_does_not_say_it_is_json_is_refused(service: Service) -> None:
    headers = {**await service.key(), "Content-Type": "text/plain"}
    async with service.client.post(service.url + "/v1/messages", data=b'{"text": "hi"}', headers=headers) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (415, "not_json")


@pytest.mark.parametrize("says_its_length", [True, False])
async def test_a_body_that_is_too_large_is_refused(database_url: str, redis_url: str, says_its_length: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b"x" * 100

    async with running(database_url, redis_url, max_body_bytes=2_000) as service:
        headers = {**await service.key(), "Content-Type": "application/json"}
        data = b"x" * 3_000 if says_its_length else chunks()
        async with service.client.post(service.url + "/v1/messages", data=data, headers=headers) as response:
            body = await response.json()
        fits = await service.post("/v1/messages", {"text": "x" * 1_900}, headers)
    assert (response.status, body["error"]["message"]) == (413, "The body is larger than 2000 bytes.")
    assert fits.status == 200


async def test_an_unknown_path_and_a_wrong_method_have_the_same_shape(service: Service) -> None:
    assert error(await service.get("/nowhere")) == (404, "not_found", None)
    answer = await service.get("/v1/messages")
    assert (error(answer), answer.headers["Allow"]) == ((405, "method_not_allowed", None), "POST")


async def test_a_fault_of_ours_tells_the_client_nothing_of_our_insides(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(type(service.hermes.adapters.inbox), "origin", broken)
    answer = await service.get(f"/v1/messages/{uuid4()}", await service.key())
    assert (error(answer), "hunter2" in json.dumps(answer.body)) == ((500, "internal_error", None), False)
    assert [record.message for record in caplog.records if record.name == "uvicorn.error"] == ["Exception in ASGI application\n"]


async def test_the_api_describes_itself(service: Service) -> None:
    answer = await service.get("/openapi.json")
    # test_ops_api.py has the operators' routes.
    assert [path for path in sorted(answer.body["paths"]) if not path.startswith("/v1/ops/")] == [
        "/anthropic",
        "/anthropic/v1/messages",
        "/anthropic/v1/messages/count_tokens",
        "/anthropic/v1/models",
        "/anthropic/v1/models/{name}",
        "/health",
        "/metrics",
        "/ready",
        "/v1/chat/completions",
        "/v1/embeddings",
        "/v1/messages",
        "/v1/messages/{turn_id}",
        "/v1/messages/{turn_id}/events",
        "/v1/models",
        "/v1/models/{name}",
        "/v1/news",
        "/v1/responses",
        "/v1/responses/input_tokens",
        "/v1/responses/{response_id}",
        "/v1/responses/{response_id}/cancel",
        "/v1/responses/{response_id}/input_items",
        "/v1/runs",
        "/v1/runs/{run_id}",
        "/v1/runs/{run_id}/events",
        "/v1/runs/{run_id}/stop",
        "/v1/users/{user}",
        "/v1/users/{user}/data",
        "/v1/users/{user}/memory",
        "/v1/users/{user}/memory/{fact_id}",
    ]
    assert answer.body["components"]["schemas"]["NewMessage"]["additionalProperties"] is False
    assert list(answer.body["components"]["securitySchemes"]) == ["HTTPBearer"]


# --- send and get the answer


async def test_a_message_is_answered_in_the_same_request(service: Service) -> None:
    answer = await service.post("/v1/messages", {"text": "Grüß Gott, 世界 🌍\nzwei Zeilen"}, await service.key())
    assert answer.status == 200
    assert answer.body == reply(answer.body["turn_id"], "Grüß Gott, 世界 🌍\nzwei Zeilen")
    assert (UUID(answer.body["turn_id"]).version, "Idempotent-Replayed" in answer.headers) == (7, False)


async def test_without_redis_a_message_is_answered_all_the_same(database_url: str) -> None:
    async with running(database_url, NO_REDIS, answer_timeout_s=20.0) as service:
        answer = await service.post("/v1/messages", {"text": "hi"}, await service.key())
    assert (answer.status, answer.body) == (200, reply(answer.body["turn_id"], "hi"))


async def test_an_answer_that_takes_longer_is_fetched_later(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, answer_timeout_s=0.3) as service:
        key = await service.key()
        service.thinker.may_answer.clear()
        accepted = await service.post("/v1/messages", {"text": "hi"}, key)
        turn_id, place = accepted.body["turn_id"], accepted.headers["Location"]
        assert (accepted.status, accepted.body) == (202, {"turn_id": turn_id, "status": "running"})
        assert place == f"/v1/messages/{turn_id}"
        early = await service.get(place, key)
        assert (early.status, early.body, early.headers["Location"]) == (202, {"turn_id": turn_id, "status": "running"}, place)
        service.thinker.may_answer.set()

        async def status() -> int:
            return (await service.get(place, key)).status

        await eventually(status, 200)
        assert (await service.get(place, key)).body == reply(turn_id, "hi")


async def test_who_prefers_not_to_wait_does_not_wait(service: Service) -> None:
    service.thinker.may_answer.clear()
    async with asyncio.timeout(5):
        answer = await service.post("/v1/messages", {"text": "hi"}, {**await service.key(), "Prefer": "respond-async"})
    assert (answer.status, answer.headers["Preference-Applied"]) == (202, "respond-async")


async def test_a_stream_accepts_pings_and_answers(service: Service) -> None:
    service.thinker.may_answer.clear()
    body = {"text": "hi", "stream": True}
    async with service.client.post(service.url + "/v1/messages", json=body, headers=await service.key()) as response:
        seen = b""
        async for chunk in response.content.iter_any():
            seen += chunk
            if b": ping\n\n" in seen:
                service.thinker.may_answer.set()
        head = {name: response.headers[name] for name in ("Content-Type", "Cache-Control", "X-Accel-Buffering")}
    assert head == {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    turn_id = events(seen.decode())[0][1]["turn_id"]
    assert events(seen.decode()) == [
        ("accepted", {"turn_id": turn_id}, None),
        ("message", reply(turn_id, "hi"), turn_id),
        ("done", {"turn_id": turn_id}, None),
    ]


async def test_a_stream_can_be_taken_up_again_until_its_end_was_seen(service: Service) -> None:
    key = await service.key()
    turn_id = (await service.post("/v1/messages", {"text": "hi"}, key)).body["turn_id"]
    again = await service.get(f"/v1/messages/{turn_id}/events", key)
    assert events(again.body) == [
        ("accepted", {"turn_id": turn_id}, None),
        ("message", reply(turn_id, "hi"), turn_id),
        ("done", {"turn_id": turn_id}, None),
    ]
    assert (await service.get(f"/v1/messages/{turn_id}/events", {**key, "Last-Event-ID": turn_id})).status == 204


async def test_a_client_that_goes_away_cancels_nothing(service: Service) -> None:
    key = await service.key()
    service.thinker.may_answer.clear()
    response = await service.client.post(service.url + "/v1/messages", json={"text": "hi", "stream": True}, headers=key)
    first = await response.content.readuntil(b"\n\n")
    turn_id = events(first.decode())[0][1]["turn_id"]
    response.close()
    await asyncio.sleep(0.3)
    service.thinker.may_answer.set()

    async def body() -> Any:
        return (await service.get(f"/v1/messages/{turn_id}", key)).body

    await eventually(body, reply(turn_id, "hi"))


async def test_an_account_sees_its_own_turns_only(service: Service) -> None:
    mine, yours = await service.key("shop"), await service.key("rival")
    turn_id = (await service.post("/v1/messages", {"text": "hi"}, mine)).body["turn_id"]
    web = await service.post("/web/messages", {"text": "hi", "id": str(uuid4())})
    for path in (f"/v1/messages/{turn_id}", f"/v1/messages/{turn_id}/events"):
        assert error(await service.get(path, yours)) == (404, "not_found", None)
    for strange in (str(uuid4()), "no-uuid", web.body["turn_id"]):
        assert error(await service.get(f"/v1/messages/{strange}", mine)) == (404, "not_found", None)


async def test_many_messages_of_one_conversation_are_answered_each_with_its_own(service: Service) -> None:
    key = await service.key()
    answer = await asyncio.gather(*(service.post("/v1/messages", {"text": f"number {n}"}, key) for n in range(30)))
    assert [(one.status, one.body["text"]) for one in answer] == [(200, f"number {n}") for n in range(30)]


async def test_the_answer_to_somebody_who_was_deleted_is_gone(service: Service) -> None:
    key = await service.key()
    service.thinker.may_answer.clear()
    turn_id = (await service.post("/v1/messages", {"text": "hi"}, {**key, "Prefer": "respond-async"})).body["turn_id"]
    other = (await service.post("/v1/messages", {"text": "hi"}, {**key, "Prefer": "respond-async"})).body["turn_id"]

    async def asked() -> list[str]:
        return service.thinker.asked

    await eventually(asked, ["hi"])
    async with service.database.begin() as tx:
        row = await (await connection_of(tx).execute("select user_id from inbox where turn_id = %s", [turn_id])).fetchone()
        await service.hermes.adapters.people.forget(tx, row[0])
    service.thinker.may_answer.set()

    async def status() -> int:
        return (await service.get(f"/v1/messages/{other}", key)).status

    await eventually(status, 410)
    assert error(await service.get(f"/v1/messages/{other}", key)) == (410, "user_erased", None)
    stream = await service.get(f"/v1/messages/{other}/events", key)
    assert [name for name, _, _ in events(stream.body)] == ["accepted", "error"]


async def test_a_message_that_was_given_up_without_an_answer_is_not_said_to_be_erased(service: Service) -> None:
    key = await service.key()
    service.thinker.may_answer.clear()
    await service.post("/v1/messages", {"text": "first"}, {**key, "Prefer": "respond-async"})
    turn_id = (await service.post("/v1/messages", {"text": "hi"}, {**key, "Prefer": "respond-async"})).body["turn_id"]
    async with service.database.begin() as tx:
        await service.hermes.adapters.inbox.bury_unread(tx, UUID(turn_id), "its key is missing")
    service.thinker.may_answer.set()
    assert error(await service.get(f"/v1/messages/{turn_id}", key)) == (410, "given_up", None)
    stream = await service.get(f"/v1/messages/{turn_id}/events", key)
    assert [(name, data.get("code")) for name, data, _ in events(stream.body)] == [("accepted", None), ("error", "given_up")]


# --- once


async def test_the_same_key_and_body_give_the_first_answer_again(service: Service) -> None:
    headers = {**await service.key(), "Idempotency-Key": "order-7"}
    first = await service.post("/v1/messages", {"text": "hi"}, headers)
    again = await service.post("/v1/messages", {"user": "default", "text": "hi"}, headers)
    assert (first.status, again.status, again.body) == (200, 200, first.body)
    assert ("Idempotent-Replayed" in first.headers, again.headers["Idempotent-Replayed"]) == (False, "true")
    assert await service.turns() == 1


async def test_the_same_key_can_be_replayed_as_a_stream_and_without_waiting(service: Service) -> None:
    key = await service.key()
    body = {"text": "hi", "stream": True}
    first, again = [await service.post("/v1/messages", body, {**key, "Idempotency-Key": "s"}) for _ in range(2)]
    assert (events(again.body), again.headers["Idempotent-Replayed"]) == (events(first.body), "true")
    waited = await service.post("/v1/messages", {"text": "ho"}, {**key, "Idempotency-Key": "a"})
    unwaited = await service.post("/v1/messages", {"text": "ho"}, {**key, "Idempotency-Key": "a", "Prefer": "respond-async"})
    assert (unwaited.status, unwaited.body) == (200, waited.body)


async def test_the_same_key_with_another_body_is_refused(service: Service) -> None:
    headers = {**await service.key(), "Idempotency-Key": "order-7"}
    await service.post("/v1/messages", {"text": "hi"}, headers)
    assert error(await service.post("/v1/messages", {"text": "ho"}, headers)) == (422, "idempotency_key_reused", None)
    assert await service.turns() == 1


async def test_the_same_key_under_another_api_key_is_another_one(service: Service) -> None:
    one, other = await service.key("shop"), await service.key("shop")
    for key in (one, other):
        answer = await service.post("/v1/messages", {"text": "hi"}, {**key, "Idempotency-Key": "order-7"})
        assert (answer.status, "Idempotent-Replayed" in answer.headers) == (200, False)
    assert await service.turns() == 2


async def test_a_key_whose_first_request_still_runs_is_a_conflict(service: Service) -> None:
    headers = {**await service.key(), "Idempotency-Key": "order-7"}
    service.thinker.may_answer.clear()
    first = asyncio.create_task(service.post("/v1/messages", {"text": "hi"}, headers))
    await eventually(service.turns, 1)
    second = await service.post("/v1/messages", {"text": "hi"}, headers)
    assert (error(second), second.headers["Retry-After"]) == ((409, "still_running", None), "1")
    service.thinker.may_answer.set()
    assert (await first).status == 200
    assert (await service.post("/v1/messages", {"text": "hi"}, headers)).body == (await first).body


async def test_identical_requests_at_once_are_one_turn(service: Service) -> None:
    headers = {**await service.key(), "Idempotency-Key": "order-7"}
    answer = await asyncio.gather(*(service.post("/v1/messages", {"text": "hi"}, headers) for _ in range(8)))
    assert await service.turns() == 1
    assert service.thinker.asked == ["hi"]
    assert {one.status for one in answer} <= {200, 409}
    answers = [one.body for one in answer if one.status == 200]
    assert answers
    assert all(answer == answers[0] for answer in answers)


async def test_without_a_key_the_same_request_twice_is_two_messages(service: Service) -> None:
    key = await service.key()
    first, second = await service.post("/v1/messages", {"text": "hi"}, key), await service.post("/v1/messages", {"text": "hi"}, key)
    assert first.body["turn_id"] != second.body["turn_id"]
    assert await service.turns() == 2


async def test_a_key_that_is_empty_or_too_long_is_refused(service: Service) -> None:
    key = await service.key()
    for length, code in [(0, "string_too_short"), (256, "string_too_long")]:
        refused = await service.post("/v1/messages", {"text": "hi"}, {**key, "Idempotency-Key": "k" * length})
        assert error(refused) == (422, code, "Idempotency-Key")


# --- when the stores cannot


async def test_a_full_inbox_asks_to_come_back_later(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, cap=1, has_worker=False) as service:
        key = {**await service.key(), "Prefer": "respond-async"}
        first, second = await service.post("/v1/messages", {"text": "1"}, key), await service.post("/v1/messages", {"text": "2"}, key)
        assert (first.status, await service.turns()) == (202, 1)
    assert (error(second), second.headers["Retry-After"]) == ((503, "inbox_full", None), "5")


async def test_a_message_that_cannot_be_stored_is_not_acknowledged(service: Service, database_url: str) -> None:
    key = await service.key()
    await service.get(f"/v1/messages/{uuid4()}", key)  # the key is remembered, so the message itself meets the outage
    with out_of_reach(database_url):
        answer = await service.post("/v1/messages", {"text": "hi"}, key)
    assert (error(answer), answer.headers["Retry-After"]) == ((503, "store_unavailable", None), "1")
    assert await service.turns() == 0


async def test_a_database_that_is_away_while_somebody_waits_does_not_cost_the_answer(service: Service, database_url: str) -> None:
    service.thinker.may_answer.clear()
    waiting = asyncio.create_task(service.post("/v1/messages", {"text": "hi"}, await service.key()))
    await eventually(service.turns, 1)
    with out_of_reach(database_url):
        await asyncio.sleep(1.0)
    service.thinker.may_answer.set()
    answered = await waiting
    assert (answered.status, answered.body) == (200, reply(answered.body["turn_id"], "hi"))


class out_of_reach:  # noqa: N801  # reads as a sentence: with out_of_reach(url)
    """PostgreSQL lets nobody into a database, and throws out who is in."""

    def __init__(self, url: str) -> None:
        parts = psycopg.conninfo.conninfo_to_dict(url)
        self._name = parts["dbname"]
        self._elsewhere = psycopg.conninfo.make_conninfo(url, dbname="postgres")

    def __enter__(self) -> None:
        with psycopg.connect(self._elsewhere, autocommit=True) as connection:
            connection.execute(f"alter database {self._name} allow_connections false")
            connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [self._name])

    def __exit__(self, *_: object) -> None:
        with psycopg.connect(self._elsewhere, autocommit=True) as connection:
            connection.execute(f"alter database {self._name} allow_connections true")


# --- the chat page's routes


def cookie_of(sent: Got) -> str:
    return sent.headers["Set-Cookie"].partition(";")[0]


async def test_the_page_comes_with_its_files_and_may_load_nothing_else(service: Service) -> None:
    page = await service.get("/")
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "Set-Cookie" not in page.headers, "a browser that comes over a link shows no cookie, and must not lose its own"
    assert {name: page.headers[name] for name in ("X-Content-Type-Options", "Referrer-Policy", "X-Frame-Options", "Cache-Control")} == {
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
        "Cache-Control": "no-cache",
    }
    assert page.headers["Content-Security-Policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    types = {name: (await service.get(f"/page/{name}")).headers["Content-Type"] for name in ("chat.css", "chat.js", "icon.svg")}
    assert types == {
        "chat.css": "text/css; charset=utf-8",
        "chat.js": "text/javascript; charset=utf-8",
        "icon.svg": "image/svg+xml; charset=utf-8",
    }
    assert error(await service.get("/page/..%2fchat.py")) == (404, "not_found", None)
    assert (await service.get("/", {"If-None-Match": page.headers["ETag"]})).status == 304
    for path in ("/health", "/ready", "/metrics", "/openapi.json"):
        assert f'href="{path}"' in page.body


async def test_a_visitor_gets_a_cookie_with_the_first_message_and_an_answer_by_events(service: Service) -> None:
    sent = await service.post("/web/messages", {"text": "hi", "id": str(uuid4())}, {"Origin": service.url})
    assert sent.status == 202
    turn_id = sent.body["turn_id"]
    name, *attributes = sent.headers["Set-Cookie"].split("; ")
    assert (len(name), name.partition("=")[0]) == (len("hermes_visitor=") + 43, "hermes_visitor")
    assert sorted(attributes) == ["HttpOnly", "Max-Age=31536000", "Path=/", "SameSite=strict"]
    visitor = {"Cookie": cookie_of(sent)}
    told = await service.get(sent.headers["Location"] + "/events", visitor)
    assert events(told.body) == [
        ("accepted", {"turn_id": turn_id}, None),
        ("message", reply(turn_id, "hi"), turn_id),
        ("done", {"turn_id": turn_id}, None),
    ]
    assert (await service.get(sent.headers["Location"], visitor)).body == reply(turn_id, "hi")
    again = await service.post("/web/messages", {"text": "ho", "id": str(uuid4())}, visitor)
    assert (again.status, "Set-Cookie" in again.headers) == (202, False)


async def test_the_cookie_is_secure_and_of_this_host_alone_where_the_page_came_over_https(database_url: str, redis_url: str) -> None:
    body, same_keys = {"text": "hi", "id": str(uuid4())}, {"master_keys": (Secret(new_master_key()),)}
    async with running(database_url, redis_url, trusted_proxies=("127.0.0.1",), more=same_keys) as service:
        sent = await service.post("/web/messages", body, {"X-Forwarded-Proto": "https"})
        name, *attributes = sent.headers["Set-Cookie"].split("; ")
        assert name.startswith("__Host-hermes_visitor=")
        assert sorted(attributes) == ["HttpOnly", "Max-Age=31536000", "Path=/", "SameSite=strict", "Secure"]
        again = await service.post("/web/messages", body, {"X-Forwarded-Proto": "https", "Cookie": name})
        assert (again.body, "Set-Cookie" in again.headers) == (sent.body, False)
        planted = await service.post("/web/messages", body, {"X-Forwarded-Proto": "https", "Cookie": name.removeprefix("__Host-")})
        assert "Set-Cookie" in planted.headers, "a page over plain HTTP could have set it"
    async with running(database_url, redis_url, public_url="https://chat.example.com", more=same_keys) as service:
        sent = await service.post("/web/messages", body, {"Host": "chat.example.com"})
        assert "Secure" in sent.headers["Set-Cookie"].split("; "), "the proxy in front says nothing, but the settings do"
    async with running(database_url, redis_url, more=same_keys) as service:
        sent = await service.post("/web/messages", body, {"X-Forwarded-Proto": "https"})
        assert sent.headers["Set-Cookie"].startswith("hermes_visitor="), "no proxy is believed that the settings do not name"


async def test_the_cookie_is_nowhere_in_the_database(service: Service) -> None:
    sent = await service.post("/web/messages", {"text": "hi", "id": str(uuid4())})
    secret = cookie_of(sent).partition("=")[2]
    async with service.database.pool.connection() as connection:
        rows = await (await connection.execute("select sender_id from user_channels union select channel_id from conversations")).fetchall()
    assert ([len(row[0]) for row in rows], any(secret in row[0] for row in rows)) == ([32], False)


async def test_a_visitor_sees_their_own_turns_only(service: Service) -> None:
    mine = await service.post("/web/messages", {"text": "hi", "id": str(uuid4())})
    yours = await service.post("/web/messages", {"text": "hi", "id": str(uuid4())})
    place = mine.headers["Location"]
    for headers in ({}, {"Cookie": cookie_of(yours)}, {"Cookie": "hermes_visitor=guess"}, await service.key("web")):
        assert error(await service.get(place, headers)) == (404, "not_found", None)
        assert error(await service.get(place + "/events", headers)) == (404, "not_found", None)
    assert (await service.get(place, {"Cookie": cookie_of(mine)})).status in {200, 202}


async def test_a_cookie_that_is_none_of_ours_is_replaced(service: Service) -> None:
    sent = await service.post("/web/messages", {"text": "hi", "id": str(uuid4())}, {"Cookie": "hermes_visitor=admin"})
    assert cookie_of(sent) != "hermes_visitor=admin"
    chosen = {"Cookie": f"hermes_visitor={'c' * 43}"}
    sent = await service.post("/web/messages", {"text": "hi", "id": str(uuid4())}, chosen)
    assert cookie_of(sent) != chosen["Cookie"], "Hermes never made it"
    assert (await service.get(sent.headers["Location"], chosen)).status == 404


async def test_a_message_that_is_sent_again_is_said_once(service: Service) -> None:
    body = {"text": "hi", "id": str(uuid4())}
    first = await service.post("/web/messages", body)
    visitor = {"Cookie": cookie_of(first)}
    again = await asyncio.gather(*(service.post("/web/messages", body, visitor) for _ in range(4)))
    assert [one.body["turn_id"] for one in again] == [first.body["turn_id"]] * 4
    assert await service.turns() == 1
    stranger = await service.post("/web/messages", body)
    assert stranger.body["turn_id"] != first.body["turn_id"], "another visitor's ids are another visitor's"


async def test_a_page_of_another_site_is_refused(service: Service) -> None:
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        refused = await service.post("/web/messages", {"text": "hi", "id": str(uuid4())}, {"Origin": origin})
        assert error(refused) == (403, "foreign_origin", None)
    assert await service.turns() == 0


async def test_a_form_cannot_speak_for_a_visitor(service: Service) -> None:
    data = json.dumps({"text": "hi", "id": str(uuid4())}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        async with service.client.post(service.url + "/web/messages", data=data, headers={"Content-Type": kind}) as response:
            assert error(await got(response)) == (415, "not_json", None)
    assert await service.turns() == 0


async def test_the_page_can_be_switched_off(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, chat=False) as service:
        statuses = [(await service.get(path)).status for path in ("/", "/page/chat.js", "/health")]
        posted = await service.post("/web/messages", {"text": "hi", "id": str(uuid4())})
    assert (statuses, posted.status) == ([404, 404, 200], 404)
