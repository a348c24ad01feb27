"""verl lines: prompt up to the first trained token, then a response with its mask."""

import json
from pathlib import Path
from typing import Any

from hermes.trajectories.formats.verl import VerlWriter
from tests.unit.trajectories.samples import P, written


def written_lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (written(out, "verl", VerlWriter) / "rows.jsonl").read_text().splitlines()]


def test_a_line_is_an_agent_loop_output(tmp_path: Path) -> None:
    line = written_lines(tmp_path / "out")[0]
    known = line["extra_fields"].pop("hermes")
    assert line == {
        "prompt_ids": P,
        "response_ids": [20, 21, 22, 23, 30, 31, 32, 24, 25, 26],
        "response_mask": [1, 1, 1, 1, 0, 0, 0, 1, 1, 1],
        "response_logprobs": [-0.125, -0.5, -1.0625, -0.03125, 0.0, 0.0, 0.0, -0.25, -2.0, -0.0078125],
        "reward_score": 1.0,
        "num_turns": 5,
        "metrics": {},
        "extra_fields": {"reward_extra_info": {}, "min_global_steps": 17, "max_global_steps": 18},
    }
    samples = [(sample["sample"], sample["start"], sample["end"], sample["reward"]) for sample in known.pop("samples")]
    assert samples == [("ask", 6, 10, 0.25), ("answer", 13, 16, None)]
    assert known == {
        "session": "s",
        "rollout": "s",
        "row": 0,
        "tokenizer": "",
        "reward": 1.0,
        "loss_scale": 1 / 23,
        "on_policy": True,
    }


def test_what_is_trained_elsewhere_belongs_to_the_prompt(tmp_path: Path) -> None:
    lines = written_lines(tmp_path / "out")
    parts = [
        ([sample["sample"] for sample in line["extra_fields"]["hermes"]["samples"]], line["prompt_ids"], line["response_ids"])
        for line in lines
    ]
    assert parts[1:] == [
        (["fork"], [*P, 20, 21, 22, 23, 40, 41], [27, 28]),
        (["twin-1"], [*P, 50], [60, 61]),
        (["twin-2"], [*P, 50], [60, 61]),
        (["odd-1"], [*P, 51], [62]),
        (["odd-2"], [*P, 51], [62]),
        (["whole"], [*P, 52], [63, 64, 65]),
        (["rest"], [*P, 52, 63], [64, 65]),
        (["tail"], [*P, 53], [70, 71]),
        (["inner"], [90, 91], [92]),
        (["other"], P, [80, 81]),
        (["plain"], [1, 2], [3, 4]),
    ]
    assert all(set(line["response_mask"]) == {1} for line in lines[1:])


def test_a_reward_that_nobody_gave_is_null(tmp_path: Path) -> None:
    lines = written_lines(tmp_path / "out")
    assert [line["reward_score"] for line in lines[-3:]] == [1.0, -1.0, None]


def test_logprobs_are_the_float32_that_was_recorded(tmp_path: Path) -> None:
    assert written_lines(tmp_path / "out")[-1]["response_logprobs"] == [-0.10000000149011612, -0.20000000298023224]
