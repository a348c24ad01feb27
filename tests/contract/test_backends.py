"""What every backend promises, whatever its vendor: the same sentences against each of them, on strict stand-ins of their servers."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import socket
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest

from hermes.backends import LLAMA_CPP, OPENAI, SGLANG, VLLM, AnthropicBackend, HttpClient, OllamaBackend, OpenAICompatibleBackend
from hermes.backends.http_backend import HttpBackend
from hermes.ports.backends import (
    Backend,
    BackendError,
    BadRequest,
    Completion,
    ContextTooLong,
    CutShort,
    Delta,
    FindingLevel,
    Garbled,
    ModelRequest,
    Overloaded,
    RateLimited,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Unauthorized,
    Unreachable,
    Usage,
)
from tests.fakes.vendors import Cut, ToolCall, Vendor, Vendors, vendors


@dataclass(frozen=True, slots=True)
class House:
    """A vendor, and the backend that talks to it."""

    vendor: Vendor
    backend: HttpBackend
    model: str

    async def complete(self, ask: ModelRequest, timeout_s: float = 5.0) -> Completion:
        return await self.backend.complete(ask, self.model, timeout_s=timeout_s)

    async def stream(self, ask: ModelRequest, timeout_s: float = 5.0) -> tuple[list[Delta], Completion]:
        async with aclosing(self.backend.stream(ask, self.model, timeout_s=timeout_s)) as stream:
            *deltas, last = [delta async for delta in stream]
        assert isinstance(last, Completion)
        return deltas, last


Build = Callable[[HttpClient, Vendors, str | None], House]


def anthropic(client: HttpClient, v: Vendors, key: str | None) -> House:
    return House(v.anthropic, AnthropicBackend(client, key or v.anthropic.key, v.anthropic.url), "claude-haiku-4-5")


def compatible(flavour: str, dialect: Any) -> Build:
    def build(client: HttpClient, v: Vendors, key: str | None) -> House:
        vendor: Vendor = getattr(v, flavour)
        return House(vendor, OpenAICompatibleBackend(client, vendor.url, key or vendor.key, flavour, dialect), vendor.models[0])

    return build


def ollama(client: HttpClient, v: Vendors, key: str | None) -> House:
    backend = OllamaBackend(client, v.ollama.url, api_key=key or v.ollama.key, takes_tools=True)
    return House(v.ollama, backend, "llama3.2")


HOUSES: dict[str, Build] = {
    "anthropic": anthropic,
    "openai": compatible("openai", OPENAI),
    "vllm": compatible("vllm", VLLM),
    "sglang": compatible("sglang", SGLANG),
    "llama_cpp": compatible("llama_cpp", LLAMA_CPP),
    "ollama": ollama,
}

HELLO = ModelRequest(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}], max_tokens=100)
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
CALLS = (ToolCall("weather", {"place": "Ubud, Bali"}), ToolCall("weather", {"place": "Kyōto"}))


@pytest.fixture
async def v() -> AsyncIterator[Vendors]:
    async with vendors() as running:
        yield running


@pytest.fixture
async def client(v: Vendors) -> AsyncIterator[HttpClient]:  # after the vendors, so that it is closed before them
    client = HttpClient()
    yield client
    await client.aclose()


@pytest.fixture(params=HOUSES)
def build(request: pytest.FixtureRequest) -> Build:
    return HOUSES[request.param]


@pytest.fixture
def house(build: Build, client: HttpClient, v: Vendors) -> House:
    return build(client, v, None)


# --- answers


async def test_gives_the_whole_answer(house: House) -> None:
    house.vendor.say("Hello, 世界.", tokens_in=12, tokens_out=5)
    answer = await house.complete(HELLO)
    assert answer.message == {"role": "assistant", "content": "Hello, 世界."}
    assert (answer.finish_reason, answer.model) == ("stop", house.model)
    assert answer.usage == Usage(tokens_in=12, tokens_out=5)
    assert len(answer.request_digest) == 64


async def test_is_the_port(house: House) -> None:
    backend: Backend = house.backend
    assert backend.name
    assert backend.supports_tools(house.model)
    await backend.aclose()
    assert (await house.complete(HELLO)).message["content"] == "ok"  # closing one backend leaves the shared client alone


@pytest.mark.parametrize(
    "said",
    [
        {"text": "One two three.", "tokens_in": 30, "tokens_out": 7},
        {"text": ""},
        {"text": " spaces  kept \n", "tokens_in": 30, "tokens_out": 7, "cached": 20},
        {"text": "Let me see.", "tool_calls": CALLS},
        {"text": "", "tool_calls": CALLS[:1]},
        {"text": "", "tool_calls": (ToolCall("weather"),)},
    ],
    ids=["text", "nothing", "cached", "calls", "only_a_call", "no_arguments"],
)
async def test_a_stream_is_its_whole_answer(house: House, said: dict[str, Any]) -> None:
    ask = ModelRequest(messages=HELLO.messages, max_tokens=100, tools=[WEATHER])
    house.vendor.say(**said)
    house.vendor.say(**said)
    whole = await house.complete(ask)
    deltas, last = await house.stream(ask)
    assert without_prefix(last.message) == without_prefix(whole.message)
    assert (last.finish_reason, last.usage, last.model) == (whole.finish_reason, whole.usage, whole.model)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == said["text"]
    for at, call in enumerate(last.message.get("tool_calls", ())):
        pieces = [delta for delta in deltas if isinstance(delta, ToolCallDelta) and delta.index == at]
        assert (pieces[0].id, pieces[0].name) == (call["id"], call["function"]["name"])
        assert ("".join(piece.arguments for piece in pieces) or "{}") == call["function"]["arguments"]


async def test_reasoning_comes_apart_from_the_text(house: House) -> None:
    shown = "" if house.backend.name == "openai" else "Two and two…"  # OpenAI keeps it to itself
    house.vendor.say("Four.", reasoning="Two and two…")
    house.vendor.say("Four.", reasoning="Two and two…")
    whole = await house.complete(HELLO)
    deltas, last = await house.stream(HELLO)
    assert (whole.message["content"], whole.message.get("reasoning", "")) == ("Four.", shown)
    assert last.message == whole.message
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == shown
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Four."


async def test_a_tool_round_goes_there_and_back(house: House) -> None:
    """The strict server takes the call back, and the results under it."""
    house.vendor.say("Let me see.", reasoning="Both places." if house.backend.name != "openai" else "", tool_calls=CALLS)
    first = await house.complete(ModelRequest(messages=HELLO.messages, max_tokens=100, tools=[WEATHER]))
    assert first.finish_reason == "tool_calls"
    assert [json.loads(call["function"]["arguments"]) for call in first.message["tool_calls"]] == [call.arguments for call in CALLS]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"{at}: 30 °C"} for at, call in enumerate(first.message["tool_calls"])
    ]
    house.vendor.say("Warm.")
    second = await house.complete(ModelRequest(messages=[*HELLO.messages, first.message, *results], max_tokens=100, tools=[WEATHER]))
    assert second.message["content"] == "Warm."
    sent = json.dumps(house.vendor.requests[-1].body, ensure_ascii=False)
    assert "0: 30 °C" in sent
    assert "Kyōto" in sent


async def test_a_history_from_elsewhere_is_taken(house: House) -> None:
    """Ids that another vendor made, the same id in two rounds, none at all; arguments that are no JSON; fields of others."""
    history = [
        {"role": "user", "content": [{"type": "text", "text": "Rain?"}], "metadata": {"chat": 1}},
        assistant_call("call:1/é", "{not json", reasoning="hm", thinking_blocks={"model": "another", "blocks": [{"type": "thinking"}]}),
        {"role": "tool", "tool_call_id": "call:1/é", "content": "no", "metadata": {"length": 3}},
        assistant_call("call:1/é", "", content="Again."),
        {"role": "tool", "tool_call_id": "call:1/é", "content": ""},
        assistant_call(None, '{"place": "Ubud"}'),
        {"role": "tool", "content": "yes"},
        {"role": "developer", "content": "Be kind."},
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "Thanks"},
        {"role": "user", "content": "a lot"},
    ]
    house.vendor.say("Welcome.")
    answer = await house.complete(ModelRequest(messages=history, max_tokens=100, tools=[WEATHER], tool_choice="auto", user="u-1"))
    assert answer.message["content"] == "Welcome."
    sent = json.dumps(house.vendor.requests[-1].body)
    assert 'metadata": {"chat' not in sent
    assert "thinking_blocks" not in sent
    assert "{not json" in sent


async def test_the_history_may_have_calls_without_tools_to_call(house: House) -> None:
    house.vendor.say("Warm.")
    history = [*HELLO.messages, assistant_call("c1", "{}"), {"role": "tool", "tool_call_id": "c1", "content": "30"}]
    assert (await house.complete(ModelRequest(messages=history, max_tokens=100))).message["content"] == "Warm."


async def test_what_is_said_is_estimated_where_the_vendor_does_not_count(house: House) -> None:
    house.vendor.say("One two three.", tokens_in=None, tokens_out=None)
    house.vendor.say("One two three.", tokens_in=None, tokens_out=None)
    whole = await house.complete(HELLO)
    _, last = await house.stream(HELLO)
    assert whole.usage.is_estimated
    assert whole.usage.tokens_in >= 4
    assert whole.usage.tokens_out >= 4
    assert last.usage == whole.usage


async def test_many_at_once_share_the_client(house: House) -> None:
    for _ in range(40):
        house.vendor.say("hi there")
    answers = await asyncio.gather(*(house.complete(HELLO) if at % 2 else house.stream(HELLO) for at in range(40)))
    assert {(answer if isinstance(answer, Completion) else answer[1]).message["content"] for answer in answers} == {"hi there"}


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
async def test_token_ids_come_back_where_the_server_has_them(house: House, is_stream: bool) -> None:
    ask = ModelRequest(messages=HELLO.messages, max_tokens=100, wants_tokens=True)
    tokens: Any = {"prompt_token_ids": [1, 2, 3], "token_ids": [4, 5, 6], "logprobs": [-0.5, -0.25, -0.125]}
    house.vendor.say("One two three.", tokens_in=3, tokens_out=3, **tokens)
    house.vendor.say("One two three.", tokens_in=3, tokens_out=4, **tokens)  # a token was lost on the way
    right, wrong = [(await house.stream(ask))[1] if is_stream else await house.complete(ask) for _ in range(2)]
    has = {"vllm": (1, 1, 1), "sglang": (1, 1, 1), "llama_cpp": (0, 1, 1)}.get(house.backend.name, (0, 0, 0))
    given = [right.prompt_token_ids, right.token_ids, right.logprobs]
    assert given == [value if there else None for value, there in zip(tokens.values(), has, strict=True)]
    if has[1]:
        assert (wrong.prompt_token_ids, wrong.token_ids, wrong.logprobs) == (None, None, None)
        assert wrong.extra["token_mismatch"]["tokens_out"] == 4
        assert wrong.message == right.message
    plain = await house.complete(HELLO)
    assert plain.logprobs is None, "nobody asked"


async def test_a_request_that_is_none_is_not_sent(house: House) -> None:
    odd: list[dict[str, Any]] = [{"content": "nobody"}, {"role": "assistant", "tool_calls": [7]}]
    for ask in (
        *(ModelRequest(messages=[message], max_tokens=1) for message in odd),
        ModelRequest(messages=HELLO.messages, max_tokens=math.nan),
    ):  # type: ignore[arg-type]
        with pytest.raises(BadRequest):
            await house.complete(ask)
    assert house.vendor.requests == []


async def test_a_deadline_that_has_passed_is_no_time_at_all(house: House) -> None:
    house.vendor.hang()
    with pytest.raises(Unreachable):
        await house.complete(HELLO, -1.0)


# --- how it fails


FAULTS: list[tuple[str, Callable[[Vendor], None], type[BackendError]]] = [
    ("500", lambda vendor: vendor.fail(500), Overloaded),
    ("503", lambda vendor: vendor.fail(503), Overloaded),
    ("529", lambda vendor: vendor.fail(529), Overloaded),
    ("429", lambda vendor: vendor.fail(429, headers={"retry-after": "7"}), RateLimited),
    ("402", lambda vendor: vendor.fail(402), Unauthorized),
    ("403", lambda vendor: vendor.fail(403), Unauthorized),
    ("400", lambda vendor: vendor.fail(400), BadRequest),
    ("413", lambda vendor: vendor.fail(413), BadRequest),
    ("too_long", lambda vendor: vendor.fail(400, "This model's maximum context length is 4096 tokens."), ContextTooLong),
    ("proxy_page", lambda vendor: vendor.html(502), Overloaded),
    ("page", lambda vendor: vendor.html(), Garbled),
    ("empty", lambda vendor: vendor.empty(), Garbled),
    ("null", lambda vendor: vendor.raw(b"null"), Garbled),
    ("no_fields", lambda vendor: vendor.raw(b"{}"), Garbled),
    ("redirect", lambda vendor: vendor.raw(b"", status=307), Garbled),
    ("reset", lambda vendor: vendor.reset(), Unreachable),
    ("hang", lambda vendor: vendor.hang(), Unreachable),
    ("garbage", lambda vendor: vendor.say("a b c", cut=Cut.GARBAGE, cut_after=0), Garbled),
    ("nothing_but_an_end", lambda vendor: vendor.say("a b c", cut=Cut.END, cut_after=0), Garbled),
    ("error_in_a_200", lambda vendor: vendor.say("a b c", cut=Cut.ERROR, cut_after=0), Overloaded),
    ("broken_body", lambda vendor: vendor.say("a b c", cut=Cut.RESET, cut_after=0), Unreachable),
    ("hanging_body", lambda vendor: vendor.say("a b c", cut=Cut.HANG, cut_after=0), Unreachable),
]


HANGING = [fault for name, fault, _ in FAULTS if name.startswith("hang")]


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("fault", "error"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
async def test_each_fault_is_its_error(house: House, fault: Callable[[Vendor], None], error: type[BackendError], is_stream: bool) -> None:
    fault(house.vendor)
    with pytest.raises(BackendError) as caught:
        await (house.stream if is_stream else house.complete)(HELLO, 0.1 if fault in HANGING else 5)
    assert type(caught.value) is error
    assert (caught.value.backend, caught.value.model) == (house.backend.name, house.model)
    assert len(house.vendor.requests) == 1, "a backend asks once"
    if isinstance(caught.value, RateLimited):
        assert caught.value.retry_after_s == 7


async def test_no_such_model_is_not_the_requests_fault(house: House) -> None:
    with pytest.raises(Unauthorized):
        await house.backend.complete(HELLO, "no-such-model", timeout_s=5)


@pytest.mark.parametrize("cut", Cut)
async def test_what_breaks_after_the_first_word_keeps_the_words(house: House, cut: Cut) -> None:
    house.vendor.say("One two three four.", tokens_in=30, tokens_out=9, cut=cut, cut_after=2)
    stream = house.backend.stream(HELLO, house.model, timeout_s=0.4 if cut is Cut.HANG else 5)
    assert [await anext(stream), await anext(stream)] == [TextDelta("One"), TextDelta(" two")]
    with pytest.raises(CutShort) as caught:
        await anext(stream)
    assert caught.value.partial == {"role": "assistant", "content": "One two"}
    assert caught.value.usage.is_estimated
    assert caught.value.usage.tokens_out >= 2
    assert caught.value.usage.tokens_in >= 4
    assert not caught.value.fails_over


async def test_a_slow_stream_may_take_as_long_as_it_was_given(house: House) -> None:
    house.vendor.say("a b c d", drip_s=0.02)
    _, last = await house.stream(HELLO)
    assert last.message["content"] == "a b c d"
    house.vendor.say("a b c d e f", drip_s=0.1)
    with pytest.raises(CutShort):
        await house.stream(HELLO, 0.35)


async def test_closing_a_stream_ends_its_connection(house: House) -> None:
    house.vendor.say("a b c d", drip_s=0.05)
    async with aclosing(house.backend.stream(HELLO, house.model, timeout_s=30)) as deltas:
        assert await anext(deltas) == TextDelta("a")
    await house.vendor.hung_up()
    assert house.vendor.active == 0


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
async def test_cancelling_ends_the_connection(house: House, is_stream: bool) -> None:
    house.vendor.hang()
    task = asyncio.create_task((house.stream if is_stream else house.complete)(HELLO, 30))
    await house.vendor.asked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await house.vendor.hung_up()
    house.vendor.say("still here")
    assert (await house.complete(HELLO)).message["content"] == "still here"


async def test_a_finished_stream_leaves_its_connection_for_the_next(house: House) -> None:
    for _ in range(3):
        await house.stream(HELLO)
        await house.complete(HELLO)
    assert house.vendor.abandoned == 0


async def test_nobody_is_there(build: Build, client: HttpClient, v: Vendors) -> None:
    house = build(client, v, None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    house.backend._base_url = f"http://127.0.0.1:{port}"
    with pytest.raises(Unreachable):
        await house.complete(HELLO)
    with pytest.raises(Unreachable):
        await house.stream(HELLO)
    [check] = await house.backend.health_check(timeout_s=2)
    assert (check.code, check.level) == ("unreachable", FindingLevel.ERROR)


# --- secrets


async def test_keys_are_in_no_error_and_no_log(build: Build, client: HttpClient, v: Vendors, caplog: pytest.LogCaptureFixture) -> None:
    secret = "sk-very-secret-0042"  # noqa: S105 - not one
    house = build(client, v, secret)
    caplog.set_level(logging.DEBUG)
    shown: list[str] = [repr(house.backend), str(house.backend)]
    v_key = house.vendor.key
    for fault in (None, lambda: house.vendor.fail(400, f"no: {secret}"), house.vendor.reset, house.vendor.empty, house.vendor.hang):
        if fault is not None:
            house.vendor.key = secret  # the right one now, so that the script is reached
            fault()
        for ask in (house.complete, house.stream):
            try:
                await ask(HELLO, 0.1)
            except BackendError as error:
                shown += [str(error), repr(error), "".join(traceback.format_exception(error)), *chain(error)]
        house.vendor.key = v_key
    shown += [str(await house.backend.health_check()), caplog.text]
    assert len(shown) > 20
    assert not [text for text in shown if secret in text]


# --- health


async def test_health_is_good(house: House) -> None:
    [check] = await house.backend.health_check()
    assert (check.code, check.level) == ("ok", FindingLevel.INFO)
    assert " ms" in check.message


async def test_health_says_that_the_key_is_wrong(build: Build, client: HttpClient, v: Vendors) -> None:
    [check] = await build(client, v, "wrong").backend.health_check()
    assert (check.code, check.level) == ("unauthorized", FindingLevel.ERROR)
    assert "wrong" not in check.message


async def test_health_says_which_model_is_missing(house: House) -> None:
    house.backend._needs = (house.model,)
    assert [check.code for check in await house.backend.health_check()] == ["ok"]
    house.backend._needs = (house.model, "no-such-model")
    codes = [(check.code, check.level) for check in await house.backend.health_check()]
    if house.backend.name == "llama_cpp":  # it serves one model under any name
        assert codes == [("ok", FindingLevel.INFO)]
    else:
        assert codes == [("model_missing", FindingLevel.ERROR)]


# --- helpers


def assistant_call(call_id: str | None, arguments: str, content: str | None = None, **more: Any) -> dict[str, Any]:
    call: dict[str, Any] = {"type": "function", "function": {"name": "weather", "arguments": arguments}}
    return {"role": "assistant", "content": content, "tool_calls": [{"id": call_id, **call} if call_id else call], **more}


def without_prefix(message: Any) -> Any:
    """Ids that the server did not give are made from the request, and a stream is another request."""
    calls = [
        {**call, "id": call["id"].rpartition("_")[2] if call["id"].startswith("call_") else call["id"]}
        for call in message.get("tool_calls", ())
    ]
    return {**message, "tool_calls": calls} if calls else message


def chain(error: BaseException | None) -> list[str]:
    """Every error behind an error, also those that a traceback does not show."""
    return [repr(error), *chain(error.__cause__), *chain(error.__context__)] if error else []
