"""What a call record says is what the server gave, or is named as derived, or is absent: the same table for every backend."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from hermes.backends import PLAIN, HttpClient, LocalBackend, OpenAICompatibleBackend, Script, ScriptedBackend
from hermes.backends.processes.claude import ClaudeLocal
from hermes.backends.processes.codex import CodexLocal
from hermes.gateway.chat_request import ChatRequest
from hermes.gateway.client_chats import record_of
from hermes.graph import CallRecord, MessageGraph
from hermes.ports.backends import Backend, Completion, ModelRequest
from hermes.ports.models import Answer, CallAttempt, CallOutcome, CallSource, ModelCall
from hermes.router.effects import JournaledAnswer
from hermes.trajectories.calls import SamplePolicies, read_calls
from hermes.trajectories.source import ExportSession
from tests.contract.test_backends import HOUSES
from tests.fakes.vendors import Vendors, vendors

MESSAGES = [{"role": "user", "content": "Hello?"}]
SAID: dict[str, Any] = {
    "text": "Hi.",
    "tokens_in": 3,
    "tokens_out": 2,
    "prompt_token_ids": [1, 2, 3],
    "token_ids": [8, 9],
    "logprobs": [-0.5, -0.25],
    "weight_version": "step-12",
}
COUNTS = {"prompt_tokens": 3, "completion_tokens": 2}
IDS = {"token_ids": [8, 9], "logprobs": [-0.5, -0.25]}
ABSENT: dict[str, Any] = dict.fromkeys(
    ("tokenizer", "policy_version", "prompt_token_ids", "token_ids", "logprobs", "logprob_mode", "raw_text", "policy_spans")
)
SMOLLM = "SmolLM2-135M-Instruct.Q4_1"
FAKES = Path(__file__).parents[1] / "fakes"


@dataclass(frozen=True, slots=True)
class Expected:
    """What the record of one backend says beside what is ABSENT, of a whole answer and of a stream."""

    whole: dict[str, Any]
    stream: dict[str, Any]
    sampling: dict[str, Any]
    not_sent: list[str] | None = None


def text_grade(model: str, **more: Any) -> dict[str, Any]:
    return {**ABSENT, "model": model, "usage": COUNTS, "derived": None, **more}


def with_ids(model: str, **more: Any) -> dict[str, Any]:
    return {**ABSENT, **IDS, "model": model, "tokenizer": model, "usage": COUNTS, "derived": ["tokenizer"], **more}


SAMPLING = {"temperature": 0.5, "top_p": 0.9, "stop": ["."], "seed": 7}
PROGRAM_COUNTS = {"prompt_tokens": 20, "completion_tokens": 7}
PROMPT = {"prompt_token_ids": [1, 2, 3]}
ESTIMATED = {"estimated_prompt_tokens", "estimated_completion_tokens"}
TABLE: dict[str, Expected] = {
    "anthropic": Expected(*[text_grade("claude-haiku-4-5")] * 2, {"temperature": 0.5, "top_p": 0.9, "stop": ["."]}, ["seed"]),
    "openai": Expected(*[text_grade("gpt-fake")] * 2, SAMPLING),
    "plain": Expected(*[text_grade("fake-8b")] * 2, SAMPLING),
    "vllm": Expected(*[with_ids("fake-8b", **PROMPT)] * 2, SAMPLING),
    "sglang": Expected(with_ids("fake-8b", **PROMPT, policy_version="step-12"), with_ids("fake-8b", **PROMPT), SAMPLING),
    "llama_cpp": Expected(*[with_ids("fake-8b", logprob_mode="raw")] * 2, SAMPLING),
    "ollama": Expected(*[text_grade("llama3.2")] * 2, SAMPLING),
    "claude": Expected(*[text_grade("a-model", usage={**PROGRAM_COUNTS, "cache_read": 5, "cache_write": 3})] * 2, {}, list(SAMPLING)),
    "codex": Expected(*[text_grade("a-model", usage={**PROGRAM_COUNTS, "cache_read": 8}, derived=["model"])] * 2, {}, list(SAMPLING)),
    "scripted": Expected(*[text_grade("scripted", usage=None)] * 2, {}, list(SAMPLING)),
}
"""What the strict stand-ins of the servers give for SAID, each in its own protocol."""


@pytest.fixture
async def v() -> AsyncIterator[Vendors]:
    async with vendors() as running:
        yield running


@pytest.fixture
async def client(v: Vendors) -> AsyncIterator[HttpClient]:  # after the vendors, so that it is closed before them
    client = HttpClient()
    yield client
    await client.aclose()


def backend_for(name: str, client: HttpClient, v: Vendors, folder: Path) -> tuple[Backend, str]:
    """A backend whose server is about to say SAID, and the model to ask."""
    if name in HOUSES:
        house = HOUSES[name](client, v, None)
        house.vendor.say(**SAID)
        return house.backend, house.model
    if name == "plain":
        v.vllm.say(**SAID)
        return OpenAICompatibleBackend(client, v.vllm.url, v.vllm.key, "plain", PLAIN), v.vllm.models[0]
    if name == "scripted":
        return ScriptedBackend(Script.parse('[[rule]]\nsay = "Hi."')), "gpt-9"
    kind, script = {"claude": (ClaudeLocal, "claude_command.py"), "codex": (CodexLocal, "codex_command.py")}[name]
    fake = json.dumps({"seen": str(folder / "seen.json")})
    return kind((sys.executable, str(FAKES / script)), environment={"FAKE": fake}), "a-model"


async def whole(backend: Backend, ask: ModelRequest, model: str) -> Completion:
    return await backend.complete(ask, model, timeout_s=60)


async def stream(backend: Backend, ask: ModelRequest, model: str) -> Completion:
    async with aclosing(backend.stream(ask, model, timeout_s=60)) as pieces:
        *_, last = [piece async for piece in pieces]
    assert isinstance(last, Completion)
    return last


Get = Callable[[Backend, ModelRequest, str], Awaitable[Completion]]
CALL_ID = UUID(int=7)


def recorded_by_api(completion: Completion, *attempts: str, **metadata: str) -> CallRecord:
    """The record that the completions API and batches write."""
    request = ChatRequest(model="asked", messages=MESSAGES, sampling=SAMPLING, response_format=None, metadata=metadata)
    call = ModelCall(
        id=CALL_ID,
        day=datetime.now(UTC).date(),
        account_id="a",
        source=CallSource.COMPLETIONS,
        tier="t",
        model="asked",
        outcome=CallOutcome.ANSWERED,
        latency_ms=1,
        attempts=[CallAttempt(name, "b", name, "answered", 1) for name in attempts],
    )
    return record_of(request, call, completion)


def recorded_by_router(completion: Completion) -> CallRecord:
    """The record that a turn writes, read out of its journal."""
    answer = Answer(CALL_ID, completion, backend="b", model="asked", micro_usd=0, rate={}, attempts=(), latency_ms=1)
    return JournaledAnswer.from_bytes(JournaledAnswer.of(answer).to_bytes()).record(())


def told(record: CallRecord) -> dict[str, Any]:
    """What a record says about where it comes from."""
    lists = {name: None if (ids := getattr(record, name)) is None else list(ids) for name in ("prompt_token_ids", "token_ids", "logprobs")}
    known = {name: getattr(record, name) for name in ("model", "usage", *ABSENT)}
    return {**known, **lists, "derived": (record.extra or {}).get("derived")}


@pytest.mark.parametrize("get", [whole, stream])
@pytest.mark.parametrize("name", TABLE)
async def test_a_record_says_what_the_server_gave(name: str, get: Get, client: HttpClient, v: Vendors, tmp_path: Path) -> None:
    backend, model = backend_for(name, client, v, tmp_path)
    completion = await get(backend, ModelRequest(messages=MESSAGES, max_tokens=50, sampling=SAMPLING, wants_tokens=True), model)
    expected = TABLE[name].whole if get is whole else TABLE[name].stream
    if name == "scripted":  # it counts the words of the request
        expected = {**expected, "usage": {"prompt_tokens": completion.usage.tokens_in, "completion_tokens": completion.usage.tokens_out}}
    by_api, by_router = recorded_by_api(completion), recorded_by_router(completion)
    assert told(by_api) == expected
    assert told(by_router) == expected
    assert (by_api.prompt_derived, by_router.prompt_derived) == (False, False)
    assert by_api.sampling == TABLE[name].sampling
    assert (by_api.extra or {}).get("not_sent") == TABLE[name].not_sent


@pytest.mark.parametrize("name", ["anthropic", "openai", "vllm", "sglang", "ollama"])
async def test_counts_that_the_server_did_not_give_are_named_as_estimated(
    name: str, client: HttpClient, v: Vendors, tmp_path: Path
) -> None:
    backend, model = backend_for(name, client, v, tmp_path)
    HOUSES[name](client, v, None).vendor.say("Hi.", tokens_in=None, tokens_out=None)
    ask = ModelRequest(messages=MESSAGES, max_tokens=50, wants_tokens=True)
    await whole(backend, ask, model)  # what was said for the table
    completion = await whole(backend, ask, model)
    for record in (recorded_by_api(completion), recorded_by_router(completion)):
        assert set(record.usage or {}) == ESTIMATED
        chat = MessageGraph(MESSAGES)
        chat.append({"role": "assistant", "content": "Hi."}, call=record)
        [call] = read_calls(ExportSession("s", chat), SamplePolicies())
        assert call.sampled == 0, "an estimate is no count of sampled tokens"


async def test_the_clients_label_names_the_weights_only_of_the_model_it_asked_for(client: HttpClient, v: Vendors, tmp_path: Path) -> None:
    backend, model = backend_for("vllm", client, v, tmp_path)
    completion = await whole(backend, ModelRequest(messages=MESSAGES, max_tokens=50, wants_tokens=True), model)
    record = recorded_by_api(completion, "asked", "asked", policy_version="step-3")
    assert (record.policy_version, (record.extra or {})["derived"]) == ("step-3", ["tokenizer", "policy_version"])
    other = recorded_by_api(completion, "asked", "another", policy_version="step-3")
    assert (other.policy_version, (other.extra or {})["derived"]) == (None, ["tokenizer"])
    assert (other.extra or {})["metadata"] == {"policy_version": "step-3"}
    backend, model = backend_for("sglang", client, v, tmp_path)
    completion = await whole(backend, ModelRequest(messages=MESSAGES, max_tokens=50, wants_tokens=True), model)
    record = recorded_by_api(completion, "asked", policy_version="step-3")
    assert (record.policy_version, (record.extra or {})["derived"]) == ("step-12", ["tokenizer"]), "the server knows better"


async def test_weights_that_no_trainer_named_have_no_version(client: HttpClient, v: Vendors, tmp_path: Path) -> None:
    backend, model = backend_for("sglang", client, v, tmp_path)
    v.sglang.say("Hi.")
    ask = ModelRequest(messages=MESSAGES, max_tokens=50, wants_tokens=True)
    assert [(await whole(backend, ask, model)).policy_version for _ in range(2)] == ["step-12", None]


async def test_a_real_small_model_has_its_own_ids_and_a_prompt_that_is_marked_as_derived() -> None:
    pytest.importorskip("xllamacpp")
    backend = LocalBackend(context=1024)
    try:
        ask = ModelRequest(messages=MESSAGES, max_tokens=6, sampling={"temperature": 0.0}, wants_tokens=True)
        completion = await whole(backend, ask, "claude-sonnet-4-6")
        greedy = await whole(backend, ModelRequest(messages=MESSAGES, max_tokens=6, sampling={"top_k": 1}, wants_tokens=True), "m")
        broken = await stream(backend, ask, "claude-sonnet-4-6")
    finally:
        await backend.aclose()
    for record in (recorded_by_api(completion), recorded_by_router(completion)):
        assert (record.model, record.tokenizer, record.policy_version, record.logprob_mode) == (SMOLLM, SMOLLM, None, "raw")
        assert (record.extra or {})["derived"] == ["prompt_token_ids", "tokenizer"]
        assert record.prompt_derived
        assert len(record.prompt_token_ids or ()) == completion.usage.tokens_in
        assert len(record.token_ids or ()) == len(record.logprobs or ()) == completion.usage.tokens_out
        chat = MessageGraph(MESSAGES)
        chat.append(completion.message, call=record)
        [call] = read_calls(ExportSession("s", chat), SamplePolicies())
        assert (call.trained, [part.reason for part in call.excluded]) == (0, ["prompt tokens derived, not recorded"])
        [call] = read_calls(ExportSession("s", chat), SamplePolicies(derived="include"))
        assert (call.trained, call.on_policy) == (completion.usage.tokens_out, False)
    assert greedy.logprobs == completion.logprobs, "raw: with one token to choose from its probability would be 1"
    assert max(greedy.logprobs or [0.0]) < 0
    assert broken.token_ids is None or len(broken.token_ids) == broken.usage.tokens_out
