"""Responses, Anthropic's messages and embeddings from outside: a real server, real stores, strict vendors behind it."""

import base64
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hermes.stores.postgres.database import connection_of
from tests.fakes.vendors import ToolCall
from tests.flows.service import Got
from tests.flows.test_completions import House, open_house

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
BLOCK_TOOL = {"name": "look", "input_schema": TOOL["parameters"]}
LOOK = ToolCall("look", '{"at":"Ubud"}', "c1")
"""Written without spaces, as no JSON library of a client writes it by itself."""


@pytest.fixture
async def house(database_url: str, redis_url: str) -> AsyncIterator[House]:
    async with open_house(database_url, redis_url) as house:
        yield house


class Apis:
    """The three APIs as a client calls them."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.key = house.key

    async def respond(self, items: Any, **body: Any) -> Got:
        return await self.house.service.post("/v1/responses", {"model": "small", "input": items, **body}, self.key)

    async def message(self, turns: list[Any], path: str = "", **body: Any) -> Got:
        whole = {"model": "small", "max_tokens": 50, "messages": turns, **body}
        return await self.house.service.post(f"/anthropic/v1/messages{path}", whole, {"x-api-key": self.key["Authorization"][7:]})

    async def embed(self, given: Any, **body: Any) -> Got:
        return await self.house.service.post("/v1/embeddings", {"model": "hermes", "input": given, **body}, self.key)


async def test_one_chat_goes_on_in_all_three_apis(house: House) -> None:
    apis, say = Apis(house), house.vendors.vllm.say
    say("Looking.", tool_calls=[LOOK], reasoning="Where?")
    first = (await apis.message([{"role": "user", "content": "Hi"}], tools=[BLOCK_TOOL], thinking={"type": "adaptive"})).body
    say("Sunny.")
    items = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Looking."}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"Ubud"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
    ]
    second = (await apis.respond(items, tools=[TOOL])).body
    say("Bye.")
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"Ubud"}'}}
    chat = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Looking.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sun"},
        {"role": "assistant", "content": "Sunny."},
        {"role": "user", "content": "Thanks"},
    ]
    third = (await house.ask(chat)).body
    say("And again.")
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sun"}]},
        {"role": "assistant", "content": "Sunny."},
        {"role": "user", "content": [{"type": "text", "text": "Thanks", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": "Bye."},
        {"role": "user", "content": "More?"},
    ]
    fourth = (await apis.message(turns)).body
    say("Still.")
    fifth = (await apis.respond("Sure?", previous_response_id=second["id"])).body
    sessions = {body["hermes"]["session"] for body in (first, second, third, fourth, fifth)}
    graph = await house.chat()
    assert sessions == {str((await house.calls())[0][-1])}
    contexts = [([message["role"] for message in response.context], response.message.get("content")) for response in graph.responses()]
    loop = ["user", "assistant", "tool"]
    assert sorted(contexts, key=lambda found: (len(found[0]), found[1])) == [
        (["user"], "Looking."),
        (loop, "Sunny."),
        ([*loop, "assistant", "user"], "Bye."),
        ([*loop, "assistant", "user"], "Still."),
        ([*loop, "assistant", "user", "assistant", "user"], "And again."),
    ]
    # Every model read its own words, although Anthropic's API shows arguments as objects.
    quoted = [message for request in house.vendors.vllm.requests[1:] for message in request.body["messages"] if message.get("tool_calls")]
    assert [message["tool_calls"][0]["function"]["arguments"] for message in quoted] == ['{"at":"Ubud"}'] * 4
    assert {
        response.message["tool_calls"][0]["function"]["arguments"] for response in graph.responses() if response.message.get("tool_calls")
    } == {'{"at":"Ubud"}'}


async def test_a_response_is_kept_as_it_was_answered(house: House) -> None:
    apis, say = Apis(house), house.vendors.vllm.say
    say("Looking.", tool_calls=[LOOK])
    made = (await apis.respond("Hi", tools=[TOOL], instructions="Be brief.", metadata={"a": "b"}, temperature=0.5)).body
    hermes = made.pop("hermes")
    path = f"/v1/responses/{made['id']}"
    assert (await house.service.get(path, apis.key)).body == made
    listed = (await house.service.get(f"{path}/input_items?order=asc", apis.key)).body
    assert [(item["role"], item["content"]) for item in listed["data"]] == [("user", [{"type": "input_text", "text": "Hi"}])]
    say("Kept apart.")
    items = [{"type": "item_reference", "id": item["id"]} for item in made["output"]]
    output = {"type": "function_call_output", "call_id": "c1", "output": "sun"}
    other = (await apis.respond([{"role": "user", "content": "Hi"}, *items, output], instructions="Be brief.", tools=[TOOL])).body
    assert other["hermes"]["session"] == hermes["session"]
    strange = await house.service.key()
    unkept = (await apis.respond("Hi", store=False)).body
    for name, key in ((made["id"], strange), (unkept["id"], apis.key), ("resp_1", apis.key)):
        got = await house.service.get(f"/v1/responses/{name}", key)
        assert (got.status, got.body["error"]["type"]) == (404, "invalid_request_error")
    got = await house.service.post(
        "/v1/responses", {"model": "small", "input": "Hi", "previous_response_id": made["id"], "user": "bob"}, apis.key
    )
    assert (got.status, got.body["error"]["code"]) == (400, "previous_response_not_found")
    async with house.service.client.delete(house.service.url + path, headers=apis.key) as response:
        assert await response.json() == {"id": made["id"], "object": "response", "deleted": True}
    assert (await house.service.get(path, apis.key)).status == 404
    assert len(await house.calls()) == 3  # deleted or not kept, each call stays recorded
    got = await house.service.get("/v1/responses", {**apis.key, "Connection": "Upgrade", "Upgrade": "websocket"})
    assert (got.status, got.body["error"]["code"]) == (426, "upgrade_required")


async def test_what_is_refused_has_the_shape_of_its_api(house: House) -> None:
    apis = Apis(house)
    for body, param in (
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tool_choice": {"type": "web_search"}, "tools": [TOOL, {"type": "web_search"}]}, "tool_choice"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"input": [{"type": "strange"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input[0].content[0]"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"input": [{"type": "item_reference", "id": "msg_x_1"}]}, "input"),
    ):
        got = await house.service.post("/v1/responses", {"model": "small", "input": "Hi", **body}, apis.key)
        assert (got.status, got.body["error"]["type"], got.body["error"]["param"]) == (400, "invalid_request_error", param), body
    for turns, more, status, kind in (
        ([], {}, 400, "invalid_request_error"),
        ([{"role": "tool", "content": "x"}], {}, 400, "invalid_request_error"),
        ([{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}], {}, 400, "invalid_request_error"),
        (
            [{"role": "user", "content": "Hi"}],
            {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            400,
            "invalid_request_error",
        ),
        ([{"role": "user", "content": "Hi"}], {"tool_choice": {"type": "tool", "name": "x"}}, 400, "invalid_request_error"),
        ([{"role": "user", "content": "Hi"}], {"max_tokens": None}, 400, "invalid_request_error"),
        ([{"role": "user", "content": "Hi"}], {"model": "large"}, 404, "not_found_error"),
    ):
        got = await apis.message(turns, **more)
        assert (got.status, got.body["type"], got.body["error"]["type"]) == (status, "error", kind), (turns, more)
        assert got.body["request_id"] == got.headers["request-id"]
    house.vendors.vllm.fail(500)
    house.vendors.openai.fail(500)
    got = await apis.message([{"role": "user", "content": "Hi"}])
    assert (got.status, got.body["error"]["type"]) == (529, "overloaded_error")
    got = await house.service.post("/anthropic/v1/messages", {}, {"x-api-key": "hk_wrong"})
    assert (got.status, got.body["error"]["type"]) == (401, "authentication_error")
    assert (await house.service.get("/anthropic")).status == 200
    counted = await apis.message([{"role": "user", "content": "Hi there"}], "/count_tokens", max_tokens=None)
    assert counted.body == {"input_tokens": 11}


async def test_embeddings_are_calls_and_come_in_both_encodings(house: House) -> None:
    apis = Apis(house)
    plain, packed = await apis.embed(["red car", "blue sky"]), await apis.embed(["red car", "blue sky"], encoding_format="base64")
    vectors = [row["embedding"] for row in plain.body["data"]]
    size = len(vectors[0])
    assert [list(struct.unpack(f"<{size}f", base64.b64decode(row["embedding"]))) for row in packed.body["data"]] == vectors
    assert [row["index"] for row in plain.body["data"]] == [0, 1]
    assert plain.body["usage"]["prompt_tokens"] == plain.body["usage"]["total_tokens"] > 0
    assert (await apis.embed("red car", dimensions=size)).body["data"][0]["embedding"] == pytest.approx(vectors[0], abs=1e-6)
    for given, more, param in (
        ("", {}, "input[0]"),
        ([], {}, "input"),
        ([1, -1], {}, "input[0]"),
        ("a", {"dimensions": 7}, "dimensions"),
        ("a", {"encoding_format": "hex"}, "encoding_format"),
    ):
        got = await apis.embed(given, **more)
        assert (got.status, got.body["error"]["param"]) == (400, param), (given, more)
    got = await apis.embed([10**9])
    assert (got.status, got.body["error"]["code"]) == (400, "invalid_request")
    got = await apis.embed("a", model="text-embedding-3-small")
    assert (got.status, got.body["error"]["code"]) == (404, "model_not_found")
    async with house.service.database.begin() as tx:
        query = "select outcome, purpose, backend, micro_usd, session_id from calls order by created_at, id"
        rows = await (await connection_of(tx).execute(query)).fetchall()
    assert rows == [("answered", "embeddings", "embeddings", 0, None)] * 3 + [("failed", "embeddings", None, 0, None)]
