"""Anthropic's own client takes our `/anthropic` for Anthropic: answers, streams, tools, thinking, errors, counts, models."""

from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp: pip install aiohttp")

from tests.fakes.vendors import Cut, ToolCall, Vendors
from tests.readers.gateway import with_hermes
from tests.readers.served import HERMES, Served

anthropic = pytest.importorskip("anthropic", reason="needs anthropic: pip install anthropic")

pytestmark = [
    pytest.mark.readers,
    pytest.mark.filterwarnings("default"),  # their warnings are theirs
    pytest.mark.skipif(not HERMES.exists(), reason="needs Hermes in .venv: scripts/setup"),
]
HI: Any = [{"role": "user", "content": "Hi"}]
TOOLS: Any = [{"name": "weather", "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}}}]
CALLS = [ToolCall("weather", '{"place":"Ubud"}', "c1"), ToolCall("weather", {}, "c2")]


def client_of(hermes: Served, key: str) -> Any:
    return anthropic.AsyncAnthropic(api_key=key, base_url=f"{hermes.url}/anthropic", max_retries=0)


async def streamed(client: Any, **request: Any) -> Any:
    async with client.messages.stream(**request) as stream:
        kinds = [event.type async for event in stream]
        assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
        return await stream.get_final_message()


def test_answers_and_streams_are_one() -> None:
    async def talk(v: Vendors, hermes: Served, client: Any) -> None:
        request: dict[str, Any] = {"model": "small", "max_tokens": 100, "messages": HI, "tools": TOOLS, "system": "Be brief."}
        for say in (
            {"text": "Hello there.", "tokens_in": 12, "tokens_out": 3, "cached": 8},
            {"text": "Looking.", "tool_calls": CALLS},
            {"text": "One", "finish": "length"},
        ):
            v.vllm.say(**say)
            whole = await client.messages.create(**request)
            v.vllm.say(**say)
            last = await streamed(client, **request)
            left_out = {"id", "hermes", "parsed_output"}
            assert last.model_dump(exclude=left_out) | {"usage": 0} == whole.model_dump(exclude=left_out) | {"usage": 0}
            assert [getattr(last.usage, name) for name in ("input_tokens", "output_tokens", "cache_read_input_tokens")] == [
                getattr(whole.usage, name) for name in ("input_tokens", "output_tokens", "cache_read_input_tokens")
            ]
        assert whole.stop_reason == "max_tokens"
        assert v.vllm.requests[0].body["messages"] == [{"role": "system", "content": "Be brief."}, *HI]

    with_hermes(client_of, talk)


def test_a_tool_loop_is_one_chat_and_keeps_the_models_own_words() -> None:
    async def talk(v: Vendors, hermes: Served, client: Any) -> None:
        v.vllm.say("Looking.", tool_calls=CALLS)
        messages: list[Any] = list(HI)
        first = await client.messages.create(model="small", max_tokens=100, messages=messages, tools=TOOLS)
        assert [(block.type, getattr(block, "input", None)) for block in first.content] == [
            ("text", None),
            ("tool_use", {"place": "Ubud"}),
            ("tool_use", {}),
        ]
        results = [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "sun"}]},
            {"type": "tool_result", "tool_use_id": "c2", "is_error": True, "content": "where?"},
            {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}},
        ]
        messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
        v.vllm.say("Sunny.")
        second = await client.messages.create(model="small", max_tokens=100, messages=messages, tools=TOOLS)
        assert second.model_extra["hermes"]["session"] == first.model_extra["hermes"]["session"]
        asked = v.vllm.requests[-1].body["messages"]
        assert [message["role"] for message in asked] == ["user", "assistant", "tool", "tool", "user"]
        assert [call["function"]["arguments"] for call in asked[1]["tool_calls"]] == ['{"place":"Ubud"}', "{}"]

    with_hermes(client_of, talk)


def test_thinking_goes_back_to_the_model_that_thought() -> None:
    async def talk(v: Vendors, hermes: Served, client: Any) -> None:
        request: dict[str, Any] = {
            "model": "claude",
            "max_tokens": 2_000,
            "tools": TOOLS,
            "thinking": {"type": "enabled", "budget_tokens": 1_024},
        }
        for ask in (client.messages.create, lambda **request: streamed(client, **request)):
            v.anthropic.say("Looking.", reasoning="Where is it?", tool_calls=CALLS[:1])
            first = await ask(messages=HI, **request)
            assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
            assert first.content[0].thinking == "Where is it?"
            result = {"type": "tool_result", "tool_use_id": "c1", "content": "sun"}
            v.anthropic.say("Sunny.")
            turns = [*HI, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
            await ask(messages=turns, **request)
            [thought, *_] = v.anthropic.requests[-1].body["messages"][1]["content"]
            assert (thought["type"], thought["thinking"], thought["signature"].startswith("hermes")) == ("thinking", "Where is it?", False)
        foreign = {"type": "thinking", "thinking": "hm", "signature": "of another server"}
        v.anthropic.say("Hi.")
        other = await client.messages.create(
            messages=[*HI, {"role": "assistant", "content": [foreign, {"type": "text", "text": "Hey"}]}, *HI], **request
        )
        assert other.model_extra["hermes"]["ignored"] == ["messages[1].content[0]: thinking of another server or key"]

    with_hermes(client_of, talk, "--tier", "claude")


def test_errors_counts_models_and_both_kinds_of_keys() -> None:
    async def talk(v: Vendors, hermes: Served, client: Any) -> None:
        assert [model.id async for model in client.models.list()] == ["hermes", "small"]
        assert (await client.models.retrieve("small")).id == "small"
        assert (await client.messages.count_tokens(model="small", messages=HI)).input_tokens > 0
        by_header = client.with_options(default_headers={"x-api-key": client.api_key, "Authorization": anthropic.Omit()})
        v.vllm.say("Hi")
        assert (await by_header.messages.create(model="small", max_tokens=9, messages=HI)).content[0].text == "Hi"
        with pytest.raises(anthropic.NotFoundError, match="no model"):
            await client.messages.create(model="large", max_tokens=9, messages=HI)
        with pytest.raises(anthropic.BadRequestError) as bad:
            await client.messages.create(model="small", max_tokens=9, messages=[{"role": "user", "content": 3}])
        assert (bad.value.body["error"]["type"], bad.value.request_id[:4]) == ("invalid_request_error", "req_")
        with pytest.raises(anthropic.AuthenticationError):
            await client.with_options(api_key="hk_wrong").messages.create(model="small", max_tokens=9, messages=HI)
        v.vllm.say("one two three", cut=Cut.RESET, cut_after=2)
        with pytest.raises(anthropic.APIStatusError) as cut:
            await streamed(client, model="small", max_tokens=9, messages=HI)
        assert cut.value.body["error"]["type"] == "api_error"
        v.vllm.fail(429, headers={"Retry-After": "7"})
        with pytest.raises(anthropic.RateLimitError) as limited:
            await client.messages.create(model="small", max_tokens=9, messages=HI)
        assert limited.value.response.headers["retry-after"] == "7"

    with_hermes(client_of, talk)
