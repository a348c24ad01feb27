"""A key names only the users that it may name, and a private conversation belongs to its user, whatever a client calls its channel."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from hermes.config import Secret
from hermes.ports.key_limits import KeyLimits
from hermes.ports.outbox import OutboxState
from hermes.ports.users import UserChannel
from hermes.stores.postgres.database import connection_of
from hermes.stores.seal import new_master_key
from hermes.turn import Platform
from tests.flows.my_data import learn, user_on
from tests.flows.obedient import Obedient, words_in
from tests.flows.service import Got, Service, got, running

SAFE_WORD = "my safe word is marzipan"
ALL_NAMES = KeyLimits(users=["*"])


@pytest.fixture
async def model() -> Obedient:
    return Obedient()


@pytest.fixture
async def service(model: Obedient, database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url, models=model) as service:
        yield service


async def say(service: Service, key: Mapping[str, str], text: str, **about: Any) -> Got:
    return await service.post("/v1/messages", {"text": text, **about}, key)


async def ask(service: Service, query: str, *values: object) -> list[Any]:
    async with service.database.begin() as tx:
        return list(await (await connection_of(tx).execute(query.encode(), values)).fetchall())


async def conversations(service: Service) -> list[tuple[Any, ...]]:
    query = """select channel_id, is_shared, is_private, (select array_agg(distinct sender_id order by sender_id) from inbox
        join user_channels using (user_id) where conversation_id = conversations.id) from conversations order by created_at"""
    return [tuple(row) for row in await ask(service, query)]


async def link(service: Service, name: str, *, account: str = "shop", platform: Platform = Platform.TELEGRAM) -> UUID:
    """Make an API user a person who also writes from a messenger."""
    user = await user_on(service, UserChannel(account, Platform.REST, name))
    async with service.database.begin() as tx:
        await service.hermes.adapters.people.link(tx, user.id, UserChannel("bot", platform, f"phone-{name}"))
    return user.id


def error(answer: Got) -> tuple[int, str, str | None]:
    return answer.status, answer.body["error"]["code"], answer.body["error"]["param"]


async def test_a_private_conversation_is_not_reached_by_another_user_who_names_it_as_a_channel(service: Service, model: Obedient) -> None:
    key = await service.key()
    assert (await say(service, key, SAFE_WORD, user="u1")).status == 200
    model.asked.clear()
    for user in ("u2", "u3"):
        assert (await say(service, key, "what did I say?", user=user, channel="u1")).status == 200
    assert "marzipan" not in words_in(model.asked)
    assert (await say(service, key, "and I?", user="u1", channel="u1")).status == 200
    assert "marzipan" in words_in(model.asked), "the user's own name is their own conversation"
    # A name that others have used first is theirs: the user's own conversation gets another id.
    await say(service, key, "hello", user="u2", channel="later")
    await say(service, key, "private", user="later")
    assert await conversations(service) == [
        ("u1", False, True, ["u1"]),
        ("channel:u1", True, False, ["u2", "u3"]),
        ("later", False, False, ["u2"]),
        ("user:later", False, True, ["later"]),
    ]


async def test_proactive_messages_of_a_private_conversation_are_its_users_alone(service: Service) -> None:
    key = await service.key()
    turn = UUID((await say(service, key, "hello", user="u1")).body["turn_id"])
    adapters = service.hermes.adapters
    async with service.database.begin() as tx:
        asked = await adapters.inbox.message_of(tx, turn)
        assert asked is not None
        await adapters.outbox.put_proactive(tx, asked, "reminder/1", ["take your pills"], OutboxState.SENT)
    queries = ("user=u1", "user=u1&channel=u1", "user=u2&channel=u1", "user=u2", "user=u9&channel=u1")
    news = {query: [each["text"] for each in (await service.get(f"/v1/news?{query}", key)).body["news"]] for query in queries}
    hers = ["take your pills"]
    assert news == dict(zip(queries, (hers, hers, [], [], []), strict=True))


async def test_a_key_names_only_users_that_it_may_name(service: Service) -> None:
    key, acme = await service.key(), await service.key(limits=KeyLimits(users=["acme-*", "Zo\u00eb"]))
    for user in ("u1", "acme-1"):
        assert (await say(service, key, SAFE_WORD, user=user)).status == 200
    mine = (await say(service, key, "hi", user="u1")).body["turn_id"]
    theirs = (await say(service, acme, "hi", user="acme-1")).body["turn_id"]
    chat = {"model": "hermes", "messages": [{"role": "user", "content": "hi"}]}
    refused = [
        await say(service, acme, "hi", user="u1"),
        await say(service, acme, "hi", user="u1", channel="acme-1"),
        await say(service, acme, "hi"),
        await say(service, acme, "hi", user="Acme-1"),
        await say(service, acme, "hi", user="Zoe\u0308"),
        await service.post("/v1/runs", {"input": "hi", "user": "u1"}, acme),
        await service.post("/v1/chat/completions", {**chat, "user": "u1"}, acme),
        await service.get("/v1/users/u1/data", acme),
        await service.get("/v1/news?user=u1", acme),
    ]
    assert [error(answer) for answer in refused] == [(403, "wrong_user", "user")] * len(refused)
    assert (await say(service, acme, "hi", user="Zo\u00eb")).status == 200
    assert (await service.get(f"/v1/messages/{mine}", acme)).status == 404
    assert (await service.get(f"/v1/messages/{theirs}", acme)).status == 200
    assert (await service.get("/v1/users/acme-1/data", acme)).status == 200


async def test_without_patterns_a_key_never_speaks_for_a_person_of_a_messaging_channel(service: Service, model: Obedient) -> None:
    key, of_old = await service.key(), await service.key(limits=ALL_NAMES)
    await say(service, key, SAFE_WORD, user="ada")
    turn = (await say(service, key, "hi", user="ada")).body["turn_id"]
    before = await service.turns()
    await link(service, "ada")
    refused = [
        await say(service, key, "what is my safe word?", user="ada"),
        await say(service, key, "what is my safe word?", user="ada", channel="support"),
        await service.post("/v1/runs", {"input": "hi", "user": "ada"}, key),
        await service.get("/v1/users/ada/data", key),
        await service.get("/v1/news?user=ada", key),
    ]
    assert [error(answer) for answer in refused] == [(403, "wrong_user", "user")] * len(refused)
    assert (await service.get(f"/v1/messages/{turn}", key)).status == 404
    assert await service.turns() == before, "nothing was stored"
    assert (await say(service, of_old, "hi", user="ada")).status == 200
    assert (await service.get("/v1/users/ada/data", of_old)).status == 200


async def test_a_key_for_a_channel_reaches_nothing_private_of_users_that_it_does_not_name(service: Service, model: Obedient) -> None:
    key, support = await service.key(), await service.key(channels=["support", "u7"])
    await say(service, key, "I am vegan", user="u1")
    user = UserChannel("shop", Platform.REST, "u1")
    [fact] = await learn(service, user, "the safe word is marzipan")
    assert (await service.get("/v1/users/u1/data", support)).status == 403
    model.asked.clear()
    assert (await say(service, support, "I am a butcher now, what is my safe word?", user="u1", channel="support")).status == 200
    assert [word for word in ("vegan", "marzipan") if word in words_in(model.asked)] == []
    facts = {each["text"] for each in (await service.get("/v1/users/u1/data", key)).body["facts"]}
    assert {"vegan", fact.text} <= facts
    assert [text for text in facts if "butcher" in text] == []
    # Named, it may; and so may a key from before, whose users are all.
    for about in ({"users": ["u*"]}, {"users": ["*"]}):
        named = await service.key(channels=["office"], limits=KeyLimits(**about))
        model.asked.clear()
        assert (await say(service, named, "what am I?", user="u1", channel="office")).status == 200
        assert "vegan" in words_in(model.asked)


async def test_the_data_of_a_user_are_all_that_they_said_by_whichever_api(service: Service) -> None:
    first, second = await service.key(), await service.key()
    elsewhere = await service.key("other")
    chat = {"model": "hermes", "user": "u1", "messages": [{"role": "user", "content": "hi"}]}
    assert (await say(service, first, "I am vegan", user="u1")).status == 200
    for key in (first, second, elsewhere):
        await service.post("/v1/chat/completions", chat, key)
    shown = (await service.get("/v1/users/u1/data", first)).body
    assert sorted(each["platform"] for each in shown["channels"]) == ["completions", "completions", "rest"]
    assert {each["account"] for each in shown["channels"]} == {"shop"}
    assert (shown["kept"]["messages"], shown["kept"]["conversations"]) == (3, 3)
    async with service.client.delete(f"{service.url}/v1/users/u1/data", headers=first) as response:
        assert (await got(response)).status == 204
    left = await ask(service, "select account_id, platform from user_channels order by account_id")
    assert left == [("other", "completions")]
    assert (await service.get("/v1/users/u1/data", second)).status == 404


async def test_a_request_that_names_no_user_is_that_of_the_default_user(service: Service) -> None:
    key, default = await service.key(), await service.key(limits=KeyLimits(users=["default"]))
    chat = {"model": "hermes", "messages": [{"role": "user", "content": "hi"}]}
    message = {**chat, "max_tokens": 9}
    for path, body in (
        ("/v1/chat/completions", chat),
        ("/anthropic/v1/messages", message),
        ("/v1/chat/completions", {**chat, "user": "default"}),
    ):
        assert (await service.post(path, body, default)).status == 200
        assert (await service.post(path, body, key)).status == 200
    shown = (await service.get("/v1/users/default/data", key)).body
    assert [each["sender_id"].partition("/")[2] for each in shown["channels"]] == ["default", "default"], "one behind each key"
    # What a process of the version before wrote for such a user is found under the same name.
    await ask(service, "update user_channels set sender_id = left(sender_id, 37) where sender_id like %s returning 1", "%/default")
    assert len((await service.get("/v1/users/default/data", key)).body["channels"]) == 2
    async with service.client.delete(f"{service.url}/v1/users/default/data", headers=key) as response:
        assert response.status == 204
    assert await ask(service, "select sender_id from user_channels where platform = 'completions'") == []


async def test_what_one_user_was_answered_no_other_user_of_the_key_can_name(service: Service) -> None:
    async def respond(items: Any, user: str, **about: Any) -> Got:
        return await service.post("/v1/responses", {"model": "hermes", "input": items, "user": user, **about}, key)

    key = await service.key(limits=ALL_NAMES)
    made = (await respond(SAFE_WORD, "amy")).body
    path, question = f"/v1/responses/{made['id']}", {"role": "user", "content": "what was that?"}
    [heard] = (await service.get(f"{path}/input_items", key)).body["data"]
    for named in (made["output"][0]["id"], heard["id"]):
        reference = [{"type": "item_reference", "id": named}, question]
        assert (await respond(reference, "ben")).body["error"]["code"] == "item_not_found"
        assert (await respond(reference, "amy")).status == 200
    assert (await respond("go on", "ben", previous_response_id=made["id"])).body["error"]["code"] == "previous_response_not_found"
    await ask(service, "update api_keys set users = '{acme-*}' returning 1")
    async with asyncio.timeout(15):
        while (await service.get(path, key)).status != 404:  # noqa: ASYNC110  # a key is remembered for five seconds
            await asyncio.sleep(0.2)
    assert (await service.get(f"{path}/input_items", key)).status == 404
    async with service.client.delete(service.url + path, headers=key) as response:
        assert response.status == 404


async def test_a_stored_response_is_gone_with_its_user_in_every_process(database_url: str, redis_url: str) -> None:
    house: dict[str, Any] = {"has_worker": False, "more": {"master_keys": (Secret(new_master_key()),)}}
    async with running(database_url, redis_url, **house) as one, running(database_url, redis_url, **house) as two:
        key, body = await one.key(), {"model": "hermes", "input": SAFE_WORD, "user": "amy"}
        path = f"/v1/responses/{(await one.post('/v1/responses', body, key)).body['id']}"
        assert [(await each.get(path, key)).status for each in (one, two)] == [200, 200]
        async with one.client.delete(f"{one.url}/v1/users/amy/data", headers=key) as response:
            assert response.status == 204
        assert [(await each.get(path, key)).status for each in (one, two)] == [404, 404]
