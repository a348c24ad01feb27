"""Chat completions from outside: a real server, real stores, strict vendors behind it."""

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from hermes.config import BackendKind, BackendSettings, CompletionsSettings, LlmSettings, ModelSettings, PriceSettings, Secret, TierSettings
from hermes.graph import MessageGraph, Response
from hermes.ports.backends import ModelRequest
from hermes.ports.models import Caller, CallSource
from hermes.stores.postgres.database import connection_of
from hermes.web.completions import CHAT_PATH
from hermes.web.server import create_web, web_services_from
from tests.fakes.vendors import Cut, ToolCall, Vendors, vendors
from tests.flows.service import Got, Service, running

PRICE = (PriceSettings(input=1.0, output=5.0),)
SYSTEM = {"role": "system", "content": "Be brief."}
TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


class House:
    """A running Hermes, the vendors behind it, and a key to it."""

    def __init__(self, service: Service, fakes: Vendors, key: dict[str, str]) -> None:
        self.service, self.vendors, self.key = service, fakes, key

    async def ask(self, messages: list[Any], headers: dict[str, str] | None = None, **body: Any) -> Got:
        whole = {"model": "small", "messages": messages, **body}
        return await self.service.post("/v1/chat/completions", whole, {**self.key, **(headers or {})})

    async def say(self, messages: list[Any], text: str = "", headers: dict[str, str] | None = None, **body: Any) -> dict[str, Any]:
        """Ask, be answered with this text, and return the message as the client's library would hand it on, with its nulls."""
        if text:
            self.vendors.vllm.say(text)
        got = await self.ask(messages, headers, **body)
        assert got.status == 200, got.body
        message: dict[str, Any] = got.body["choices"][0]["message"]
        return {**message, "function_call": None, "audio": None, "annotations": []}

    async def stream(self, messages: list[Any], **body: Any) -> list[Any]:
        """The data of all events."""
        whole = {"model": "small", "messages": messages, "stream": True, **body}
        async with self.service.client.post(f"{self.service.url}/v1/chat/completions", json=whole, headers=self.key) as response:
            assert response.status == 200, await response.text()
            assert response.content_type == "text/event-stream"
            text = await response.text()
        blocks = [block.removeprefix("data: ") for block in text.split("\n\n") if block]
        return [block if block == "[DONE]" else json.loads(block) for block in blocks]

    async def graphs(self) -> dict[UUID, MessageGraph]:
        """All chats, in the order of their beginning, after everything is written down."""
        await self.service.hermes.gateway.wait_settled()
        async with self.service.database.begin() as tx:
            rows = await (await connection_of(tx).execute("select id from sessions order by number")).fetchall()
            return {row[0]: await self.service.hermes.adapters.graphs.load(tx, row[0]) for row in rows}

    async def chat(self) -> MessageGraph:
        """The only chat there is."""
        [graph] = (await self.graphs()).values()
        return graph

    async def users(self) -> list[tuple[Any, ...]]:
        async with self.service.database.begin() as tx:
            return await (await connection_of(tx).execute("select id from users")).fetchall()

    async def calls(self) -> list[tuple[Any, ...]]:
        await self.service.hermes.gateway.wait_settled()
        async with self.service.database.begin() as tx:
            query = "select outcome, source, model, tokens_in, tokens_out, micro_usd, session_id from calls order by created_at, id"
            return await (await connection_of(tx).execute(query)).fetchall()


def texts(messages: Any) -> list[str]:
    return [message.get("content") or "" for message in messages]


def sampled(graph: MessageGraph) -> list[tuple[list[str], str]]:
    """Every response with the context it saw, as texts."""
    return [(texts(response.context), response.message.get("content") or "") for response in graph.responses()]


def error(got: Got) -> tuple[int, str, str, str | None]:
    assert list(got.body) == ["error"]
    assert sorted(got.body["error"]) == ["code", "message", "param", "type"]
    problem = got.body["error"]
    return got.status, problem["type"], problem["code"], problem["param"]


@pytest.fixture
async def house(database_url: str, redis_url: str) -> AsyncIterator[House]:
    async with open_house(database_url, redis_url) as house:
        yield house


@asynccontextmanager
async def open_house(database_url: str, redis_url: str, *, slots: int | None = None, **settings: Any) -> AsyncIterator[House]:
    async with vendors() as fakes:
        fakes.vllm.models[:] = ["small-1"]
        fakes.openai.models[:] = ["spare-1"]
        more = {
            "backends": {
                "own": BackendSettings(kind=BackendKind.VLLM, base_url=fakes.vllm.url, api_key=Secret(fakes.vllm.key), slots=slots),
                "spare": BackendSettings(kind=BackendKind.OPENAI, base_url=fakes.openai.url, api_key=Secret(fakes.openai.key)),
            },
            "models": {
                "small": ModelSettings(backend="own", id="small-1", prices=PRICE),
                "spare": ModelSettings(backend="spare", id="spare-1", prices=PRICE),
            },
            "tiers": {
                "agents": TierSettings(chain=("small", "spare"), day_tokens=1_000_000),
                "tiny": TierSettings(chain=("small",), day_tokens=2_500),
                "small": TierSettings(chain=("small",), day_tokens=1_000_000),
                "spare": TierSettings(chain=("spare",), day_tokens=1_000_000),
            },
            "completions": CompletionsSettings(tier="agents", max_choices=4, deadline_s=5.0),
            **settings,
        }
        async with running(database_url, redis_url, has_worker=False, more=more) as service:
            yield House(service, fakes, await service.key(trains=True))


async def test_an_answer_has_the_shape_that_openais_clients_read(house: House) -> None:
    house.vendors.vllm.say("hi there", tokens_in=12, tokens_out=2)
    got = await house.ask([SYSTEM, user("hello")], temperature=0.5, user="alice")
    body = got.body
    session = body["hermes"]["session"]
    [(outcome, source, model, tokens_in, tokens_out, micro_usd, session_id)] = await house.calls()
    assert body == {
        "id": body["id"],
        "object": "chat.completion",
        "created": body["created"],
        "model": "small-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hi there", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 0}},
        "hermes": {"session": session, "backend": "own", "attempts": ["answered"], "cost_usd": 22 / 1_000_000},
    }
    assert (outcome, source, model, tokens_in, tokens_out, micro_usd, str(session_id)) == (
        "answered",
        "completions",
        "small-1",
        12,
        2,
        22,
        session,
    )
    assert got.headers["X-Hermes-Session"] == session
    sent = house.vendors.vllm.requests[-1].body
    assert (sent["messages"], sent["temperature"], sent["model"]) == ([SYSTEM, user("hello")], 0.5, "small-1")
    assert sent["user"] != "alice", "the vendor is told a name that tells it nothing"


async def test_what_was_sampled_is_recorded_with_everything_the_server_gave(house: House) -> None:
    house.vendors.vllm.say("hi", tokens_in=3, tokens_out=1, prompt_token_ids=[1, 2, 3], token_ids=[9], logprobs=[-0.5])
    await house.ask([user("hello")], temperature=1.0, seed=7, max_tokens=50, tools=[TOOL], metadata={"policy_version": "step-12"})
    [response] = (await house.chat()).responses()
    call = response.call
    assert call is not None
    assert (list(call.prompt_token_ids or ()), list(call.token_ids or ()), list(call.logprobs or ())) == ([1, 2, 3], [9], [-0.5])
    assert (call.model, call.policy_version, call.finish_reason) == ("small-1", "step-12", "stop")
    assert call.sampling == {"temperature": 1.0, "seed": 7, "max_tokens": 50}
    assert call.tools == [TOOL]
    assert call.usage == {"prompt_tokens": 3, "completion_tokens": 1}
    assert call.tokenizer == "small-1"
    assert call.extra is not None
    assert call.extra["micro_usd"] == 8
    assert call.request_digest


async def test_a_call_names_the_key_that_made_it_also_if_it_is_refused(house: House) -> None:
    assert (await house.ask([user("hi")])).status == 200
    house.key = await house.service.key(tier="tiny")
    house.vendors.vllm.say("x", tokens_in=1_000, tokens_out=400)
    for status in (200, 429):
        assert (await house.ask([user("hi")])).status == status
        await house.service.hermes.gateway.wait_settled()
    async with house.service.database.begin() as tx:
        query = """select purpose, platform, outcome, error, api_keys.tier from calls join api_keys on api_keys.id = api_key_id
            order by calls.created_at"""
        rows = await (await connection_of(tx).execute(query)).fetchall()
    assert rows == [
        ("completions", "completions", "answered", None, None),
        ("completions", "completions", "answered", None, "tiny"),
        ("completions", "completions", "refused", "BudgetSpent: day", "tiny"),
    ]


async def test_a_chat_that_goes_on_is_one_graph_without_a_version(house: House) -> None:
    messages: list[Any] = [SYSTEM]
    for turn in range(5):
        messages.append(user(f"question {turn}"))
        messages.append(await house.say(messages, f"answer {turn}"))
    graph = await house.chat()
    assert len(graph.versions) == 1
    assert texts(graph) == texts(messages)
    assert sampled(graph) == [(texts(messages[: 2 + 2 * turn]), f"answer {turn}") for turn in range(5)]
    assert graph.verify()


async def test_tool_calls_pass_through_and_come_back(house: House) -> None:
    house.vendors.vllm.say("", tool_calls=[ToolCall("look", {"at": "sea"}, "call_1"), ToolCall("look", "{}", "call_2")])
    first = await house.ask([user("look around")], tools=[TOOL], tool_choice="auto")
    choice = first.body["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert [call["function"]["arguments"] for call in choice["message"]["tool_calls"]] == ['{"at": "sea"}', "{}"]
    echo = {**choice["message"], "content": None}
    results = [{"role": "tool", "tool_call_id": f"call_{at}", "content": f"seen {at}"} for at in (1, 2)]
    await house.say([user("look around"), echo, *results], "done", tools=[TOOL])
    graph = await house.chat()
    assert [message["role"] for message in graph] == ["user", "assistant", "tool", "tool", "assistant"]
    assert len(graph.versions) == 1


async def test_an_edited_question_becomes_an_edit_and_a_shorter_chat_a_compaction(house: House) -> None:
    one = await house.say([SYSTEM, user("one")], "one is number one")
    two = await house.say([SYSTEM, user("one"), one, user("two")], "two is number two")
    await house.say([SYSTEM, user("ONE"), one, user("two"), two, user("three")], "three is it")
    await house.say([SYSTEM, user("(summary)"), two, user("four")], "four it is")
    graph = await house.chat()
    assert [edge.kind for edge in graph.edges() if edge.kind != "sequential"] == ["edit", "compaction"]
    assert sampled(graph) == [
        (["Be brief.", "one"], "one is number one"),
        (["Be brief.", "one", "one is number one", "two"], "two is number two"),
        (["Be brief.", "ONE", "one is number one", "two", "two is number two", "three"], "three is it"),
        (["Be brief.", "(summary)", "two is number two", "four"], "four it is"),
    ]
    assert graph.verify()


async def test_the_same_request_again_is_another_sample_in_the_same_context(house: House) -> None:
    one = await house.say([user("one")], "1")
    for text in ("2", "2", "2 b"):
        await house.say([user("one"), one, user("two")], text)
    graph = await house.chat()
    assert sorted(sampled(graph)) == sorted([(["one"], "1"), *(((["one", "1", "two"]), text) for text in ("2", "2", "2 b"))])
    assert len({response.sample_id for response in graph.responses()}) == 4


async def test_a_client_may_go_back_and_go_on_from_any_answer(house: House) -> None:
    one = await house.say([user("one")], "1")
    two = await house.say([user("one"), one, user("two")], "2")
    other = await house.say([user("one"), one, user("other")], "o")
    await house.say([user("one"), one, user("two"), two, user("three")], "3")
    await house.say([user("one"), one, user("other"), other, user("more")], "m")
    graph = await house.chat()
    assert sorted(sampled(graph)) == sorted(
        [
            (["one"], "1"),
            (["one", "1", "two"], "2"),
            (["one", "1", "other"], "o"),
            (["one", "1", "two", "2", "three"], "3"),
            (["one", "1", "other", "o", "more"], "m"),
        ]
    )
    assert graph.verify()


async def test_interleaved_subagents_are_chats_of_their_own(house: House) -> None:
    main = await house.say([SYSTEM, user("plan")], "a plan")
    subs = {}
    for name in ("left", "right"):
        subs[name] = await house.say([{"role": "system", "content": name}, user("go")], f"{name} went")
    for name in ("left", "right"):
        await house.say([{"role": "system", "content": name}, user("go"), subs[name], user("on")], f"{name} on")
    await house.say([SYSTEM, user("plan"), main, user("left went")], "all done")
    assert [texts(graph) for graph in (await house.graphs()).values()] == [
        ["Be brief.", "plan", "a plan", "left went", "all done"],
        ["left", "go", "left went", "on", "left on"],
        ["right", "go", "right went", "on", "right on"],
    ]


async def test_chats_that_answer_alike_stay_apart_where_their_past_tells_them_apart(house: House) -> None:
    first = await house.say([user("a?")], "ok")
    second = await house.say([user("b?")], "ok")
    await house.say([user("a?"), first, user("more")], "more of a")
    await house.say([user("b?"), second, user("more")], "more of b")
    assert sorted(texts(graph) for graph in (await house.graphs()).values()) == [
        ["a?", "ok", "more", "more of a"],
        ["b?", "ok", "more", "more of b"],
    ]


async def test_two_users_behind_one_key_and_two_keys_never_share_a_chat(house: House) -> None:
    answer = await house.say([user("hi")], "hello", user="alice")
    again = [user("hi"), answer, user("more")]
    await house.say(again, "to bob", user="bob")
    await house.say(again, "to nobody")
    other_key = await house.service.key()
    got = await house.service.post("/v1/chat/completions", {"model": "small", "messages": again, "user": "alice"}, other_key)
    assert got.status == 200
    await house.say(again, "to alice", user="alice")
    graphs = list((await house.graphs()).values())
    assert len(graphs) == 4
    assert texts(graphs[0]) == ["hi", "hello", "more", "to alice"]
    assert [len(list(graph.responses())) for graph in graphs] == [2, 1, 1, 1], "an echo of somebody else's answer is only context"


async def test_a_name_of_the_clients_own_overrides_what_its_messages_say(house: House) -> None:
    named = {"X-Hermes-Session": "game-7"}
    await house.say([user("one")], "1", named)
    await house.say([user("quite another thing")], "2", named)
    third = await house.ask([user("third")])
    await house.say([user("fourth")], "4", {"X-Hermes-Session": third.headers["X-Hermes-Session"]})
    first, second = (await house.graphs()).values()
    assert sampled(first) == [(["one"], "1"), (["quite another thing"], "2")]
    assert sampled(second) == [(["third"], "ok"), (["fourth"], "4")]
    assert error(await house.ask([user("x")], {"X-Hermes-Session": "x" * 256}))[0:3] == (400, "invalid_request_error", "invalid_session")


async def test_several_answers_are_several_samples_in_one_context(house: House) -> None:
    for text in ("a", "b", "c"):
        house.vendors.vllm.say(text, tokens_in=10, tokens_out=1)
    got = await house.ask([user("pick")], n=3)
    said = {choice["message"]["content"]: choice["index"] for choice in got.body["choices"]}
    assert (sorted(said), sorted(said.values())) == (["a", "b", "c"], [0, 1, 2])
    assert got.body["usage"]["prompt_tokens"] == 30
    echo = next(choice["message"] for choice in got.body["choices"] if choice["message"]["content"] == "c")
    await house.say([user("pick"), echo, user("why?")], "because")
    graph = await house.chat()
    assert sorted(sampled(graph)) == sorted([(["pick"], "a"), (["pick"], "b"), (["pick"], "c"), (["pick", "c", "why?"], "because")])
    assert graph.verify()
    assert error(await house.ask([user("x")], n=5)) == (400, "invalid_request_error", "invalid_request", "n")


async def test_a_stream_has_chunks_a_finish_reason_the_usage_and_an_end(house: House) -> None:
    house.vendors.vllm.say("one two three", reasoning="hm", tokens_in=9, tokens_out=4)
    *chunks, usage, done = await house.stream([user("count")], stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in [*chunks, usage]}) == 1
    assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content") or "" for delta in deltas) == "one two three"
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "hm"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 13)
    assert sampled(await house.chat()) == [(["count"], "one two three")]
    whole = await house.stream([user("count")])
    assert "usage" not in whole[0]
    assert whole[-1] == "[DONE]"


async def test_streamed_tool_calls_and_several_streams_at_once(house: House) -> None:
    house.vendors.vllm.say("", tool_calls=[ToolCall("look", {"at": "sea"}, "call_1")])
    *chunks, _ = await house.stream([user("look")], tools=[TOOL])
    pieces = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert (pieces[0]["id"], pieces[0]["function"]["name"], pieces[0]["type"]) == ("call_1", "look", "function")
    assert "".join(piece["function"]["arguments"] for piece in pieces) == '{"at": "sea"}'
    house.vendors.vllm.say("left one")
    house.vendors.vllm.say("right two")
    chunks = [chunk for chunk in await house.stream([user("both")], n=2) if chunk != "[DONE]"]
    said = ["", ""]
    for chunk in chunks:
        said[chunk["choices"][0]["index"]] += chunk["choices"][0]["delta"].get("content") or ""
    assert sorted(said) == ["left one", "right two"]
    assert len(await house.graphs()) == 2


async def test_a_stream_that_is_cut_ends_with_an_error_and_what_came_is_a_sample(house: House) -> None:
    house.vendors.vllm.say("one two three", cut=Cut.RESET, cut_after=2)
    *chunks, last = await house.stream([user("count")])
    assert (last["error"]["type"], last["error"]["code"]) == ("server_error", "cut_short")
    said = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    assert said == "one two"
    [response] = (await house.chat()).responses()
    assert (response.message["content"], response.call.finish_reason if response.call else None) == ("one two", "cut_short")
    [(outcome, *_)] = await house.calls()
    assert outcome == "cut_short"


async def test_a_client_that_leaves_pays_for_what_was_said_and_that_is_recorded(house: House) -> None:
    house.vendors.vllm.say("one two three four five six", drip_s=0.2)
    body = {"model": "small", "messages": [user("count")], "stream": True}
    async with house.service.client.post(f"{house.service.url}/v1/chat/completions", json=body, headers=house.key) as response:
        async for line in response.content:
            if b'"content":"one"' in line:
                break
        response.close()
    async with asyncio.timeout(5):
        while not (rows := await house.calls()):  # noqa: ASYNC110  # what is looked at is behind a socket
            await asyncio.sleep(0.05)
    [(outcome, _, model, _, tokens_out, micro_usd, session_id)] = rows
    assert (outcome, model) == ("cancelled", "small-1")
    assert tokens_out > 0
    assert micro_usd > 0
    [(known, graph)] = (await house.graphs()).items()
    assert known == session_id
    [response_] = graph.responses()
    assert response_.message["content"].startswith("one")
    assert response_.call is not None
    assert response_.call.finish_reason == "cancelled"


async def test_reasoning_is_recorded_and_what_the_client_shows_of_it_is_what_was_sent(house: House) -> None:
    def think(text: str, reasoning: str) -> None:
        house.vendors.vllm.say(text, reasoning=reasoning)

    think("1", "hm one")
    one = await house.say([user("one")])
    assert one["reasoning_content"] == "hm one"
    shown = [user("one"), one, user("two")]
    hidden = [user("one"), {"role": "assistant", "content": "1"}, user("two")]
    think("2", "hm two")
    await house.say(shown)
    assert house.vendors.vllm.requests[-1].body["messages"][1]["reasoning"] == "hm one"
    think("2 b", "hm other")
    await house.say(hidden)
    assert "reasoning" not in house.vendors.vllm.requests[-1].body["messages"][1]
    graph = await house.chat()
    found = {response.message["content"]: response for response in graph.responses()}
    assert [found[text].overlay.keep_reasoning for text in ("2", "2 b")] == ["all", "none"]
    assert [found[text].context[1].get("reasoning") for text in ("2", "2 b")] == ["hm one", None]
    assert graph.verify()


async def test_reasoning_of_the_clients_own_making_is_context(house: House) -> None:
    house.vendors.vllm.say("1", reasoning="hm one")
    await house.say([user("one")])
    forged = {"role": "assistant", "content": "1", "reasoning_content": "something else"}
    await house.say([user("one"), forged, user("two")], "2")
    graph = await house.chat()
    by_text: dict[str, Response] = {response.message["content"]: response for response in graph.responses()}
    assert sorted(by_text) == ["1", "2"]
    assert by_text["2"].context[1]["reasoning"] == "something else"
    assert by_text["1"].message["reasoning"] == "hm one"


async def test_failover_happens_before_the_first_word_and_the_answer_says_who_gave_it(house: House) -> None:
    house.vendors.vllm.fail(529)
    house.vendors.openai.say("from the spare")
    got = await house.ask([user("hi")])
    assert (got.body["model"], got.body["hermes"]["attempts"]) == ("spare-1", ["Overloaded", "answered"])
    house.vendors.vllm.fail(503)
    house.vendors.openai.say("again")
    first, *_ = await house.stream([user("hi")])
    assert first["model"] == "spare-1"


@pytest.mark.parametrize(
    ("broken", "status", "code"),
    [
        ({"status": 400}, 400, "invalid_request"),
        ({"status": 401}, 502, "upstream_refused_us"),
        ({"status": 429, "headers": {"Retry-After": "7"}}, 429, "rate_limit_exceeded"),
        ({"status": 500}, 503, "upstream_overloaded"),
    ],
)
async def test_what_is_wrong_is_said_in_openais_words(house: House, broken: dict[str, Any], status: int, code: str) -> None:
    for vendor in (house.vendors.vllm, house.vendors.openai):
        vendor.fail(**broken)
    got = await house.ask([user("hi")])
    assert (got.status, got.body["error"]["code"]) == (status, code)
    assert got.headers.get("Retry-After") == {429: "7", 503: "1"}.get(status)
    assert len(await house.graphs()) == 0, "nothing was said, so there is no chat"


async def test_a_used_up_budget_is_a_429_that_no_client_repeats(house: House) -> None:
    house.key = await house.service.key(tier="tiny")
    house.vendors.vllm.say("x", tokens_in=1_000, tokens_out=400)
    assert (await house.ask([user("hi")])).status == 200
    got = await house.ask([user("hi")])
    assert error(got) == (429, "insufficient_quota", "insufficient_quota", None)
    assert got.headers["x-should-retry"] == "false"
    assert 0 < int(got.headers["Retry-After"]) <= 86_400


async def test_the_kill_switch_stops_completions(house: House) -> None:
    await house.service.hermes.spend.kill_switch("a test", "test")
    assert error(await house.ask([user("hi")])) == (503, "server_error", "paused", None)
    await house.service.hermes.spend.release("test")
    assert (await house.ask([user("hi")])).status == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "pope", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [user("hi")], "n": 0}, "n"),
        ({"messages": [user("hi")], "max_tokens": "many"}, "max_tokens"),
        ({"messages": [user("hi")], "tools": [{"type": "web"}]}, "tools[0]"),
        ({"messages": [user("hi")], "stream": "yes"}, "stream"),
        ({"messages": [user("hi")], "functions": [{}]}, "functions"),
        ({"messages": [user("hi")], "user": 7}, "user"),
        ({"messages": [user("hi")], "metadata": {"a": 1}}, "metadata"),
        ({"messages": [user("hi")], "model": None}, "model"),
    ],
)
async def test_a_bad_request_names_its_field(house: House, body: dict[str, Any], param: str) -> None:
    got = await house.service.post("/v1/chat/completions", {"model": "small", **body}, house.key)
    assert (error(got)[0], error(got)[3]) == (400, param)
    assert house.vendors.vllm.requests == []


async def test_keys_models_and_bodies_are_looked_at(house: House) -> None:
    nobody = await house.service.post("/v1/chat/completions", {"model": "small", "messages": [user("hi")]})
    assert error(nobody) == (401, "authentication_error", "invalid_api_key", None)
    assert error(await house.ask([user("hi")], model="smal")) == (404, "invalid_request_error", "model_not_found", "model")
    listed = await house.service.get("/v1/models", house.key)
    assert [model["id"] for model in listed.body["data"]] == ["hermes", "small", "spare"]
    assert (await house.service.get("/v1/models/small", house.key)).body["id"] == "small"
    assert (await house.service.get("/v1/models/large", house.key)).status == 404
    assert (await house.service.get("/v1/models")).status == 401
    for raw in (b"{", b"[1]", b'{"model": "small", "messages": [{"role": "user", "content": NaN}]}', b"\xff"):
        async with house.service.client.post(f"{house.service.url}/v1/chat/completions", data=raw, headers=house.key) as response:
            assert response.status == 400


async def test_a_vendors_own_name_and_the_whole_chain_may_be_asked_for(house: House) -> None:
    house.vendors.openai.say("spare")
    assert (await house.ask([user("hi")], model="spare-1")).body["model"] == "spare-1"
    assert (await house.ask([user("hi")], model="hermes")).body["model"] == "small-1"


async def test_many_requests_at_once_in_one_chat_are_all_recorded(house: House) -> None:
    one = await house.say([user("one")], "1")
    for at in range(20):
        house.vendors.vllm.say(f"answer {at}")
    await asyncio.gather(*(house.ask([user("one"), one, user(f"branch {at}")]) for at in range(20)))
    graph = await house.chat()
    assert len(list(graph.responses())) == 21
    assert sorted(context[2] for context, _ in sampled(graph) if len(context) > 1) == sorted(f"branch {at}" for at in range(20))
    assert graph.verify()


async def test_logprobs_are_given_to_whoever_asks(house: House) -> None:
    house.vendors.vllm.say("a b", tokens_in=3, tokens_out=2, prompt_token_ids=[1, 2, 3], token_ids=[4, 5], logprobs=[-0.1, -0.2])
    got = await house.ask([user("hi")], logprobs=True)
    assert [entry["logprob"] for entry in got.body["choices"][0]["logprobs"]["content"]] == [-0.1, -0.2]
    house.vendors.vllm.say("a b", tokens_in=3, tokens_out=2, prompt_token_ids=[1, 2, 3], token_ids=[4, 5], logprobs=[-0.1, -0.2])
    assert (await house.ask([user("hi")])).body["choices"][0]["logprobs"] is None


async def test_an_agent_that_shows_this_turns_thoughts_only_is_recorded_so(house: House) -> None:
    house.vendors.vllm.say("1", reasoning="old thought")
    await house.say([user("one")])
    hidden = {"role": "assistant", "content": "1"}
    house.vendors.vllm.say("", reasoning="new thought", tool_calls=[ToolCall("look", {}, "c1")])
    two = await house.say([user("one"), hidden, user("two")], tools=[TOOL])
    result = {"role": "tool", "tool_call_id": "c1", "content": "sea"}
    await house.say([user("one"), hidden, user("two"), two, result], "done", tools=[TOOL])
    sent = house.vendors.vllm.requests[-1].body["messages"]
    *_, last = (await house.chat()).responses()
    assert [message.get("reasoning") for message in last.context] == [message.get("reasoning") for message in sent]
    assert last.overlay.keep_reasoning == "current_turn"


async def test_thoughts_that_a_server_does_not_take_are_not_in_the_context(house: House) -> None:
    house.vendors.vllm.say("1", reasoning="hm")
    one = await house.say([user("one")])
    house.vendors.vllm.fail(529)
    house.vendors.openai.say("from the spare")
    await house.ask([user("one"), one, user("two")])
    assert "reasoning" not in json.dumps(house.vendors.openai.requests[-1].body)
    *_, last = (await house.chat()).responses()
    assert last.message["content"] == "from the spare"
    assert [message.get("reasoning") for message in last.context] == [None, None, None]


async def test_what_shaped_a_sample_is_recorded_with_it(house: House) -> None:
    form = {"type": "json_object"}
    await house.ask([user("one")], tools=[TOOL], tool_choice="auto", response_format=form, max_tokens=1_000_000)
    [response] = (await house.chat()).responses()
    assert response.call is not None
    assert response.call.sampling == {"max_tokens": 2_048, "tool_choice": "auto", "response_format": form}
    assert house.vendors.vllm.requests[-1].body["max_tokens"] == 2_048


async def test_roles_hold_only_what_is_sent_of_them(house: House) -> None:
    told = {"role": "developer", "content": "Be brief."}
    odd = {**user("hi"), "tool_call_id": "x", "refusal": "no"}
    await house.ask([told, odd])
    [response] = (await house.chat()).responses()
    assert house.vendors.vllm.requests[-1].body["messages"] == response.context == [SYSTEM, user("hi")]
    refused = await house.ask([{"role": "function", "name": "f", "content": "x"}])
    assert error(refused) == (400, "invalid_request_error", "invalid_request", "messages[0].role")


async def test_a_word_that_many_chats_say_decides_nothing_where_another_does(house: House) -> None:
    clock = ({"role": "system", "content": f"It is {hour} o'clock."} for hour in range(10))
    plan = await house.say([next(clock), user("task a")], "a plan that only a has")
    ok = await house.say([next(clock), user("task a"), plan, user("go")], "ok")
    other = await house.say([next(clock), user("task b")], "b's own plan")
    await house.say([next(clock), user("task b"), other, user("go")], "ok")
    await house.say([next(clock), user("task a"), plan, user("go"), ok, user("more")], "more of a")
    graphs = list((await house.graphs()).values())
    assert [sorted({context[1] for context, _ in sampled(graph)}) for graph in graphs] == [["task a"], ["task b"]]


async def test_whoever_hangs_up_before_the_first_word_frees_the_slot_and_pays_the_prompt(house: House) -> None:
    gateway = house.service.hermes.gateway
    for stream in (False, True):
        house.vendors.vllm.hang()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.8):
                await house.ask([user("x")], stream=stream)
    async with asyncio.timeout(3):
        while gateway.slots.used or len(await house.calls()) < 2:  # noqa: ASYNC110  # what is looked at is behind a socket
            await asyncio.sleep(0.05)
    assert [(row[0], row[3] > 0, row[4]) for row in await house.calls()] == [("cancelled", True, 0)] * 2
    await gateway.wait_settled()
    [holder] = {row[0] for row in await house.users()}
    assert (await house.service.hermes.adapters.budgets.used(holder)).day_held == 0


async def test_a_reader_who_takes_nothing_any_more_loses_its_slot_and_pays_what_was_said(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its network is gone: no word of it comes, and what is sent stays in the buffers until they are full."""
    monkeypatch.setattr("hermes.web.completions.SEND_TIMEOUT_S", 0.05)
    gateway = house.service.hermes.gateway
    house.vendors.vllm.say("one two three")
    body = json.dumps({"model": "small", "messages": [user("x")], "stream": True}).encode()
    headers = [(b"host", b"127.0.0.1"), (b"authorization", house.key["Authorization"].encode()), (b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "asgi": {"spec_version": "2.3"}, "method": "POST", "path": CHAT_PATH, "query_string": b"", "headers": headers}
    coming, held = [{"type": "http.request", "body": body}], list[int]()

    async def receive() -> dict[str, Any]:
        return coming.pop() if coming else await asyncio.Future()

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            held.append(gateway.slots.used)
            await asyncio.Event().wait()

    async with asyncio.timeout(5):
        await create_web(web_services_from(house.service.hermes))({**scope, "client": ("127.0.0.1", 1)}, receive, send)
    assert (held, gateway.slots.used) == ([1], 0)
    [(outcome, _, _, tokens_in, *_)] = await house.calls()
    assert (outcome, tokens_in > 0) == ("cancelled", True)


@pytest.mark.parametrize(("stream", "own", "most"), [(False, None, 20), (True, None, 20), (False, 4, 4)])
async def test_forty_calls_of_a_backend_that_hangs_leave_the_others_their_slots(
    database_url: str, redis_url: str, stream: bool, own: int | None, most: int
) -> None:
    async with open_house(database_url, redis_url, slots=own, llm=LlmSettings(slot_wait_s=0.5)) as house:
        for _ in range(40):
            house.vendors.vllm.hang()
        sick, well = await house.service.key(tier="small"), await house.service.key(tier="spare")
        calls = [asyncio.create_task(house.ask([user(f"{number}")], sick, stream=stream)) for number in range(40)]
        await house.vendors.vllm.asked(most)
        house.vendors.openai.say("well")
        answer = await house.ask([user("hello")], well, model="spare")
        assert (answer.status, answer.body["choices"][0]["message"]["content"]) == (200, "well")
        refused, waiting = list[int](), set(calls)
        while len(refused) < 40 - most:
            done, waiting = await asyncio.wait(waiting, timeout=5, return_when=asyncio.FIRST_COMPLETED)
            assert done, "a call without a slot waits for as long as one that hangs"
            refused += [call.result().status for call in done]
        assert (refused, len(house.vendors.vllm.requests)) == ([503] * (40 - most), most)
        # With another backend behind it, a call does not wait for the sick one to the end.
        house.vendors.openai.say("instead")
        answer = await house.ask([user("hello")], model="small")
        assert (answer.status, answer.body["hermes"]["attempts"]) == (200, ["NoCapacity", "answered"])
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_a_call_that_is_given_up_while_it_is_let_in_holds_nothing(house: House) -> None:
    await house.say([user("one")], "1")
    [[user_id]] = await house.users()
    hermes = house.service.hermes
    caller = Caller(user_id=user_id, account="shop", tier="agents", source=CallSource.COMPLETIONS)
    for turns in range(6):
        task = asyncio.create_task(hermes.gateway.complete(ModelRequest(messages=[user("x")], max_tokens=5), caller))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await hermes.gateway.wait_settled()
    assert (await hermes.adapters.budgets.used(user_id)).day_held == 0


async def test_several_answers_that_are_refused_leave_no_chat(house: House) -> None:
    house.key = await house.service.key(tier="tiny")
    got = await house.ask([user("x" * 30_000)], n=2)
    assert error(got)[:3] == (429, "insufficient_quota", "insufficient_quota")
    assert await house.graphs() == {}


async def test_who_gives_up_waits_for_nobody_elses_records(house: House) -> None:
    gateway = house.service.hermes.gateway
    busy = gateway.records.start(asyncio.sleep(60))  # another record that takes its time
    house.key = await house.service.key(tier="tiny")
    async with asyncio.timeout(5):
        assert (await house.ask([user("x" * 30_000)], n=2)).status == 429
    busy.cancel()


async def test_a_key_whose_tier_is_gone_is_told_so(house: House) -> None:
    house.key = await house.service.key(tier="gold")
    assert error(await house.ask([user("x")]))[:3] == (503, "server_error", "unknown_tier")
    assert (await house.service.get("/v1/models", house.key)).status == 503


@pytest.mark.parametrize(
    "odd",
    [
        {"messages": [user("hi")], "user": "a\x00b"},
        {"messages": [user("hi")], "tools": [{**TOOL, "deep": json.loads("[" * 80 + "]" * 80)}]},
        {"messages": [{"role": "user", "content": json.loads("[" * 900 + "]" * 900)}]},
        {"messages": [user("hi")], "tools": [{**TOOL, "big": 10**3_000}]},
    ],
)
async def test_what_no_graph_can_hold_is_refused_before_it_is_paid(house: House, odd: dict[str, Any]) -> None:
    got = await house.service.post("/v1/chat/completions", {"model": "small", **odd}, house.key)
    assert got.status == 400
    assert house.vendors.vllm.requests == []


async def test_half_a_character_is_mended_on_both_ways(house: House) -> None:
    house.vendors.vllm.say("a \ud83d\ude00 b \ud83d c", tokens_in=3, tokens_out=3)
    answer = await house.say([user("hi \ud83d")])
    assert house.vendors.vllm.requests[-1].body["messages"] == [user("hi \ufffd")]
    assert answer["content"] == "a \U0001f600 b \ufffd c"
    await house.say([user("hi \ud83d"), answer, user("more")], "more")
    assert len((await house.chat()).versions) == 1


async def test_logprobs_that_cannot_be_written_are_written_as_openai_does(house: House) -> None:
    house.vendors.vllm.say("a", tokens_in=1, tokens_out=1, prompt_token_ids=[1], token_ids=[2], logprobs=[float("-inf")])
    got = await house.ask([user("hi")], logprobs=True)
    assert got.body["choices"][0]["logprobs"]["content"][0]["logprob"] == -9999.0


async def test_a_field_goes_where_it_may_and_an_error_shows_what_was_wrong(house: House) -> None:
    """The address and the key of a model are the operator's; what a server does not take is left out, and the record says so."""
    for name, value in (("api_base", "http://evil.example"), ("api_key", "sk-x"), ("extra_headers", {"a": "b"}), ("mock_response", "hi")):
        got = await house.ask([user("hi")], **{name: value})
        assert (error(got)[0], error(got)[3], len(house.vendors.vllm.requests)) == (400, name, 0)
    house.vendors.vllm.say("hi")
    assert (await house.ask([user("hi")], top_k=3, banana=1, lora_path="x", api_key=None)).status == 200
    sent = house.vendors.vllm.requests[-1].body
    assert (sent["top_k"], sorted({"banana", "lora_path", "api_key"} & sent.keys())) == (3, [])
    [call] = [response.call for response in (await house.chat()).responses()]
    assert call is not None
    assert list(call.extra["not_sent"]) == ["banana", "lora_path"]
    for body, message in (
        ({"n": 99}, "n: expected a whole number from 1 to 4, and got 99"),
        ({"stream": "Yes"}, 'stream: expected true or false, and got "Yes"'),
        ({"model": "GPT-9-Large"}, 'there is no model "GPT-9-Large" here; did you mean hermes? GET /v1/models lists them'),
        ({"user": "U" * 600}, 'user: expected text of at most 512 characters without control characters, and got "…"'),
        ({"tool_choice": "required"}, "tool_choice: expected tools with `required`"),
        ({"tool_choice": "Any"}, 'tool_choice: expected none, auto, required or a function, and got "Any"'),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "Leap"}}},
            'tool_choice: there is no tool "Leap" among the tools of this request ("look")',
        ),
    ):
        got = await house.ask([user("hi")], **body)
        assert got.body["error"]["message"].rstrip(".") == message
        assert got.status == (404 if "model" in body else 400)
    assert len(house.vendors.vllm.requests) == 1
    ids = [
        (await house.ask([user("hi")], {"x-request-id": given}, n=99)).headers["x-request-id"] for given in ("trace-1", "a b", "x" * 200)
    ]
    assert ids[0] == "trace-1"
    assert all(made.startswith("req_") for made in ids[1:])
    for path in ("/health", "/nothing/here", "/v1/models"):
        assert (await house.service.get(path)).headers["x-request-id"].startswith("req_")


async def test_streamed_logprobs_come_with_their_tokens(house: House) -> None:
    scores = [-0.1, -0.2, -0.3]
    house.vendors.vllm.say("a b c", tokens_in=3, tokens_out=3, prompt_token_ids=[1, 2, 3], token_ids=[4, 5, 6], logprobs=scores)
    chunks = [chunk for chunk in await house.stream([user("hi")], logprobs=True) if chunk != "[DONE]"]
    pieces = [(choice["delta"].get("content"), choice["logprobs"]) for chunk in chunks for choice in chunk["choices"]]
    scored = [(text, [entry["logprob"] for entry in logprobs["content"]]) for text, logprobs in pieces if logprobs]
    assert [score for _, entries in scored for score in entries] == scores
    assert all(text and len(text.split()) == len(entries) for text, entries in scored), scored
    house.vendors.vllm.say("a b c", tokens_in=3, tokens_out=3, prompt_token_ids=[1, 2, 3], token_ids=[4, 5, 6], logprobs=scores)
    quiet = [chunk for chunk in await house.stream([user("hi")]) if chunk != "[DONE]"]
    assert all(choice["logprobs"] is None for chunk in quiet for choice in chunk["choices"])
