"""slime's files: samples by step, one rollout id for all rows of a rollout, and a torch file without torch."""

import zipfile
from pathlib import Path
from typing import Any

import pytest

from hermes.trajectories.export import export
from hermes.trajectories.formats import slime
from hermes.trajectories.formats.slime import SlimeWriter
from hermes.trajectories.plan import ExportSettings
from tests.unit.trajectories.samples import P, check_conservation, sessions, written
from tests.unit.trajectories.token_units import UNITS, rollout_files


def test_a_sample_is_a_row(tmp_path: Path) -> None:
    (file,) = rollout_files(written(tmp_path / "out", "slime", SlimeWriter))
    assert (file["rollout_id"], len(file["samples"])) == (0, 12)
    first = file["samples"][0]
    known = first.pop("metadata")["hermes"]
    assert [sample["sample"] for sample in known["samples"]] == ["ask", "answer"]
    assert first == {
        "index": 0,
        "group_index": 0,
        "rollout_id": 0,
        "prompt": "",
        "response": "",
        "label": None,
        "tokens": [*P, 20, 21, 22, 23, 30, 31, 32, 24, 25, 26],
        "response_length": 10,
        "loss_mask": [1, 1, 1, 1, 0, 0, 0, 1, 1, 1],
        "rollout_log_probs": [-0.125, -0.5, -1.0625, -0.03125, 0.0, 0.0, 0.0, -0.25, -2.0, -0.0078125],
        "reward": 1.0,
        "weight_versions": ["17", "18"],
        "remove_sample": False,
        "status": "completed",
        "session_id": "s",
    }


def test_rows_of_a_rollout_share_its_number(tmp_path: Path) -> None:
    (file,) = rollout_files(written(tmp_path / "out", "slime", SlimeWriter))
    ids = [(sample["index"], sample["group_index"], sample["rollout_id"], sample["reward"]) for sample in file["samples"]]
    assert ids == [*((index, 0, 0, 1.0) for index in range(10)), (10, 0, 1, -1.0), (11, 1, 2, 0.0)]
    assert file["samples"][-1]["metadata"]["hermes"]["reward"] is None


def test_a_full_file_is_closed_behind_a_session(tmp_path: Path) -> None:
    class SmallSteps(SlimeWriter):
        step_tokens = 50

    export(sessions(), tmp_path / "out", ExportSettings(format="slime"), {"slime": SmallSteps})
    files = rollout_files(tmp_path / "out")
    assert [(file["rollout_id"], [sample["index"] for sample in file["samples"]]) for file in files] == [(0, list(range(11))), (1, [11])]
    check_conservation(tmp_path / "out", UNITS["slime"](tmp_path / "out"))


@pytest.mark.parametrize("name", ["data.pkl", "version", "byteorder", ".format_version"])
def test_the_file_is_a_zip_that_torch_knows(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(written(tmp_path / "out", "slime", SlimeWriter) / "rollout_0.pt") as file:
        entry = file.getinfo(f"archive/{name}")
        assert (entry.compress_type, entry.date_time, entry.create_system) == (zipfile.ZIP_STORED, (1980, 1, 1, 0, 0, 0), 0)


def test_equal_values_give_equal_bytes_even_when_they_are_one_object(tmp_path: Path) -> None:
    shared: list[Any] = [1, "text"]
    slime.write_torch(tmp_path / "shared.pt", {"a": shared, "b": shared})
    slime.write_torch(tmp_path / "apart.pt", {"a": [1, "text"], "b": [1, "text"]})
    assert (tmp_path / "shared.pt").read_bytes() == (tmp_path / "apart.pt").read_bytes()
