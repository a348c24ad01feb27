"""verl reads the lines, and pads them to a batch with its own code."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes.trajectories.formats.verl import VerlWriter
from tests.readers.pages import CountingModel, run_page
from tests.unit.trajectories.samples import TRAINED, TRAINED_TOKENS, written

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs


@pytest.fixture
def verl() -> Any:
    return pytest.importorskip("verl.experimental.agent_loop.agent_loop", reason="needs verl: pip install verl")


def test_its_batch_trains_every_token_once(tmp_path: Path, verl: Any) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    lines = (written(tmp_path / "out", "verl", VerlWriter) / "rows.jsonl").read_text().splitlines()
    outputs = [verl.AgentLoopOutput.model_validate_json(line) for line in lines]
    assert sum(int(output.as_dict()["response_mask"].sum()) for output in outputs) == TRAINED_TOKENS

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"t{number}": number for number in range(128)}, unk_token="t0"))  # noqa: S106
    worker = verl.AgentLoopWorker.__new__(verl.AgentLoopWorker)  # its padding, without an engine
    worker.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t1")  # noqa: S106
    worker.processor, worker.reward_loop_worker_handles, worker.distillation_enabled = None, None, False
    worker.rollout_config = SimpleNamespace(prompt_length=16, response_length=12)
    worker._get_mm_processor_kwargs = lambda *_, **__: {}
    rewarded = [output for output in outputs if output.reward_score is not None]
    padded = [asyncio.run(worker._agent_loop_postprocess(output, False, raw_prompt=[])) for output in rewarded]
    batch = worker._postprocess(padded)
    batch.check_consistency()
    mask = batch.batch["response_mask"].bool()
    assert int(mask.sum()) == TRAINED_TOKENS - len(TRAINED["plain"][1])
    assert int(batch.batch["attention_mask"].sum()) == sum(len(output.prompt_ids) + len(output.response_ids) for output in rewarded)
    assert batch.batch["rollout_log_probs"][mask].tolist()[:7] == TRAINED["ask"][2] + TRAINED["answer"][2]
    assert batch.batch["rm_scores"].sum(1).tolist() == [*[1.0] * 10, -1.0]
    assert batch.non_tensor_batch["hermes"][1]["samples"][0]["sample"] == "fork"


def test_the_how_to_takes_a_step(tmp_path: Path, verl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "out", "verl", VerlWriter)
    monkeypatch.chdir(tmp_path)
    model = CountingModel()
    run_page("verl", model=model)
    assert model.has_gradient
