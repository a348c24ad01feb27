"""harbor's own models and validator take every document."""

import json
from pathlib import Path

import pytest

from hermes import MessageGraph
from hermes.trajectories.formats.atif import AtifWriter
from tests.readers.pages import run_page
from tests.unit.trajectories.samples import TRAINED, sessions
from tests.unit.trajectories.text_sessions import answer, forked_session, ledger, nested_session, sampled, tool_session, user, write

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs
REASON = "needs harbor (Python 3.12): pip install harbor"


def odd_session() -> MessageGraph:
    seen = [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "https://x/cat.png"}}, {"type": "input_audio"}]
    chat = MessageGraph([user(seen), {"role": "tool", "content": "orphan"}, {"role": "developer", "content": "half \ud800"}], seed="odd")
    chat.append(answer(None, tool_calls=[{"function": {"name": "x", "arguments": "1e999"}}]), sampled=False)
    sampled(chat, "odd", answer("a cat", reasoning_content="hm", reasoning="other"), logprobs=[float("-inf")], token_ids=[1])
    return chat


def test_harbor_reads_back_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("harbor.models.trajectories", reason=REASON)
    validator = pytest.importorskip("harbor.utils.trajectory_validator", reason=REASON)
    graphs = [*(session.graph for session in sessions()), tool_session(), forked_session(), nested_session(), odd_session()]
    write(tmp_path / "out", AtifWriter, *graphs)
    monkeypatch.chdir(tmp_path)
    names = run_page("atif")
    files = sorted((tmp_path / "out").glob("trajectory-*.json"))
    assert [document.to_json_dict() for document in names["documents"]] == [json.loads(file.read_bytes()) for file in files]
    for file in files:
        check = validator.TrajectoryValidator()
        assert check.validate(file), check.errors
    steps = {step.extra["hermes"]["sample"]: step for step in names["steps"]}
    assert steps.keys() == ledger(tmp_path / "out").keys()
    assert len(steps) == len(names["steps"])
    for name, (prompt, completion, _) in TRAINED.items():
        metrics = steps[name].metrics
        assert (metrics.prompt_token_ids, metrics.completion_token_ids[: len(completion)]) == (prompt, completion)
