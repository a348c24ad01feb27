"""TRL trains exactly the labelled tokens of the export."""

from pathlib import Path
from typing import Any

import pytest

from hermes.trajectories.formats.trl import TrlWriter
from tests.readers.pages import CountingModel, run_page
from tests.unit.trajectories.samples import TRAINED_TOKENS, written

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name, value in {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    pytest.importorskip("trl", reason="needs TRL: pip install trl")
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    written(tmp_path / "out", "trl", TrlWriter)
    monkeypatch.chdir(tmp_path)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"t{number}": number for number in range(128)}, unk_token="t0"))  # noqa: S106
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t1", eos_token="t2", unk_token="t0")  # noqa: S106
    machine = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "save_strategy": "no", "disable_tqdm": True}
    return run_page("trl", model=CountingModel().llama, tokenizer=tokenizer, machine=machine)


def test_the_trainer_keeps_every_row_and_trains_every_label_once(page: dict[str, Any]) -> None:
    batches = list(page["trainer"].get_train_dataloader())
    assert sum(len(batch["labels"]) for batch in batches) == 12
    assert sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in batches) == TRAINED_TOKENS
    assert sorted(int(length) for batch in batches for length in batch["attention_mask"].sum(1)) == sorted(
        map(len, page["rows"]["input_ids"])
    )
    assert page["trainer"].state.global_step == 1


def test_other_columns_come_along(page: dict[str, Any]) -> None:
    assert page["rows"]["samples"][0] == ["ask", "answer"]
    assert page["rows"]["logprobs"][-1][2:] == [-0.10000000149011612, -0.20000000298023224]
