"""verifiers reads the traces with its own loader, and its branches are our rows."""

from pathlib import Path
from typing import Any

import pytest

from hermes.trajectories.formats.verifiers import VerifiersWriter
from tests.readers.pages import CountingModel, run_page
from tests.unit.trajectories.samples import TRAINED, TRAINED_TOKENS, written

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs


@pytest.fixture
def episodes(tmp_path: Path) -> list[Any]:
    trace = pytest.importorskip("verifiers.v1.trace", reason="needs verifiers: pip install verifiers")
    store = pytest.importorskip("verifiers.v1.utils.trace_store")
    found: list[Any] = store.read_episodes(written(tmp_path / "out", "verifiers", VerifiersWriter), trace.WireTrace)
    return found


def test_every_sample_is_a_node_in_its_context(episodes: list[Any]) -> None:
    traces = [trace for episode in episodes for trace in episode.traces]
    samples = [(trace, known) for trace in traces for known in trace.info["hermes"]["samples"]]
    assert sorted(known["sample"] for _, known in samples) == sorted(TRAINED)
    for trace, known in samples:
        prompt, completion, logprobs = TRAINED[known["sample"]]
        node = trace.nodes[known["node"]]
        path = []
        at: int | None = known["node"]
        while at is not None:
            path.insert(0, trace.nodes[at])
            at = trace.nodes[at].parent
        assert [token for part in path for token in part.token_ids] == prompt + completion
        assert [token for token, mask in zip(node.token_ids, node.mask, strict=True) if mask] == completion
        assert node.logprobs == pytest.approx(logprobs, rel=1e-7)
        assert node.sampled
    assert sum(sum(node.mask) for trace in traces for node in trace.nodes) == TRAINED_TOKENS


def test_branches_are_trainable_and_rewarded(episodes: list[Any]) -> None:
    assert [(trace.reward, trace.num_turns, trace.num_branches) for episode in episodes for trace in episode.traces] == [
        (1.0, 11, 10),
        (-1.0, 1, 1),
        (0, 1, 1),
    ]
    assert all(branch.trainable for episode in episodes for trace in episode.traces for branch in trace.branches)
    edges = {edge.type for episode in episodes for trace in episode.traces for node in trace.nodes for edge in node.semantic_parents}
    assert edges == {"hermes:edit", "subagent_call", "subagent_return"}
    assert [episode.group.id for episode in episodes] == ["s", "s", "t"]


def test_the_how_to_trains_every_token_once(tmp_path: Path, episodes: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = CountingModel()
    run_page("verifiers", model=model)
    assert (model.labels, model.has_gradient) == (TRAINED_TOKENS, True)
