"""Atropos groups: all rows of a session together."""

import json
from pathlib import Path
from typing import Any

from hermes.trajectories.export import export
from hermes.trajectories.formats.atropos import AtroposWriter
from hermes.trajectories.plan import ExportSettings
from tests.unit.trajectories.samples import P, two_tokenizers, written

NO = -100
ALONE = ["fork", "twin-1", "twin-2", "odd-1", "odd-2", "whole", "rest", "tail", "inner", "other"]


def groups(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (written(out, "atropos", AtroposWriter) / "groups.jsonl").read_text().splitlines()]


def test_a_group_is_a_session(tmp_path: Path) -> None:
    first, second = groups(tmp_path / "out")
    samples = [[sample["sample"] for sample in row["hermes"]["samples"]] for row in first["overrides"]]
    assert samples == [["ask", "answer"], *([name] for name in ALONE)]
    assert first["group_overrides"] == {"hermes": {"session": "s", "tokenizer": ""}}
    assert first["scores"] == [*[1.0] * 10, -1.0]
    assert {key: len(value) for key, value in first.items() if key != "group_overrides"} == dict.fromkeys(
        ("tokens", "masks", "scores", "advantages", "inference_logprobs", "overrides"), 11
    )
    assert second["overrides"][0]["hermes"].pop("samples")[0]["sample"] == "plain"
    assert second == {
        "tokens": [[1, 2, 3, 4]],
        "masks": [[NO, NO, 3, 4]],
        "scores": [0.0],
        "advantages": [[0.0, 0.0, 0.0, 0.0]],
        "inference_logprobs": [[1.0, 1.0, -0.10000000149011612, -0.20000000298023224]],
        "overrides": [
            {"hermes": {"session": "t", "rollout": "t", "tokenizer": "", "reward": None, "loss_scale": 0.5, "on_policy": True}},
        ],
        "group_overrides": {"hermes": {"session": "t", "tokenizer": ""}},
    }


def test_masks_advantages_and_logprobs_are_per_token(tmp_path: Path) -> None:
    first, _ = groups(tmp_path / "out")
    assert [first[key][0] for key in ("tokens", "masks", "advantages", "inference_logprobs")] == [
        [*P, 20, 21, 22, 23, 30, 31, 32, 24, 25, 26],
        [*[NO] * 6, 20, 21, 22, 23, NO, NO, NO, 24, 25, 26],
        [*[0.0] * 6, 0.25, 0.25, 0.25, 0.25, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0],
        [*[1.0] * 6, -0.125, -0.5, -1.0625, -0.03125, 1.0, 1.0, 1.0, -0.25, -2.0, -0.0078125],
    ]
    assert first["advantages"][-1] == [*[0.0] * 6, -0.5, -0.5]


def test_tokens_of_two_tokenizers_are_two_groups(tmp_path: Path) -> None:
    export([two_tokenizers()], tmp_path / "out", ExportSettings(format="atropos"), {"atropos": AtroposWriter})
    found = [json.loads(line) for line in (tmp_path / "out" / "groups.jsonl").read_text().splitlines()]
    assert [(group["group_overrides"]["hermes"]["tokenizer"], group["tokens"]) for group in found] == [
        ("a", [[1, 2, 3, 4]]),
        ("b", [[90, 91, 92]]),
    ]
