"""slime's files load with torch both ways, and hold what slime's reader asks for: by its source, for slime is not on PyPI."""

from pathlib import Path
from typing import Any

import pytest

from hermes.trajectories.formats.slime import SlimeWriter
from tests.readers.pages import CountingModel, run_page
from tests.unit.trajectories.samples import TRAINED_TOKENS, written
from tests.unit.trajectories.token_units import rollout_files

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="needs torch: pip install torch")


@pytest.mark.parametrize("only_weights", [True, False])
def test_torch_reads_what_was_written(tmp_path: Path, torch: Any, only_weights: bool) -> None:
    folder = written(tmp_path / "out", "slime", SlimeWriter)
    assert [torch.load(folder / "rollout_0.pt", weights_only=only_weights)] == rollout_files(folder)


def test_slimes_conversion_trains_every_token_once(tmp_path: Path, torch: Any) -> None:
    """What `_convert_samples_to_train_data` does: every reward a number, masks of the response's length, sums by rollout."""
    samples = torch.load(written(tmp_path / "out", "slime", SlimeWriter) / "rollout_0.pt", weights_only=False)["samples"]
    assert torch.tensor([sample["reward"] for sample in samples], dtype=torch.float).isfinite().all()
    assert torch.as_tensor([[sample[name] for name in ("index", "group_index", "rollout_id")] for sample in samples]).dtype == torch.int64
    sums: dict[int, int] = {}
    for sample in samples:
        assert sample["status"] == "completed"
        assert sample["response_length"] == len(sample["loss_mask"]) == len(sample["rollout_log_probs"]) <= len(sample["tokens"])
        sums[sample["rollout_id"]] = sums.get(sample["rollout_id"], 0) + sum(sample["loss_mask"])
    assert sums == {0: TRAINED_TOKENS - 4, 1: 2, 2: 2}


def test_the_how_to_trains_every_token_once(tmp_path: Path, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "out", "slime", SlimeWriter)
    monkeypatch.chdir(tmp_path)
    model = CountingModel()
    run_page("slime", model=model)
    assert (model.labels, model.has_gradient) == (TRAINED_TOKENS, True)
