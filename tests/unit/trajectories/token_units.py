"""Each token format's rows, read from the files alone, as the format's docstring defines them."""

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.unit.trajectories.samples import Unit


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rollout_files(folder: Path) -> list[dict[str, Any]]:
    """What slime's files hold, read without torch."""
    found = []
    for number in range(len(list(folder.glob("rollout_*.pt")))):
        with zipfile.ZipFile(folder / f"rollout_{number}.pt") as file:
            found.append(pickle.loads(file.read("archive/data.pkl")))  # noqa: S301  # a file that this test wrote
    return found


def trl(folder: Path) -> list[Unit]:
    rows = pq.read_table(folder / "rows.parquet").to_pylist()
    return [(row["input_ids"], [label != -100 for label in row["labels"]]) for row in rows]


def verl(folder: Path) -> list[Unit]:
    return [
        (row["prompt_ids"] + row["response_ids"], [False] * len(row["prompt_ids"]) + [mask == 1 for mask in row["response_mask"]])
        for row in lines(folder / "rows.jsonl")
    ]


def atropos(folder: Path) -> list[Unit]:
    return [
        (tokens, [token != -100 for token in masks])
        for group in lines(folder / "groups.jsonl")
        for tokens, masks in zip(group["tokens"], group["masks"], strict=True)
    ]


def slime(folder: Path) -> list[Unit]:
    return [
        (sample["tokens"], [False] * (len(sample["tokens"]) - sample["response_length"]) + [mask == 1 for mask in sample["loss_mask"]])
        for file in rollout_files(folder)
        for sample in file["samples"]
    ]


def agentlightning(folder: Path) -> list[Unit]:
    requests = [event["data"] for event in lines(folder / "events.jsonl") if event["event_type"] == "model_request"]
    return [
        (
            request["prompt_token_ids"] + request["response_token_ids"],
            [False] * len(request["prompt_token_ids"]) + [True] * len(request["response_token_ids"]),
        )
        for request in requests
    ]


def verifiers(folder: Path) -> list[Unit]:
    units: list[Unit] = []
    for episode in lines(folder / "traces.jsonl"):
        for trace in episode["traces"]:
            nodes = trace["nodes"]
            for node in nodes:
                if node["sampled"]:
                    before: list[int] = []
                    parent = node["parent"]
                    while parent is not None:
                        before = nodes[parent]["token_ids"] + before
                        parent = nodes[parent]["parent"]
                    units.append((before + node["token_ids"], [False] * len(before) + node["mask"]))
    return units


UNITS: dict[str, Callable[[Path], list[Unit]]] = {
    "trl": trl,
    "verl": verl,
    "atropos": atropos,
    "slime": slime,
    "agentlightning": agentlightning,
    "verifiers": verifiers,
}
