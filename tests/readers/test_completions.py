"""OpenAI's own client takes our endpoint for OpenAI: answers, streams, tools, several answers, schemas, errors, models."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp: pip install aiohttp")

from tests.fakes.vendors import Cut, ToolCall, Vendors, vendors
from tests.readers.served import HERMES, Served, served

openai = pytest.importorskip("openai", reason="needs openai: pip install openai")

pytestmark = [
    pytest.mark.readers,
    pytest.mark.filterwarnings("default"),  # their warnings are theirs
    pytest.mark.skipif(not HERMES.exists(), reason="needs Hermes in .venv: scripts/setup"),
]
HI: Any = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"], "additionalProperties": False}
TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]


def settings(v: Vendors) -> str:
    return f"""
[backends.own]
kind = "vllm"
base_url = "{v.vllm.url}"
api_key = "{v.vllm.key}"

[models.small]
backend = "own"
id = "{v.vllm.models[0]}"
prices = [{{ input = 1.0, output = 5.0 }}]

[tiers.agents]
chain = ["small"]
day_tokens = 10_000_000

[tiers.poor]
chain = ["small"]
day_tokens = 1

[completions]
tier = "agents"
"""


def with_openai_client(talk: Callable[[Vendors, Served, Any], Coroutine[Any, Any, None]], *options: str) -> None:
    async def main() -> None:
        async with vendors() as v:
            with await asyncio.to_thread(lambda: entered(served(settings(v)))) as hermes:
                key = await asyncio.to_thread(hermes.key, *options)
                async with openai.AsyncOpenAI(api_key=key, base_url=f"{hermes.url}/v1", max_retries=0) as client:
                    await talk(v, hermes, client)

    asyncio.run(main())


class entered:  # noqa: N801  # a word in a sentence
    """Enter a context in one thread and leave it in another: starting takes seconds, and the vendors must answer meanwhile."""

    def __init__(self, context: Any) -> None:
        self._context, self._value = context, context.__enter__()

    def __enter__(self) -> Any:
        return self._value

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(*error)


def test_answers_streams_tools_and_several_answers() -> None:
    async def talk(v: Vendors, _: Served, client: Any) -> None:
        v.vllm.say("Hello there.", tokens_in=12, tokens_out=3, cached=8)
        answer = await client.chat.completions.create(model="small", messages=HI, temperature=0.5, user="alice")
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("Hello there.", "stop")
        assert (answer.usage.prompt_tokens, answer.usage.prompt_tokens_details.cached_tokens) == (12, 8)
        assert answer.model == v.vllm.models[0]

        v.vllm.say("Hello there.", reasoning="hm", tokens_in=12, tokens_out=3)
        stream = await client.chat.completions.create(model="small", messages=HI, stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello there."
        assert chunks[-1].usage.total_tokens == 15
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"

        v.vllm.say("", tool_calls=[ToolCall("weather", {"place": "Ubud"}, "c1"), ToolCall("weather", {"place": "Kuta"}, "c2")])
        answer = await client.chat.completions.create(model="small", messages=HI, tools=TOOLS)
        assert [json.loads(call.function.arguments)["place"] for call in answer.choices[0].message.tool_calls] == ["Ubud", "Kuta"]
        results = [{"role": "tool", "tool_call_id": call.id, "content": "sun"} for call in answer.choices[0].message.tool_calls]
        v.vllm.say("Sunny.")
        # As people write it: the client's own object goes back into the list.
        last = await client.chat.completions.create(model="small", messages=[*HI, answer.choices[0].message, *results], tools=TOOLS)
        assert last.choices[0].message.content == "Sunny."

        for text in ("a", "b"):
            v.vllm.say(text)
        both = await client.chat.completions.create(model="small", messages=HI, n=2)
        assert sorted(choice.message.content for choice in both.choices) == ["a", "b"]

    with_openai_client(talk)


def test_the_clients_own_helpers_for_streams_and_schemas() -> None:
    async def talk(v: Vendors, _: Served, client: Any) -> None:
        v.vllm.say("", tool_calls=[ToolCall("weather", {"place": "Ubud"}, "c1")])
        strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]  # the helper refuses others
        async with client.chat.completions.stream(model="small", messages=HI, tools=strict) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_completion()
        assert "tool_calls.function.arguments.done" in kinds
        assert final.choices[0].message.tool_calls[0].function.arguments == '{"place": "Ubud"}'
        assert v.vllm.requests[-1].body["tools"] == strict
        v.vllm.say('{"place": "Ubud"}')
        form = {"type": "json_schema", "json_schema": {"name": "where", "schema": SCHEMA, "strict": True}}
        answer = await client.chat.completions.create(model="small", messages=HI, response_format=form)
        assert json.loads(answer.choices[0].message.content) == {"place": "Ubud"}
        assert v.vllm.requests[-1].body["response_format"] == form

    with_openai_client(talk)


def test_errors_are_the_clients_own_classes() -> None:
    async def talk(v: Vendors, hermes: Served, client: Any) -> None:
        with pytest.raises(openai.NotFoundError, match="no model"):
            await client.chat.completions.create(model="large", messages=HI)
        with pytest.raises(openai.BadRequestError) as bad:
            await client.chat.completions.create(model="small", messages=[{"role": "user", "content": 3}])
        assert bad.value.param == "messages[0].content"
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="hk_wrong").chat.completions.create(model="small", messages=HI)
        v.vllm.fail(500)
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="small", messages=HI)
        v.vllm.say("one two three", cut=Cut.RESET, cut_after=2)
        seen: list[str] = []

        async def read() -> None:
            async for chunk in await client.chat.completions.create(model="small", messages=HI, stream=True):
                seen.append(chunk.choices[0].delta.content or "")  # noqa: PERF401  # what was seen before the error counts

        with pytest.raises(openai.APIError, match="broke off"):
            await read()
        assert "".join(seen) == "one two"
        poor = await asyncio.to_thread(hermes.key, "--tier", "poor")
        asked = len(v.vllm.requests)
        with pytest.raises(openai.RateLimitError) as spent:
            await client.with_options(api_key=poor, max_retries=2).chat.completions.create(model="small", messages=HI)
        assert (spent.value.code, len(v.vllm.requests)) == ("insufficient_quota", asked)
        # Last, because the model is not asked again in these seven seconds.
        v.vllm.fail(429, headers={"Retry-After": "7"})
        with pytest.raises(openai.RateLimitError) as limited:
            await client.chat.completions.create(model="small", messages=HI)
        assert limited.value.response.headers["retry-after"] == "7"

    with_openai_client(talk)


def test_models_are_listed() -> None:
    async def talk(_: Vendors, __: Served, client: Any) -> None:
        assert [model.id async for model in client.models.list()] == ["hermes", "small"]
        assert (await client.models.retrieve("small")).id == "small"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("large")

    with_openai_client(talk)


def test_a_chat_that_goes_on_is_one_conversation() -> None:
    async def talk(v: Vendors, _: Served, client: Any) -> None:
        messages: list[Any] = list(HI)
        sessions = set()
        for turn in range(4):
            v.vllm.say(f"answer {turn}", reasoning="hm" if turn % 2 else "")
            answer = await client.chat.completions.create(model="small", messages=messages)
            sessions.add(answer.model_extra["hermes"]["session"])
            messages += [answer.choices[0].message, {"role": "user", "content": f"question {turn}"}]
        assert len(sessions) == 1

    with_openai_client(talk)
