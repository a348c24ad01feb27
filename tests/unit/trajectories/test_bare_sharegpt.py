"""Bare ShareGPT: the founding row and nothing else, checked through the ledger like the usual rows."""

from pathlib import Path
from typing import Any

import pytest

from hermes.trajectories.engines.local import LocalEngine
from hermes.trajectories.errors import TrajectorySettingsError
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.imports import ImportedConversation, import_file
from hermes.trajectories.parallel_export import export_on
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import FileSessions
from hermes.trajectories.verify import verify
from tests.unit.trajectories.forgery import Forged
from tests.unit.trajectories.text_sessions import forked_session, hard_session, lines, nested_session, tool_session

SETTINGS = ExportSettings(format="sharegpt", is_bare=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "source.jsonl"
    graphs = (tool_session(), forked_session(), nested_session(), hard_session())
    file.write_text("".join(f"{graph.to_json()}\n" for graph in graphs))
    return file


def write(source: Path, out: Path, settings: ExportSettings = SETTINGS) -> Path:
    export(FileSessions([source]), out, settings, FORMATS)
    return out


def test_a_bare_row_is_the_usual_row_without_what_the_founding_row_has_not(tmp_path: Path, source: Path) -> None:
    usual = lines(write(source, tmp_path / "usual", ExportSettings(format="sharegpt")) / "sharegpt.jsonl")
    out = write(source, tmp_path / "bare")
    bare, rest = lines(out / "sharegpt.jsonl"), lines(out / "sharegpt.rows.jsonl")
    assert [list(row) for row in bare] == [["conversations", "tools", "source"]] * len(usual)
    assert {tuple(turn) for row in bare for turn in row["conversations"]} == {("from", "value")}
    for whole, row, other in zip(usual, bare, rest, strict=True):
        marks = other.pop("train")
        marked = [{**turn, "train": mark} for turn, mark in zip(row["conversations"], marks, strict=True)]
        assert {**row, **other, "conversations": marked} == whole


def test_the_ledger_is_that_of_the_usual_rows_and_verifies(tmp_path: Path, source: Path) -> None:
    usual = write(source, tmp_path / "usual", ExportSettings(format="sharegpt"))
    out = write(source, tmp_path / "bare")
    assert lines(out / "ledger.jsonl")[1:] == lines(usual / "ledger.jsonl")[1:]
    assert list(verify(out, [source]).problems) == []


def test_many_processes_write_the_same_bytes(tmp_path: Path, source: Path) -> None:
    one = write(source, tmp_path / "one")
    export_on(LocalEngine(2), FileSessions([source]), tmp_path / "two", SETTINGS, FORMATS, chunk_bytes=1)
    names = ("sharegpt.jsonl", "sharegpt.rows.jsonl", "ledger.jsonl")
    assert [(tmp_path / "two" / name).read_bytes() for name in names] == [(one / name).read_bytes() for name in names]


def test_only_sharegpt_can_be_bare(tmp_path: Path, source: Path) -> None:
    with pytest.raises(TrajectorySettingsError, match="only rows of sharegpt can be bare, not those of openai"):
        write(source, tmp_path / "out", ExportSettings(format="openai", is_bare=True))
    assert not (tmp_path / "out").exists()


def test_a_bare_file_can_be_imported(tmp_path: Path, source: Path) -> None:
    out = write(source, tmp_path / "bare")
    imported = [one for one in import_file(out / "sharegpt.jsonl") if isinstance(one, ImportedConversation)]
    assert len(imported) == len(lines(out / "sharegpt.jsonl"))


FORGERIES: dict[str, tuple[str, Any]] = {
    "a value": ("sharegpt.jsonl", lambda rows: rows[0]["conversations"][-1].update(value="x")),
    "a mark in a bare turn": ("sharegpt.jsonl", lambda rows: rows[0]["conversations"][0].update(train=True)),
    "a key more": ("sharegpt.jsonl", lambda rows: rows[0].update(id="x")),
    "a mark": ("sharegpt.rows.jsonl", lambda rows: rows[0]["train"].__setitem__(0, True)),
    "a mark less": ("sharegpt.rows.jsonl", lambda rows: rows[0]["train"].pop()),
    "a line less": ("sharegpt.rows.jsonl", lambda rows: rows.pop()),
    "lines in another order": ("sharegpt.rows.jsonl", lambda rows: rows.reverse()),
    "on_policy": ("sharegpt.rows.jsonl", lambda rows: rows[0].update(on_policy=True)),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_bare_export_is_found(tmp_path: Path, source: Path, name: str) -> None:
    out = write(source, tmp_path / "bare")
    file, edit = FORGERIES[name]
    forged = Forged(out)
    forged.text(file, edit)
    forged.seal()
    assert not verify(out).ok


def test_a_bare_export_without_its_second_file_does_not_verify(tmp_path: Path, source: Path) -> None:
    out = write(source, tmp_path / "bare")
    (out / "sharegpt.rows.jsonl").unlink()
    forged = Forged(out)
    forged.seal()
    assert not verify(out).ok
