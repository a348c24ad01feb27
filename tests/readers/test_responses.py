"""OpenAI's own client and its agents take our `/v1/responses` for OpenAI's: answers, streams, tools, state, errors."""

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp: pip install aiohttp")

from tests.fakes.vendors import Cut, ToolCall, Vendors
from tests.readers.gateway import with_hermes
from tests.readers.served import HERMES, Served

openai = pytest.importorskip("openai", reason="needs openai: pip install openai")
pydantic = pytest.importorskip("pydantic", reason="needs pydantic: pip install pydantic")

pytestmark = [
    pytest.mark.readers,
    pytest.mark.filterwarnings("default"),  # their warnings are theirs
    pytest.mark.skipif(not HERMES.exists(), reason="needs Hermes in .venv: scripts/setup"),
]
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"], "additionalProperties": False}
TOOLS: Any = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}]
CALLS = [ToolCall("weather", '{"place":"Ubud"}', "c1"), ToolCall("weather", {"place": "Kuta"}, "c2")]


class Where(pydantic.BaseModel):
    place: str


def client_of(hermes: Served, key: str) -> Any:
    return openai.AsyncOpenAI(api_key=key, base_url=f"{hermes.url}/v1", max_retries=0)


def without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        left_out = ("id", "created_at", "hermes", "parsed", "parsed_arguments")
        return {name: without_ids(inner) for name, inner in value.items() if name not in left_out}
    return [without_ids(inner) for inner in value] if isinstance(value, list) else value


def test_answers_and_streams_are_one() -> None:
    async def talk(v: Vendors, hermes: Served, client: Any) -> None:
        said: list[dict[str, Any]] = [
            {"text": "Hello there.", "tokens_in": 12, "tokens_out": 3, "cached": 8},
            {"text": "", "tool_calls": CALLS[:1]},
            {"text": "Both:", "tool_calls": CALLS},
            {"text": "Hello.", "reasoning": "They greet me."},
            {"text": "One two", "finish": "length"},
        ]
        for say in said:
            v.vllm.say(**say)
            whole = await client.responses.create(model="small", input="Hi", tools=TOOLS, instructions="Be brief.", temperature=0.5)
            v.vllm.say(**say)
            async with client.responses.stream(model="small", input="Hi", tools=TOOLS, instructions="Be brief.", temperature=0.5) as stream:
                events = [event async for event in stream]
            assert [event.sequence_number for event in events] == list(range(len(events)))
            assert events[-1].type == f"response.{whole.status}"
            assert without_ids(events[-1].response.model_dump()) == without_ids(whole.model_dump())
        assert whole.status == "incomplete"
        assert whole.incomplete_details.reason == "max_output_tokens"
        assert v.vllm.requests[-1].body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]

    with_hermes(client_of, talk)


def test_a_tool_loop_by_items_and_by_previous_response_is_one_chat() -> None:
    async def talk(v: Vendors, hermes: Served, client: Any) -> None:
        sessions = set()
        items: list[Any] = [{"role": "user", "content": "Weather?"}]
        v.vllm.say("Looking.", tool_calls=CALLS, reasoning="hm")
        first = await client.responses.create(model="small", input=items, tools=TOOLS, include=["reasoning.encrypted_content"])
        sessions.add(first.model_extra["hermes"]["session"])
        results = [{"type": "function_call_output", "call_id": each, "output": "sun"} for each in ("c1", "c2")]
        v.vllm.say("Sunny.")
        second = await client.responses.create(model="small", input=[*items, *first.output, *results], tools=TOOLS)
        sessions.add(second.model_extra["hermes"]["session"])
        v.vllm.say("Sunny again.")
        third = await client.responses.create(model="small", previous_response_id=first.id, input=results, tools=TOOLS)
        sessions.add(third.model_extra["hermes"]["session"])
        v.vllm.say("Bye.")
        fourth = await client.responses.create(model="small", previous_response_id=third.id, input="Thanks", instructions="Be brief.")
        sessions.add(fourth.model_extra["hermes"]["session"])
        assert len(sessions) == 1
        asked = v.vllm.requests[-1].body["messages"]
        assert [message["role"] for message in asked] == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
        assert asked[2]["tool_calls"][0]["function"]["arguments"] == '{"place":"Ubud"}'
        v.vllm.say("ok")
        await client.responses.create(model="small", previous_response_id=fourth.id, input="And?")
        assert [message["role"] for message in v.vllm.requests[-1].body["messages"]][:2] == ["user", "assistant"]  # no instructions

    with_hermes(client_of, talk)


def test_responses_are_kept_listed_and_deleted() -> None:
    async def talk(v: Vendors, hermes: Served, client: Any) -> None:
        v.vllm.say("Looking.", tool_calls=CALLS[:1])
        first = await client.responses.create(model="small", input="Weather?", tools=TOOLS, instructions="Be brief.", metadata={"a": "b"})
        found = await client.responses.retrieve(first.id)
        assert found.model_dump(exclude={"hermes"}) == first.model_dump(exclude={"hermes"})
        result = {"type": "function_call_output", "call_id": "c1", "output": "sun"}
        v.vllm.say("Sunny.")
        second = await client.responses.create(model="small", previous_response_id=first.id, input=[result])
        listed = [item async for item in client.responses.input_items.list(second.id, order="asc", limit=2)]
        assert [item.type for item in listed] == ["message", "message", "function_call", "function_call_output"]
        assert [item.id async for item in client.responses.input_items.list(second.id)] == [item.id for item in listed][::-1]
        with pytest.raises(openai.BadRequestError, match="synchronous"):
            await client.responses.cancel(second.id)
        await client.responses.delete(second.id)
        for gone in (second.id, "resp_unknown", f"resp_{'0' * 32}"):
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(gone)
        with pytest.raises(openai.BadRequestError) as unknown:
            await client.responses.create(model="small", previous_response_id=second.id, input="Hi")
        assert (unknown.value.code, unknown.value.param) == ("previous_response_not_found", "previous_response_id")
        other = client.with_options(api_key=await asyncio.to_thread(hermes.key))
        with pytest.raises(openai.NotFoundError):
            await other.responses.retrieve(first.id)
        v.vllm.say("Not kept.")
        unkept = await client.responses.create(model="small", input="Hi", store=False)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(unkept.id)
        assert (await client.responses.input_tokens.count(model="small", input="Hi there")).input_tokens > 0

    with_hermes(client_of, talk)


def test_schemas_custom_tools_refusals_and_errors() -> None:
    async def talk(v: Vendors, hermes: Served, client: Any) -> None:
        v.vllm.say('{"place": "Ubud"}')
        assert (await client.responses.parse(model="small", input="Where?", text_format=Where)).output_parsed == Where(place="Ubud")
        v.vllm.say("", tool_calls=[ToolCall("shell", {"input": "ls -l"}, "c1")])
        custom = [{"type": "custom", "name": "shell"}, {"type": "web_search"}]
        async with client.responses.stream(model="small", input="List", tools=custom) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert "response.custom_tool_call_input.done" in kinds
        assert [(item.type, item.name, item.input) for item in final.output] == [("custom_tool_call", "shell", "ls -l")]
        v.vllm.say("Done.")
        output = {"type": "custom_tool_call_output", "call_id": "c1", "output": "a b"}
        await client.responses.create(model="small", input=[{"role": "user", "content": "List"}, *final.output, output], tools=custom)
        assert json.loads(v.vllm.requests[-1].body["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {"input": "ls -l"}
        with pytest.raises(openai.BadRequestError, match="built-in"):
            await client.responses.create(model="small", input="Hi", tools=[{"type": "web_search"}])
        with pytest.raises(openai.BadRequestError) as bad:
            await client.responses.create(model="small", input=[{"role": "user", "content": 3}])
        assert bad.value.param == "input[0].content"
        v.vllm.fail(429, headers={"Retry-After": "7"})
        with pytest.raises(openai.RateLimitError) as limited:
            await client.responses.create(model="small", input="Hi")
        assert limited.value.response.headers["retry-after"] == "7"

    with_hermes(client_of, talk)


def test_a_stream_that_breaks_off_fails_once() -> None:
    async def talk(v: Vendors, hermes: Served, client: Any) -> None:
        v.vllm.say("one two three", cut=Cut.RESET, cut_after=2)
        events = [event async for event in await client.responses.create(model="small", input="Hi", stream=True)]
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "one two"
        assert (events[-1].type, events[-1].response.error.code) == ("response.failed", "cut_short")

    with_hermes(client_of, talk)


def test_the_agents_of_openai_run_over_it() -> None:
    agents = pytest.importorskip("agents", reason="needs openai-agents: pip install openai-agents")

    async def talk(v: Vendors, hermes: Served, client: Any) -> None:
        agents.set_tracing_disabled(disabled=True)
        model = agents.OpenAIResponsesModel("small", client)

        @agents.function_tool
        def weather(place: str) -> str:
            """The weather."""
            return f"sun in {place}"

        agent = agents.Agent(name="Guide", instructions="Be brief.", model=model, tools=[weather])
        for chains in (False, True):
            v.vllm.say("", tool_calls=CALLS)
            v.vllm.say("Sunny in both.")
            result = await agents.Runner.run(agent, "Weather?", auto_previous_response_id=chains)
            assert result.final_output == "Sunny in both."
            v.vllm.say("", tool_calls=CALLS[:1])
            v.vllm.say("Sunny.")
            streamed = agents.Runner.run_streamed(agent, "Weather?", auto_previous_response_id=chains)
            assert [event async for event in streamed.stream_events()]
            assert streamed.final_output == "Sunny."
        roles = [message["role"] for message in v.vllm.requests[-1].body["messages"]]
        assert roles == ["system", "user", "assistant", "tool"]

    with_hermes(client_of, talk)


def test_embeddings_are_the_same_in_both_encodings() -> None:
    async def talk(_: Vendors, hermes: Served, client: Any) -> None:
        by_default = await client.embeddings.create(model="hermes", input=["a cat", "a dog"])
        plain = await client.embeddings.create(model=by_default.model, input=["a cat", "a dog"], encoding_format="float")
        assert [row.embedding for row in by_default.data] == [row.embedding for row in plain.data]
        assert by_default.usage.prompt_tokens == by_default.usage.total_tokens > 0
        with pytest.raises(openai.BadRequestError) as refused:
            await client.embeddings.create(model="hermes", input="a cat", dimensions=7)
        assert refused.value.param == "dimensions"
        with pytest.raises(openai.NotFoundError):
            await client.embeddings.create(model="text-embedding-3-small", input="a cat")

    with_hermes(client_of, talk)
