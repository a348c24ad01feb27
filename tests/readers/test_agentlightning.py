"""agent-lightning 0.3 reads the spans, and its adapter makes our calls of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes.trajectories.formats.agentlightning import AgentLightningWriter
from tests.readers.pages import run_page
from tests.unit.trajectories.samples import TRAINED, TRAINED_TOKENS, written

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs
ORDER = {
    "s": ["ask", "answer", "fork", "twin-1", "odd-1", "whole", "rest", "tail", "inner"],
    "s~1": ["twin-2", "odd-2"],
    "s/r2": ["other"],
    "t": ["plain"],
}


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise it waits for a network
    pytest.importorskip("agentlightning", reason="needs agent-lightning: pip install agentlightning")
    written(tmp_path / "out", "agentlightning", AgentLightningWriter)
    monkeypatch.chdir(tmp_path)
    return run_page("agentlightning")


def test_a_triplet_is_a_call(names: dict[str, Any]) -> None:
    found = {
        rollout: [(triplet.prompt["token_ids"], triplet.response["token_ids"]) for triplet in triplets]
        for rollout, triplets in names["triplets"].items()
    }
    assert found == {rollout: [TRAINED[sample][:2] for sample in samples] for rollout, samples in ORDER.items()}
    assert sum(len(response) for calls in found.values() for _, response in calls) == TRAINED_TOKENS
    first = names["triplets"]["s"][0].response["logprobs"]
    assert [item["logprob"] for item in first] == TRAINED["ask"][2]


def test_the_reward_goes_to_the_last_call(names: dict[str, Any]) -> None:
    rewards = {rollout: [triplet.reward for triplet in triplets] for rollout, triplets in names["triplets"].items()}
    assert rewards == {"s": [*[None] * 8, 1.0], "s~1": [None, 1.0], "s/r2": [-1.0], "t": [None]}


def test_its_store_keeps_the_spans(names: dict[str, Any]) -> None:
    memory = pytest.importorskip("agentlightning.store.memory")
    spans = [names["Span"].model_validate_json(line) for line in Path("out/spans.jsonl").read_text().splitlines()]

    async def stored() -> Any:
        store = memory.InMemoryLightningStore()
        rollout = await store.start_rollout(input={})
        here = {"rollout_id": rollout.rollout_id, "attempt_id": rollout.attempt.attempt_id}
        for span in spans:
            if span.rollout_id == "s":
                await store.add_span(span.model_copy(update=here))
        return await store.query_spans(rollout.rollout_id, rollout.attempt.attempt_id)

    triplets = names["adapter"].adapt(list(asyncio.run(stored())))
    assert [triplet.response["token_ids"] for triplet in triplets] == [TRAINED[sample][1] for sample in ORDER["s"]]
