"""Read the files of trainers: verl, Atropos, agent-lightning, verifiers and slime. Each trained token belongs to one sample.

These functions read a file as the trainer's own reader does, which decides what tokens a row holds."""

from __future__ import annotations

import pickle  # see _PlainUnpickler: it loads only plain values
import zipfile
from collections.abc import Callable, Iterator, Mapping
from itertools import count, zip_longest
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from hermes.trajectories.verify.exported_rows import ExportedRow, Ints, UnreadableFile, floats, ints, json_lines, unreadable_row
from hermes.trajectories.verify.ledger import strict_json

IGNORED_LABEL = -100
TORCH_ENTRIES = sorted(f"archive/{name}" for name in ("data.pkl", ".format_version", ".storage_alignment", "byteorder", "version"))
SHAPE_ERRORS = (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError)
"""The errors that reading a value of an unexpected shape raises."""


def read_verl(folder: Path) -> Iterator[ExportedRow]:
    """Read `rows.jsonl`: prompt_ids + response_ids, trained where response_mask is 1."""
    for row, line in json_lines(folder / "rows.jsonl"):
        yield _row_or_fault("rows.jsonl", row, lambda: _verl(row, line))  # noqa: B023  # called at once


def read_atropos(folder: Path) -> Iterator[ExportedRow]:
    """Read `groups.jsonl`: in each line many rows, trained where masks is not -100; an untrained token has the logprob 1.0."""
    row = 0
    for number, group in json_lines(folder / "groups.jsonl"):
        columns: list[Any] = [group.get(key) for key in ("tokens", "masks", "scores", "advantages", "inference_logprobs", "overrides")]
        if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
            raise UnreadableFile("groups.jsonl", f"line {number + 1} is not a ScoredDataGroup whose lists are all as long as tokens")
        for at in range(len(columns[0])):
            yield _row_or_fault("groups.jsonl", row, lambda: _atropos(row, at, group))  # noqa: B023  # called at once
            row += 1


def read_agentlightning(folder: Path) -> Iterator[ExportedRow]:
    """Read `events.jsonl`, and compare it with `spans.jsonl`: one row for each call."""
    events = (line for _, line in json_lines(folder / "events.jsonl") if line.get("event_type") == "model_request")
    spans = (line for _, line in json_lines(folder / "spans.jsonl") if line.get("name") == "openai.chat.completion")
    for row, (event, span) in enumerate(zip_longest(events, spans)):
        if event is None:
            yield unreadable_row("spans.jsonl", row, "has no event in events.jsonl")
        else:
            yield _row_or_fault("events.jsonl", row, lambda: _agentlightning(row, event, span))  # noqa: B023  # called at once


def read_verifiers(folder: Path) -> Iterator[ExportedRow]:
    """Read `traces.jsonl`: one row for each sampled node, with the nodes from the root down to it."""
    row = 0
    for number, episode in json_lines(folder / "traces.jsonl"):
        try:
            traces = episode["traces"]
            for trace in traces:
                yield from _verifiers(row, trace)
                row += sum(node["sampled"] is True for node in trace["nodes"])
        except SHAPE_ERRORS as error:
            raise UnreadableFile("traces.jsonl", f"line {number + 1} is not an Episode ({error!r})") from None


def read_slime(folder: Path) -> Iterator[ExportedRow]:
    """Read `rollout_<n>.pt`: one row for each sample, whose last response_length tokens have a loss_mask."""
    row = 0
    rollouts: dict[Any, tuple[Any, Any]] = {}
    for number in count():
        path = folder / f"rollout_{number}.pt"
        if number and not path.exists():
            return
        data = load_plain(path)
        if not isinstance(data, dict) or data.get("rollout_id") != number or not isinstance(data.get("samples"), list):
            raise UnreadableFile(path.name, f"not the samples of rollout {number}")
        for sample in data["samples"]:
            yield _row_or_fault(path.name, row, lambda: _slime(path.name, row, sample, rollouts))  # noqa: B023  # called at once
            row += 1


def _row_or_fault(file: str, row: int, read: Callable[[], ExportedRow]) -> ExportedRow:
    try:
        return read()
    except SHAPE_ERRORS as error:
        return unreadable_row(file, row, f"is malformed ({error!r})")


def _origin(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's stated origin."""
    known = {key: about[key] for key in ("session", "rollout", "tokenizer", "on_policy", "loss_scale")}
    if not isinstance(known["on_policy"], bool) or type(known["loss_scale"]) is not float:
        raise TypeError("on_policy or loss_scale is not stated")
    return {**known, "samples": {sample["sample"]: (sample["start"], sample["end"]) for sample in about["samples"]}}


def _complete(exported: ExportedRow, mask: Any, scores: Any) -> ExportedRow:
    """Fill in mask and logprobs of a row that states them for its last tokens only."""
    tokens, values, logprobs = exported.tokens, ints(mask), floats(scores)
    if len(values) > len(tokens) or len(values) != len(logprobs) or not np.isin(values, (0, 1)).all():
        raise ValueError("mask and logprobs are not those of the response")
    start = len(tokens) - len(values)
    full_mask, full_scores = np.zeros(len(tokens), np.bool_), np.zeros(len(tokens), np.float32)
    full_mask[start:], full_scores[start:] = values == 1, logprobs
    if not len(values) or not full_mask[start]:
        exported.faults.append("the response does not begin with a trained token")
    if full_scores[~full_mask].any():
        exported.faults.append("a token that is not trained has a logprob")
    exported.mask, exported.weight, exported.logprobs = full_mask, full_mask.astype(np.float32), full_scores
    return exported


def _verl(row: int, line: Mapping[str, Any]) -> ExportedRow:
    prompt, response = ints(line["prompt_ids"]), ints(line["response_ids"])
    if len(response) != len(line["response_mask"]):
        raise ValueError("response_mask is not as long as response_ids")
    about = line["extra_fields"]["hermes"]
    faults = [] if about["row"] == row else [f"says that it is row {about['row']}"]
    tokens = np.concatenate([prompt, response])
    exported = ExportedRow("rows.jsonl", row, tokens, np.empty(0, np.bool_), **_origin(about), faults=faults)
    return _complete(exported, line["response_mask"], line["response_logprobs"])


def _atropos(row: int, at: int, group: Mapping[str, Any]) -> ExportedRow:
    tokens, masks = ints(group["tokens"][at]), ints(group["masks"][at])
    logprobs, advantages = floats(group["inference_logprobs"][at]), floats(group["advantages"][at])
    if not len(tokens) == len(masks) == len(logprobs) == len(advantages):
        raise ValueError("masks, advantages and inference_logprobs are not as long as tokens")
    mask = masks != IGNORED_LABEL
    faults = []
    if not np.array_equal(masks[mask], tokens[mask]):
        faults.append(f"token {int(np.argmax(mask & (masks != tokens)))}: masks is neither -100 nor the token")
    if not (logprobs[~mask] == 1).all() or advantages[~mask].any():
        faults.append("a token that is not trained has a logprob or an advantage")
    about = group["overrides"][at]["hermes"]
    if group["group_overrides"]["hermes"] != {"session": about["session"], "tokenizer": about["tokenizer"]}:
        faults.append("is of another session or tokenizer than its group")
    return ExportedRow("groups.jsonl", row, tokens, mask, mask.astype(np.float32), logprobs, **_origin(about), faults=faults)


def _agentlightning(row: int, event: Mapping[str, Any], span: Mapping[str, Any] | None) -> ExportedRow:
    data = event["data"]
    prompt, response, scores = ints(data["prompt_token_ids"]), ints(data["response_token_ids"]), floats(data["response_log_probs"])
    if len(response) != len(scores):
        raise ValueError("response_log_probs is not as long as response_token_ids")
    faults = [] if span is not None else ["has no span in spans.jsonl"]
    choice = data["response"]["choices"][0]
    copies = [(data["response"]["prompt_token_ids"], choice["token_ids"], choice["logprobs"]["content"], data["hermes"]["sample"])]
    if span is not None:
        stated = span["attributes"]
        copies.append(
            (stated["prompt_token_ids"], stated["response_token_ids"], strict_json(stated["logprobs.content"]), stated["hermes.sample"])
        )
        if span["rollout_id"] != event["rollout_id"]:
            faults.append("is in another rollout in spans.jsonl")
    for place, (prompt_ids, ids, content, sample) in zip(("the server's response", "spans.jsonl"), copies, strict=False):
        same = np.array_equal(ints(prompt_ids), prompt) and np.array_equal(ints(ids), response) and sample == data["hermes"]["sample"]
        if not same or not np.array_equal(floats([entry["logprob"] for entry in content]), scores):
            faults.append(f"differs in {place}")
    tokens = np.concatenate([prompt, response])
    mask = np.arange(len(tokens)) >= len(prompt)
    logprobs = np.concatenate([np.zeros(len(prompt), np.float32), scores])
    samples = {data["hermes"]["sample"]: (len(prompt), len(tokens))}
    return ExportedRow("events.jsonl", row, tokens, mask, mask.astype(np.float32), logprobs, samples=samples, faults=faults)


def _verifiers(row: int, trace: Mapping[str, Any]) -> Iterator[ExportedRow]:
    about = trace["info"]["hermes"]
    named = {sample["node"]: sample for sample in about["samples"]}
    nodes = trace["nodes"]
    for number, node in enumerate(nodes):
        if len(node["token_ids"]) != len(node["mask"]) or (node["parent"] is not None and not 0 <= node["parent"] < number):
            raise ValueError(f"node {number} has a mask of another length, or a parent after it")
        if not node["sampled"] and (any(node["mask"]) or node["logprobs"]):
            raise ValueError(f"node {number} was not sampled, but is trained")
    sampled = [number for number, node in enumerate(nodes) if node["sampled"]]
    for place, number in enumerate(sampled):
        pieces: list[Ints] = []
        at: int | None = number
        while at is not None:
            pieces.append(ints(nodes[at]["token_ids"]))
            at = nodes[at]["parent"]
        tokens = np.concatenate(pieces[::-1])
        own = np.asarray(nodes[number]["mask"], np.bool_)
        mask, logprobs = np.zeros(len(tokens), np.bool_), np.zeros(len(tokens), np.float32)
        mask[len(tokens) - len(own) :] = own
        faults = [] if number in named else [f"node {number} was sampled, but the trace's samples do not name it"]
        if len(nodes[number]["logprobs"]) == mask.sum():
            logprobs[mask] = floats(nodes[number]["logprobs"])
        else:
            faults.append("there is not one logprob for each trained token")
        here = {**about, "samples": [named[number]] if number in named else []}
        weight = mask.astype(np.float32)
        yield ExportedRow("traces.jsonl", row + place, tokens, mask, weight, logprobs, **_origin(here), faults=faults)


def _slime(file: str, row: int, sample: Mapping[str, Any], rollouts: dict[Any, tuple[Any, Any]]) -> ExportedRow:
    tokens = ints(sample["tokens"])
    if sample["response_length"] != len(sample["loss_mask"]):
        raise ValueError("loss_mask is not as long as response_length")
    about = sample["metadata"]["hermes"]
    rollout = (about["session"], about["rollout"])
    faults = [] if sample["index"] == row else [f"says that it is row {sample['index']}"]
    if rollouts.setdefault(sample["rollout_id"], rollout) != rollout:
        faults.append(f"rollout_id {sample['rollout_id']} is used by another rollout too")
    if sample["status"] != "completed" or sample["remove_sample"]:
        faults.append("slime would leave it out")
    exported = ExportedRow(file, row, tokens, np.empty(0, np.bool_), **_origin(about), faults=faults)
    return _complete(exported, sample["loss_mask"], sample["rollout_log_probs"])


class _PlainUnpickler(pickle.Unpickler):
    """Loads None, numbers, texts, lists and dicts, and refuses everything that could run code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"asks for {module}.{name}")

    def persistent_load(self, _: Any) -> NoReturn:
        raise pickle.UnpicklingError("asks for a tensor")


def load_plain(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as file:
            if sorted(file.namelist()) != TORCH_ENTRIES:
                raise UnreadableFile(path.name, f"is not a file of torch that holds plain values: {', '.join(file.namelist())}")
            with file.open("archive/data.pkl") as data:
                return _PlainUnpickler(data).load()
    except (OSError, zipfile.BadZipFile, pickle.UnpicklingError, EOFError, *SHAPE_ERRORS) as error:
        raise UnreadableFile(path.name, f"cannot be read ({error})") from None
