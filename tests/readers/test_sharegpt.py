"""Hugging Face datasets loads the conversations with the types they were written with."""

from pathlib import Path

import pytest

from hermes import MessageGraph
from hermes.trajectories.formats.sharegpt import ShareGptWriter
from hermes.trajectories.imports import ImportedConversation, import_file
from tests.unit.trajectories.text_sessions import answer, forked_session, lines, nested_session, sampled, tool_session, user, write

pytestmark = [pytest.mark.readers, pytest.mark.filterwarnings("default")]  # their warnings are theirs
REASON = "needs datasets: pip install datasets"
SAMPLES = 13


def test_datasets_gives_back_every_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    datasets = pytest.importorskip("datasets", reason=REASON)
    write(tmp_path / "out", ShareGptWriter, tool_session(), forked_session(), nested_session())
    file = tmp_path / "out" / "sharegpt.jsonl"
    loaded = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == lines(file)
    assert sum(turn["train"] for row in loaded for turn in row["conversations"]) == SAMPLES
    copy = tmp_path / "copy.jsonl"
    loaded.to_json(str(copy))
    back = [one.graph for one in import_file(copy) if isinstance(one, ImportedConversation)]
    assert back[0] == tool_session()


def test_datasets_reads_a_file_of_many_blocks_and_odd_texts(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason=REASON)
    chats = []
    for number in range(60):
        chat = MessageGraph([user("x" * 200_000 if number < 59 else "half \ud800, nul \0, \u2028")], seed=str(number))
        sampled(chat, f"{number}", answer("a") if number else answer(None))
        chats.append(chat)
    write(tmp_path / "out", ShareGptWriter, *chats, tool_session())
    file = tmp_path / "out" / "sharegpt.jsonl"
    assert file.stat().st_size > 10 << 20, "types are inferred from the first ten million bytes"
    loaded = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded[-1] == lines(file)[-1]
    assert loaded.num_rows == 61
