"""ATIF v1.8 (harbor): one JSON document for each row, `trajectory-00000.json` and so on, because its readers take one document a file.

An agent's step that must not be trained has `is_copied_context`. Rows of chats attached to a message are in `subagent_trajectories` of the
first document that holds the message, to any depth. If the calls were recorded, `metrics` has their token ids and logprobs.

The ledger's `turn` counts a document's steps from 0, then those of its subagent_trajectories, depth first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from mimetypes import guess_type
from pathlib import Path
from typing import Any, NoReturn

from hermes.graph.message import METADATA, REASONING, thaw
from hermes.trajectories.calls import SampledCall
from hermes.trajectories.formats.files import DocumentFiles
from hermes.trajectories.ledger import Placement
from hermes.trajectories.plan import ExportSettings, SessionPlan
from hermes.trajectories.sharegpt_turns import is_text_part, part_text
from hermes.trajectories.text_rows import (
    REPLACED,
    TextRow,
    is_assistant,
    reasoning_of,
    replace_surrogates,
    text_digest,
    text_placement,
    text_rows,
)

FILE_NAME = "trajectory-{row:05d}.json"
SCHEMA = "ATIF-v1.8"
UNKNOWN_VERSION = "unknown"
"""The agent's version: the format requires one, and a graph does not record it."""
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
SOURCES = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}


class AtifWriter:
    """Writes a file for each document."""

    untrained = "only an agent's steps are trained in this format"

    def __init__(self, folder: Path | None, settings: ExportSettings) -> None:
        self._documents = DocumentFiles(folder, FILE_NAME)
        self.files = (self._documents,)
        self._agent = settings.source
        self.rows = 0

    def write(self, plan: SessionPlan) -> Iterator[Placement]:
        rows = list(text_rows(plan.calls, is_assistant))
        for tree in _trees(rows):
            document = tree.document(self._agent)
            written = replace_surrogates(document)
            if written != document:
                written["extra"]["hermes"] |= _policy([*tree.row.differences(has_reasoning=True), REPLACED])
            self._documents.write(self.rows, json.dumps(written, indent=1).encode("ascii") + b"\n")
            digests = [text_digest(step) for each in _all_documents(written) for step in each["steps"]]
            differs = not all(each["extra"]["hermes"]["on_policy"] for each in _all_documents(written))
            for call, turn, first in tree.places(0):
                yield Placement(call, text_placement(self.rows, digests, turn, first), differs=differs)
            self.rows += 1

    def close(self) -> None:
        self._documents.close()


@dataclass(slots=True)
class _RowTree:
    """A row, and the rows of chats attached to its messages."""

    number: int
    row: TextRow
    attached: list[tuple[int, _RowTree]] = field(default_factory=list)
    """By the index of the message."""
    steps: list[dict[str, Any]] = field(default_factory=list)
    step_of: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.row.session}#{self.number}"

    def document(self, agent: str) -> dict[str, Any]:
        refs: dict[int, list[str]] = {}
        for index, child in self.attached:
            refs.setdefault(index, []).append(child.name)
        self.steps, self.step_of = _steps(self.row, refs)
        models = [call.response.call.model for call in self.row.calls if call.response.call is not None and call.response.call.model]
        document: dict[str, Any] = {
            "schema_version": SCHEMA,
            "session_id": self.row.session,
            "trajectory_id": self.name,
            "agent": {
                "name": agent,
                "version": UNKNOWN_VERSION,
                **({"model_name": models[0]} if models else {}),
                **({"tool_definitions": thaw(self.row.tools)} if self.row.tools else {}),
            },
            "steps": self.steps,
            "extra": {
                "hermes": {
                    "rollout": self.row.rollout,
                    "row": self.number,
                    **_policy(self.row.differences(has_reasoning=True)),
                    "left_out": self.row.left_out,
                }
            },
        }
        if self.attached:
            document["subagent_trajectories"] = [child.document(agent) for _, child in self.attached]
        return document

    def places(self, first: int) -> Iterator[tuple[SampledCall, int, int]]:
        """Yield each call trained in the document with its step and the first step of its own document, counted from `first`."""
        for index, call in self.row.trained.items():
            yield call, first + self.step_of[index], first
        first += len(self.steps)
        for _, child in self.attached:
            yield from child.places(first)
            first += child.size

    @property
    def size(self) -> int:
        return len(self.steps) + sum(child.size for _, child in self.attached)


def _policy(differences: Sequence[str]) -> dict[str, Any]:
    return {"on_policy": not differences, "off_policy": "; ".join(differences)}


def _all_documents(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a document and those inside it, depth first."""
    yield document
    for child in document.get("subagent_trajectories", ()):
        yield from _all_documents(child)


def _trees(rows: Sequence[TextRow]) -> Iterator[_RowTree]:
    """Yield the rows that become documents, each with the rows that go inside it. A row that no message carries becomes a document too."""
    trees = [_RowTree(number, row) for number, row in enumerate(rows)]
    hosts = _hosts(rows)
    for number, tree in enumerate(trees):
        host = hosts[number]
        if host is not None:
            trees[host[0]].attached.append((host[1], tree))
    for number, tree in enumerate(trees):
        tree.attached.sort(key=lambda pair: (pair[0], pair[1].number))
        if hosts[number] is None:
            yield tree


def _hosts(rows: Sequence[TextRow]) -> list[tuple[int, int] | None]:
    """Return for each row the row and the message whose attached chat it was sampled in; None for the session's own rows."""
    chats = [
        (number, index, message.chat.response_ids)
        for number, row in enumerate(rows)
        for index, message in enumerate(row.messages)
        if message.chat is not None
    ]
    hosts: list[tuple[int, int] | None] = []
    for number, row in enumerate(rows):
        host = None
        if chats and not any(call.response.is_own for call in row.calls):
            ids = {call.response_id for call in row.calls}
            holding = [(len(known), at, index) for at, index, known in chats if at != number and ids <= known]
            # The smallest chat is the innermost: the chats around it hold its responses too.
            host = min(holding)[1:] if holding else None
        hosts.append(host)
    for number in range(len(rows)):
        seen = {number}
        host = hosts[number]
        while host is not None and host[0] not in seen:
            seen.add(host[0])
            host = hosts[host[0]]
        if host is not None:
            hosts[number] = None  # two chats that share samples could carry each other; then one becomes a document of its own
    return hosts


def _steps(row: TextRow, refs: Mapping[int, Sequence[str]]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the steps of a row, and for each message the index of its step. A result goes into the step of its call."""
    steps: list[dict[str, Any]] = []
    step_of: list[int] = []
    waiting: set[str] = set()  # ids of the last step's calls, which a result may name
    for index, message in enumerate(row.messages):
        if message["role"] in ("tool", "function"):
            named = message.get("tool_call_id")
            if named in waiting:
                result = {"source_call_id": named, **_result(message, refs.get(index, ()), covered="tool_call_id")}
                steps[-1].setdefault("observation", {"results": []})["results"].append(result)
            else:
                waiting = set()  # no call of the last step: the format takes a call id only in the step of that call
                result = _result(message, refs.get(index, ()))
                steps.append({"step_id": len(steps) + 1, "source": "system", "message": "", "observation": {"results": [result]}})
        else:
            step = _step(row, index, len(steps) + 1)
            if refs.get(index):
                step["observation"] = {"results": [{"subagent_trajectory_ref": _refs(refs[index])}]}
            steps.append(step)
            waiting = {call["tool_call_id"] for call in step.get("tool_calls", ())}
        step_of.append(len(steps) - 1)
    return steps, step_of


def _step(row: TextRow, index: int, number: int) -> dict[str, Any]:
    message = row.messages[index]
    text, about = _content(message)
    step: dict[str, Any] = {"step_id": number, "source": SOURCES[message["role"]], "message": text}
    covered = {"role", "content", METADATA}
    if message["role"] == "assistant":
        call, trained = row.trained.get(index) or row.context.get(index), index in row.trained
        if call is not None:
            about |= {"response": call.response_id, "sample": call.sample_id}
        record = call.response.call if call is not None else None
        if record is not None and record.model:
            step["model_name"] = record.model
        if reasoning_of(message):
            step["reasoning_content"] = reasoning_of(message)
            covered |= {name for name in REASONING if message.get(name) == reasoning_of(message)}
        if message.get("tool_calls"):
            step["tool_calls"] = [_tool_call(call, f"call_{index}_{place}") for place, call in enumerate(message["tool_calls"])]
            covered.add("tool_calls")
        if call is not None and trained:
            metrics = _metrics(call)
            step |= {"metrics": metrics} if metrics else {}
            step["llm_call_count"] = 1
        else:
            step["is_copied_context"] = True
    elif message["role"] != step["source"]:
        about["role"] = message["role"]
    other_fields = {key: thaw(value) for key, value in message.items() if key not in covered}
    if other_fields:
        about["fields"] = other_fields
    if about:
        step["extra"] = {"hermes": about}
    return step


def _result(message: Mapping[str, Any], refs: Sequence[str], covered: str | None = None) -> dict[str, Any]:
    text, about = _content(message)
    if message["role"] != "tool":
        about["role"] = message["role"]
    other_fields = {key: thaw(value) for key, value in message.items() if key not in ("role", "content", METADATA, covered)}
    if other_fields:
        about["fields"] = other_fields
    return {
        "content": text,
        **({"subagent_trajectory_ref": _refs(refs)} if refs else {}),
        **({"extra": {"hermes": about}} if about else {}),
    }


def _refs(names: Sequence[str]) -> list[dict[str, str]]:
    return [{"trajectory_id": name} for name in names]


def _content(message: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a content in ATIF's form; if it has parts that ATIF has no type for, the whole content is returned beside it."""
    content = message.get("content")
    if not isinstance(content, list):
        return content or "", {}
    parts = [_part(part) for part in content]
    if all(part is not None for part in parts):
        return parts, {}
    known = [part or {"type": "text", "text": part_text(source)} for part, source in zip(parts, content, strict=True)]
    return known, {"content": thaw(content)}


def _part(part: Mapping[str, Any]) -> dict[str, Any] | None:
    if is_text_part(part):
        return {"type": "text", "text": part["text"]} if part.keys() == {"type", "text"} else None
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, Mapping) else None
    if part.get("type") != "image_url" or not isinstance(url, str) or url.startswith("data:"):
        return None
    media_type = guess_type(url)[0]
    return {"type": "image", "source": {"media_type": media_type, "path": url}} if media_type in IMAGES else None


def _tool_call(call: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a call with its arguments as an object; the sampled text is kept too, unless the object gives the same bytes."""
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {}
    text = function.get("arguments")
    arguments, about = _object(text), {}
    if arguments is None or json.dumps(arguments, ensure_ascii=False) != text:
        about["arguments"] = thaw(text)
    other_fields = {key: thaw(value) for key, value in call.items() if key not in ("id", "type", "function")}
    other_fields |= {key: thaw(value) for key, value in function.items() if key not in ("name", "arguments")}
    if other_fields:
        about["fields"] = other_fields
    return {
        "tool_call_id": call["id"] if isinstance(call.get("id"), str) else name,
        "function_name": str(function.get("name") or ""),
        "arguments": arguments or {},
        **({"extra": {"hermes": about}} if about else {}),
    }


def _object(text: Any) -> dict[str, Any] | None:
    try:
        value = json.loads(text, parse_constant=_refuse) if isinstance(text, str) else None
        json.dumps(value, allow_nan=False)  # refuses 1e999, which Python reads as infinity
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _metrics(call: SampledCall) -> dict[str, Any]:
    """Return what the server reported about a call, and its annotations."""
    record = call.response.call
    if record is None:
        return {}
    usage = record.usage or {}
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    prompt, completion = record.prompt_token_ids, record.token_ids
    counts = {
        "prompt_tokens": usage.get("prompt_tokens", len(prompt) if prompt is not None else None),
        "completion_tokens": call.sampled or usage.get("completion_tokens"),
        "cached_tokens": cached,
    }
    metrics: dict[str, Any] = {key: value for key, value in counts.items() if isinstance(value, int) and not isinstance(value, bool)}
    scores = record.logprobs if record.logprobs is not None and all(map(isfinite, record.logprobs)) else None  # JSON has no infinity
    ids = {"prompt_token_ids": prompt, "completion_token_ids": completion, "logprobs": scores}
    metrics |= {key: list(value) for key, value in ids.items() if value is not None}
    extra = {
        "policy_version": record.policy_version,
        "policy_spans": [list(span) for span in record.policy_spans] if record.policy_spans else None,
        "prompt_derived": record.prompt_derived or None,
        "tokenizer": record.tokenizer,
        "finish_reason": record.finish_reason,
        "sampling": thaw(record.sampling),
        "reward": call.reward,
        "advantage": call.advantage,
        "rollout_reward": call.rollout_reward,
    }
    known = {key: value for key, value in extra.items() if value is not None}
    return metrics | ({"extra": known} if known else {})
