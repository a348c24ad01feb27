"""What the backends promise, against a real llama.cpp with a real small model: over HTTP as any server of its kind, and as `local`."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import pytest

from hermes.backends import LLAMA_CPP, HttpClient, LocalBackend, OpenAICompatibleBackend
from hermes.backends.local import LlamaEngine, start_engine
from hermes.backends.local_weights import find_model
from hermes.ports.backends import (
    Backend,
    Completion,
    ContextTooLong,
    CutShort,
    Delta,
    FindingLevel,
    ModelRequest,
    TextDelta,
    Unauthorized,
    Unreachable,
)

MODEL = "SmolLM2-135M-Instruct.Q4_1"
CONTEXT = 1024
HELLO = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": "Say hello."}]
EXACT = {"temperature": 0}
LONG = ModelRequest(messages=[{"role": "user", "content": "Tell me a story."}], max_tokens=900, sampling={**EXACT, "ignore_eos": True})
"""Takes ten seconds or more."""
SHORT = ModelRequest(messages=[{"role": "user", "content": "Hi."}], max_tokens=1)


@dataclass(frozen=True, slots=True)
class House:
    name: str
    backend: Backend

    async def complete(self, ask: ModelRequest) -> Completion:
        return await self.backend.complete(ask, "any-name", timeout_s=60)

    async def stream(self, ask: ModelRequest, timeout_s: float = 60) -> tuple[list[Delta], Completion]:
        async with aclosing(self.backend.stream(ask, "any-name", timeout_s=timeout_s)) as stream:
            *deltas, last = [piece async for piece in stream]
        assert isinstance(last, Completion)
        return deltas, last


@pytest.fixture(scope="module")
def server() -> Iterator[LlamaEngine]:
    engine = start_engine(find_model(None), threads=1, context=CONTEXT)
    yield engine
    engine.end()


@pytest.fixture
async def local() -> AsyncIterator[LocalBackend]:
    backend = LocalBackend(context=CONTEXT)
    yield backend
    await backend.aclose()


@pytest.fixture(params=["http", "local"])
async def house(request: pytest.FixtureRequest) -> AsyncIterator[House]:
    if request.param == "http":
        engine: LlamaEngine = request.getfixturevalue("server")
        client = HttpClient()
        yield House("http", OpenAICompatibleBackend(client, engine.address, engine.key, "llama_cpp", LLAMA_CPP))
        await client.aclose()
        return
    backend = LocalBackend(context=CONTEXT)
    yield House("local", backend)
    await backend.aclose()


# --- answers


async def test_answers(house: House) -> None:
    answer = await house.complete(ModelRequest(messages=HELLO, max_tokens=40, sampling=EXACT))
    assert answer.message["role"] == "assistant"
    assert "ello" in answer.message["content"]
    assert (answer.finish_reason, answer.model) == ("stop", MODEL)
    assert house.name == "http" or house.backend.answers_as("any-name") == MODEL, "known before there is an answer"
    assert (answer.usage.tokens_in, answer.usage.is_estimated) == (23, False)
    assert 1 < answer.usage.tokens_out <= 40


async def test_a_stream_is_its_whole_answer_token_by_token(house: House) -> None:
    ask = ModelRequest(messages=HELLO, max_tokens=40, sampling=EXACT)
    whole = await house.complete(ask)
    deltas, last = await house.stream(ask)
    assert (last.message, last.finish_reason, last.model) == (whole.message, whole.finish_reason, whole.model)
    assert (last.usage.tokens_in, last.usage.tokens_out) == (whole.usage.tokens_in, whole.usage.tokens_out)
    texts = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert "".join(texts) == last.message["content"]
    assert len(texts) == last.usage.tokens_out - 1, "one for each token but the last, which is the end"


async def test_stops_at_max_tokens(house: House) -> None:
    ask = ModelRequest(messages=LONG.messages, max_tokens=7, sampling=EXACT)
    for answer in (await house.complete(ask), (await house.stream(ask))[1]):
        assert (answer.finish_reason, answer.usage.tokens_out) == ("length", 7)


async def test_goes_on_with_an_answer_that_was_begun(house: House) -> None:
    begun = [{"role": "user", "content": "Count to five."}, {"role": "assistant", "content": "1, 2, 3, 4,"}]
    answer = await house.complete(ModelRequest(messages=begun, max_tokens=5, sampling=EXACT))
    assert "5" in answer.message["content"]


async def test_keeps_to_a_json_schema(house: House) -> None:
    properties = {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 1, "maximum": 99}}
    schema = {"type": "object", "properties": properties, "required": ["name", "age"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}
    answer = await house.complete(ModelRequest(messages=HELLO, max_tokens=60, sampling=EXACT, response_format=form))
    person = json.loads(answer.message["content"])
    assert person.keys() == {"name", "age"}
    assert isinstance(person["name"], str)
    assert 1 <= person["age"] <= 99


# --- tokens


async def test_a_whole_answer_has_its_token_ids_and_their_logprobs(house: House) -> None:
    answer = await house.complete(ModelRequest(messages=HELLO, max_tokens=40, sampling=EXACT, wants_tokens=True))
    assert answer.finish_reason == "stop"
    assert answer.token_ids is not None
    assert answer.logprobs is not None
    assert len(answer.token_ids) == len(answer.logprobs) == answer.usage.tokens_out
    assert all(-20 < score <= 0 for score in answer.logprobs)
    assert (await house.complete(ModelRequest(messages=HELLO, max_tokens=2))).token_ids is None, "nobody asked"


async def test_a_stream_that_is_cut_at_its_length_has_its_token_ids(house: House) -> None:
    ask = ModelRequest(messages=LONG.messages, max_tokens=7, sampling=EXACT, wants_tokens=True)
    whole, (_, last) = await house.complete(ask), await house.stream(ask)
    assert last.token_ids == whole.token_ids
    assert last.logprobs == pytest.approx(whole.logprobs, abs=0.05)  # another batch rounds otherwise
    assert len(last.token_ids or ()) == 7


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
async def test_there_are_no_token_ids_where_llama_cpp_loses_some(house: House, is_stream: bool) -> None:
    """Of an emoji it reports the last token only, and in a stream not the one that ends the answer. Some ids would be a lie."""
    grammar = 'root ::= "ok"' if is_stream else 'root ::= "🦜🥭"'
    ask = ModelRequest(messages=HELLO, max_tokens=20, sampling={**EXACT, "grammar": grammar}, wants_tokens=True)
    answer = (await house.stream(ask))[1] if is_stream else await house.complete(ask)
    assert answer.message["content"] == ("ok" if is_stream else "🦜🥭")
    assert (answer.prompt_token_ids, answer.token_ids, answer.logprobs) == (None, None, None)
    assert answer.extra["token_mismatch"]["tokens_out"] == answer.usage.tokens_out > answer.extra["token_mismatch"]["token_ids"]


async def test_the_next_prompt_begins_with_this_prompt_and_this_answer(local: LocalBackend) -> None:
    first = await local.complete(ModelRequest(messages=HELLO, max_tokens=40, sampling=EXACT, wants_tokens=True), "m", timeout_s=60)
    assert first.prompt_token_ids is not None
    assert first.token_ids is not None
    assert len(first.prompt_token_ids) == first.usage.tokens_in
    messages = [*HELLO, first.message, {"role": "user", "content": "Again."}]
    second = await local.complete(ModelRequest(messages=messages, max_tokens=2, wants_tokens=True), "m", timeout_s=60)
    assert second.prompt_token_ids is not None
    so_far = [*first.prompt_token_ids, *first.token_ids]
    assert second.prompt_token_ids[: len(so_far)] == so_far
    assert second.usage.cache_read >= len(so_far) - 1, "and the engine read nothing of it twice"


# --- how it fails


async def test_a_prompt_that_does_not_fit_is_too_long(house: House) -> None:
    ask = ModelRequest(messages=[{"role": "user", "content": "word " * 2_000}], max_tokens=5)
    with pytest.raises(ContextTooLong):
        await house.complete(ask)
    with pytest.raises(ContextTooLong):
        await house.stream(ask)


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
async def test_giving_up_stops_the_model(house: House, is_stream: bool) -> None:
    """The model does one thing at a time: a short answer comes soon only if the long one has stopped."""
    await house.complete(SHORT)
    if is_stream:
        async with aclosing(house.backend.stream(LONG, "m", timeout_s=60)) as stream:
            await anext(stream)
    else:
        task = asyncio.create_task(house.complete(LONG))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    started = time.monotonic()
    await house.complete(SHORT)
    assert time.monotonic() - started < 4


async def test_a_deadline_stops_the_model(house: House) -> None:
    await house.complete(SHORT)
    with pytest.raises(Unreachable):
        await house.backend.complete(LONG, "m", timeout_s=0.3)
    with pytest.raises(CutShort) as caught:
        await house.stream(LONG, timeout_s=3)
    assert caught.value.partial["content"]
    started = time.monotonic()
    await house.complete(SHORT)
    assert time.monotonic() - started < 4


async def test_a_wrong_key_is_refused(server: LlamaEngine) -> None:
    client = HttpClient()
    backend = OpenAICompatibleBackend(client, server.address, "wrong", "llama_cpp", LLAMA_CPP)
    with pytest.raises(Unauthorized):
        await backend.complete(SHORT, "m", timeout_s=10)
    assert [check.code for check in await backend.health_check()] == ["unauthorized"]
    await client.aclose()


async def test_health_is_good(house: House) -> None:
    [check] = await house.backend.health_check(timeout_s=30)
    assert (check.code, check.level) == ("ok", FindingLevel.INFO)


# --- the local model's process


async def test_those_who_wait_are_answered_in_their_order(local: LocalBackend) -> None:
    await local.complete(SHORT, "m", timeout_s=60)
    order: list[int] = []

    async def one(number: int) -> None:
        await local.complete(ModelRequest(messages=HELLO, max_tokens=60 if number == 0 else 2), "m", timeout_s=60)
        order.append(number)

    tasks = []
    for number in range(5):
        tasks.append(asyncio.create_task(one(number)))
        await asyncio.sleep(0.05)
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4]


async def test_the_event_loop_runs_on_while_the_model_loads(local: LocalBackend) -> None:
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            gaps.append(time.monotonic() - before)

    ticking = asyncio.create_task(tick())
    started = time.monotonic()
    await asyncio.gather(*(local.complete(SHORT, "m", timeout_s=60) for _ in range(3)))
    took = time.monotonic() - started
    ticking.cancel()
    assert max(gaps) < took / 2
    assert len({engine_of(local).process.pid}) == 1


async def test_closing_ends_the_model_and_a_later_call_starts_it_again(local: LocalBackend) -> None:
    await local.complete(SHORT, "m", timeout_s=60)
    first = engine_of(local).process
    talking = asyncio.create_task(local.complete(LONG, "m", timeout_s=60))
    await asyncio.sleep(0.2)
    await local.aclose()
    assert first.returncode == 0
    with pytest.raises(Unreachable):
        await talking
    assert (await local.complete(SHORT, "m", timeout_s=60)).usage.tokens_out == 1
    assert engine_of(local).process.pid != first.pid


async def test_a_model_that_died_is_started_again(local: LocalBackend) -> None:
    await local.complete(SHORT, "m", timeout_s=60)
    talking = asyncio.create_task(local.complete(LONG, "m", timeout_s=60))
    await asyncio.sleep(0.2)
    engine_of(local).process.kill()
    with pytest.raises(Unreachable):
        await talking
    engine_of(local).process.wait()
    assert (await local.complete(SHORT, "m", timeout_s=60)).usage.tokens_out == 1


async def test_who_does_not_wait_leaves_it_loading(local: LocalBackend) -> None:
    with pytest.raises(Unreachable, match="did not load within"):
        await local.complete(SHORT, "m", timeout_s=0.001)
    [check] = await local.health_check(timeout_s=0.001)
    assert (check.code, check.level) == ("loading", FindingLevel.WARN)
    [check] = await local.health_check(timeout_s=30)
    assert check.code == "ok"


async def test_the_model_sees_no_secret(local: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_MASTER_KEYS", "sk-secret")
    await local.health_check(timeout_s=30)
    engine = engine_of(local)
    about = Path(f"/proc/{engine.process.pid}")
    assert b"sk-secret" not in (about / "environ").read_bytes()
    assert engine.key.encode() not in (about / "environ").read_bytes() + (about / "cmdline").read_bytes()


ABANDON = """
import asyncio, os, sys
from hermes.backends import LocalBackend
local = LocalBackend()
asyncio.run(local.health_check(timeout_s=60))
print(local._starting.result().process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_the_model_does_not_outlive_who_started_it() -> None:
    told = subprocess.run([sys.executable, "-c", ABANDON], capture_output=True, text=True, check=False, timeout=60)
    assert told.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while is_running(int(told.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- helpers


def engine_of(local: LocalBackend) -> LlamaEngine:
    assert local._starting is not None
    return local._starting.result()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
