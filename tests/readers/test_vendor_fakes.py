"""The vendors' own clients take our stand-ins for the vendors: what they say is what the clients expect, in answers, streams and errors.

So a backend that is proved against the stand-ins is proved against more than our own idea of the protocol."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp: pip install aiohttp")

from tests.fakes.vendors import Cut, ToolCall, Vendors, vendors

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs
CALL = ToolCall("weather", {"place": "Ubud"})
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
HI: Any = [{"role": "user", "content": "Hi"}]


def with_vendors(talk: Callable[[Vendors], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with vendors() as v:
            await talk(v)

    asyncio.run(main())


# --- OpenAI


@pytest.mark.parametrize("flavour", ["openai", "vllm", "sglang", "llama_cpp"])
def test_openais_client_reads_answers_streams_and_calls(flavour: str) -> None:
    openai = pytest.importorskip("openai", reason="needs openai: pip install openai")

    async def talk(v: Vendors) -> None:
        vendor = getattr(v, flavour)
        model = vendor.models[0]
        tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
        async with openai.AsyncOpenAI(api_key=vendor.key, base_url=vendor.url, max_retries=0) as client:
            vendor.say("Hello there.", tokens_in=12, tokens_out=3, cached=8)
            answer = await client.chat.completions.create(model=model, messages=HI)
            assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("Hello there.", "stop")
            assert (answer.usage.prompt_tokens, answer.usage.prompt_tokens_details.cached_tokens) == (12, 8)

            vendor.say("Hello there.", tokens_in=12, tokens_out=3)
            stream = await client.chat.completions.create(model=model, messages=HI, stream=True, stream_options={"include_usage": True})
            chunks = [chunk async for chunk in stream]
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello there."
            assert (chunks[-1].choices, chunks[-1].usage.completion_tokens) == ([], 3)

            vendor.say("", tool_calls=[CALL])
            first = (await client.chat.completions.create(model=model, messages=HI, tools=tools)).choices[0].message
            assert json.loads(first.tool_calls[0].function.arguments) == CALL.arguments
            result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "30"}
            vendor.say("Warm.")
            echoed = first.model_dump(exclude_none=True)
            second = await client.chat.completions.create(model=model, messages=[*HI, echoed, result], tools=tools)
            assert second.choices[0].message.content == "Warm."

            assert [listed.id async for listed in client.models.list()] == vendor.models

    with_vendors(talk)


def test_openais_client_raises_its_own_errors() -> None:
    openai = pytest.importorskip("openai", reason="needs openai: pip install openai")

    async def talk(v: Vendors) -> None:
        vendor = v.openai
        errors = {
            400: openai.BadRequestError,
            403: openai.PermissionDeniedError,
            429: openai.RateLimitError,
            503: openai.InternalServerError,
        }
        async with openai.AsyncOpenAI(api_key=vendor.key, base_url=vendor.url, max_retries=0) as client:
            for status, error in errors.items():
                vendor.fail(status, "scripted", code="a_code")
                with pytest.raises(error) as caught:
                    await client.chat.completions.create(model="gpt-fake", messages=HI)
                assert (caught.value.code, "scripted" in str(caught.value)) == ("a_code", True)
            with pytest.raises(openai.NotFoundError):
                await client.chat.completions.create(model="no-such-model", messages=HI)
            with pytest.raises(openai.BadRequestError):
                await client.chat.completions.create(model="gpt-fake", messages=[*HI, {"role": "tool", "tool_call_id": "x", "content": ""}])
            vendor.say("a b c", cut=Cut.ERROR)
            stream = await client.chat.completions.create(model="gpt-fake", messages=HI, stream=True)
            with pytest.raises(openai.APIError):
                [chunk async for chunk in stream]
            with pytest.raises(openai.AuthenticationError):
                await client.with_options(api_key="wrong").models.list()

    with_vendors(talk)


# --- Anthropic


def test_anthropics_client_reads_answers_streams_and_calls() -> None:
    anthropic = pytest.importorskip("anthropic", reason="needs anthropic: pip install anthropic")

    async def talk(v: Vendors) -> None:
        vendor = v.anthropic
        tools: Any = [{"name": "weather", "input_schema": SCHEMA}]
        asked: Any = {"model": "claude-haiku-4-5", "max_tokens": 100}
        async with anthropic.AsyncAnthropic(api_key=vendor.key, base_url=vendor.url, max_retries=0) as client:
            vendor.say("Hello there.", tokens_in=12, tokens_out=3, cached=8)
            answer = await client.messages.create(**asked, messages=HI)
            assert (answer.content[0].text, answer.stop_reason) == ("Hello there.", "end_turn")
            assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens) == (4, 8)

            vendor.say("Let me see.", reasoning="Hm, hm.", tool_calls=[CALL], tokens_in=12, tokens_out=9)
            async with client.messages.stream(**asked, messages=HI, tools=tools) as stream:
                texts = [text async for text in stream.text_stream]
                first = await stream.get_final_message()
            assert "".join(texts) == "Let me see."
            thinking, text, use = first.content
            assert (thinking.thinking, text.text, use.input) == ("Hm, hm.", "Let me see.", CALL.arguments)
            assert (first.usage.input_tokens, first.usage.output_tokens) == (12, 9)

            vendor.say("Warm.")
            result: Any = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "30"}]}
            echoed: Any = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]}
            for block in echoed["content"]:
                block.pop("parsed_output", None)  # the client's own
            second = await client.messages.create(**asked, messages=[*HI, echoed, result], tools=tools)
            assert second.content[0].text == "Warm."

            assert [listed.id async for listed in client.models.list()] == vendor.models
            assert (await client.models.retrieve("claude-haiku-4-5")).id == "claude-haiku-4-5"

    with_vendors(talk)


def test_anthropics_client_raises_its_own_errors() -> None:
    anthropic = pytest.importorskip("anthropic", reason="needs anthropic: pip install anthropic")

    async def talk(v: Vendors) -> None:
        vendor = v.anthropic
        asked: Any = {"model": "claude-haiku-4-5", "max_tokens": 100}
        errors = {
            400: anthropic.BadRequestError,
            403: anthropic.PermissionDeniedError,
            429: anthropic.RateLimitError,
            500: anthropic.InternalServerError,
        }
        async with anthropic.AsyncAnthropic(api_key=vendor.key, base_url=vendor.url, max_retries=0) as client:
            for status, error in {**errors, 529: anthropic.APIStatusError}.items():
                vendor.fail(status, "scripted", headers={"retry-after": "1"})
                with pytest.raises(error) as caught:
                    await client.messages.create(**asked, messages=HI)
                assert caught.value.body["error"]["message"] == "scripted"
            with pytest.raises(anthropic.NotFoundError):
                await client.messages.create(**{**asked, "model": "no-such-model"}, messages=HI)
            with pytest.raises(anthropic.BadRequestError):
                await client.messages.create(**asked, messages=[*HI, *HI])
            vendor.say("a b c", cut=Cut.ERROR, error="overloaded_error")
            stream = await client.messages.create(**asked, messages=HI, stream=True)
            with pytest.raises(anthropic.APIStatusError):
                [event async for event in stream]
            with pytest.raises(anthropic.AuthenticationError):
                await client.with_options(api_key="wrong").models.list()

    with_vendors(talk)


# --- Ollama


def test_ollamas_client_reads_answers_streams_and_errors() -> None:
    ollama = pytest.importorskip("ollama", reason="needs ollama: pip install ollama")

    async def talk(v: Vendors) -> None:
        vendor = v.ollama
        client = ollama.AsyncClient(host=vendor.url)
        vendor.say("Hello there.", reasoning="Hm.", tokens_in=12, tokens_out=3)
        answer = await client.chat(model="llama3.2", messages=HI)
        assert (answer.message.content, answer.message.thinking, answer.done_reason) == ("Hello there.", "Hm.", "stop")
        assert (answer.prompt_eval_count, answer.eval_count) == (12, 3)

        vendor.say("Hello there.", tool_calls=[CALL])
        pieces = [piece async for piece in await client.chat(model="llama3.2", messages=HI, stream=True)]
        assert "".join(piece.message.content or "" for piece in pieces) == "Hello there."
        [call] = [call for piece in pieces for call in piece.message.tool_calls or ()]
        assert (call.function.name, call.function.arguments, pieces[-1].done) == ("weather", CALL.arguments, True)

        vendor.say("a b c", cut=Cut.ERROR)
        with pytest.raises(ollama.ResponseError):
            [piece async for piece in await client.chat(model="llama3.2", messages=HI, stream=True)]
        with pytest.raises(ollama.ResponseError, match="not found"):
            await client.chat(model="no-such-model", messages=HI)
        assert [model.model for model in (await client.list()).models] == vendor.models

    with_vendors(talk)
