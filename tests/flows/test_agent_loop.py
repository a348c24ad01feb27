"""An existing agent, pointed at Hermes without a change, is trained on exactly what it did.

The agent speaks OpenAI's chat completions over HTTP and keeps its own record of every call. What `hermes export --since` trains is that
record: every prompt and completion, token by token, each once. (tests/readers/test_agent_loop.py: the same with OpenAI's own client.)"""

import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes.config import BackendKind, BackendSettings, CompletionsSettings, ModelSettings, PriceSettings, Secret, TierSettings
from hermes.graph import MessageGraph
from tests.fakes.vendors import vendors
from tests.flows.agent_loop import TASKS, Agent, Complete, trained
from tests.flows.command import hermes
from tests.flows.service import Service, running
from tests.flows.toy_model import ToyModel


@pytest.fixture
def model() -> ToyModel:
    return ToyModel()


@pytest.fixture
async def service(database_url: str, redis_url: str, model: ToyModel) -> AsyncIterator[Service]:
    """Hermes in front of a vLLM that serves the toy model."""
    async with vendors() as fakes:
        fakes.vllm.models[:] = ["toy-1"]
        fakes.vllm.otherwise = model
        more = {
            "backends": {"gpu": BackendSettings(kind=BackendKind.VLLM, base_url=fakes.vllm.url, api_key=Secret(fakes.vllm.key))},
            "models": {"toy": ModelSettings(backend="gpu", id="toy-1", prices=(PriceSettings(input=0.0, output=0.0),))},
            "tiers": {"agents": TierSettings(chain=("toy",), day_tokens=10_000_000)},
            "completions": CompletionsSettings(tier="agents"),
        }
        async with running(database_url, redis_url, has_worker=False, more=more) as service:
            yield service


def whole(service: Service, key: dict[str, str]) -> Complete:
    """A client that waits for the whole answer."""

    async def complete(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> dict[str, Any]:
        body = {"model": "toy", "messages": messages, "temperature": 1.0, **({"tools": tools} if tools else {})}
        got = await service.post("/v1/chat/completions", body, key)
        assert got.status == 200, got.body
        message: dict[str, Any] = got.body["choices"][0]["message"]
        return message

    return complete


def streamed(service: Service, key: dict[str, str]) -> Complete:
    """A client that puts an answer together from its pieces."""

    async def complete(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> dict[str, Any]:
        body = {"model": "toy", "messages": messages, "stream": True, **({"tools": tools} if tools else {})}
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        calls: dict[int, dict[str, Any]] = {}
        async with service.client.post(f"{service.url}/v1/chat/completions", json=body, headers=key) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                    continue
                delta = json.loads(line.removeprefix(b"data: "))["choices"][0]["delta"]
                message["content"] += delta.get("content") or ""
                for piece in delta.get("tool_calls", ()):
                    call = calls.setdefault(piece["index"], {"id": piece.get("id"), "type": "function", "function": {"arguments": ""}})
                    call["function"].setdefault("name", piece["function"].get("name"))
                    call["function"]["arguments"] += piece["function"].get("arguments") or ""
        return {**message, "tool_calls": list(calls.values())} if calls else message

    return complete


@pytest.mark.parametrize("client", [whole, streamed])
async def test_an_agent_is_trained_on_exactly_what_it_did(service: Service, model: ToyModel, tmp_path: Path, client: Any) -> None:
    agent = Agent(client(service, await service.key(trains=True)))
    assert await agent.work(TASKS) == "You said: good night"
    assert len(agent.record) == 23
    assert Counter(agent.record) == Counter(model.returned), "the agent counts as its server does"

    said = await hermes(service, tmp_path, "export", "--since", "1h", "--out", "rows", "--save-graphs", "graphs.jsonl", "--json")
    assert (said.code, said.complaints) == (0, "")
    summary = json.loads(said.output)
    tokens = sum(len(completion) for _, completion in agent.record)
    assert (summary["samples"], summary["excluded"]) == (len(agent.record), {})
    assert summary["tokens"] == {"sampled": tokens, "trained": tokens, "excluded": 0}
    assert summary["sessions"] == 3, "the agent's own chat, and one for each helper"
    assert trained(tmp_path / "rows") == Counter(agent.record)

    assert (await hermes(service, tmp_path, "verify", "rows", "--against", "graphs.jsonl")).code == 0
    graphs = [MessageGraph.from_json(line) for line in (tmp_path / "graphs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {edge.kind for graph in graphs for edge in graph.edges()} == {"sequential", "edit", "compaction"}, "it was no plain chat"
    wholes = {prompt + completion for prompt, completion in agent.record}
    longest = [one for one in wholes if not any(other[: len(one)] == one for other in wholes - {one})]
    assert (summary["rows"], len(longest) < len(wholes)) == (len(longest), True), "a chat that goes on is one row"


async def test_an_agent_that_runs_on_is_trained_on_what_it_did_when_it_was_asked_for(
    service: Service, model: ToyModel, tmp_path: Path
) -> None:
    agent = Agent(whole(service, await service.key(trains=True)))
    await agent.work(TASKS[:3])
    first = Counter(agent.record)
    assert (await hermes(service, tmp_path, "export", "--since", "1h", "--out", "early")).code == 0
    await agent.work(TASKS[3:])
    assert (await hermes(service, tmp_path, "export", "--since", "1h", "--out", "late")).code == 0
    assert (trained(tmp_path / "early"), trained(tmp_path / "late")) == (first, Counter(agent.record))
