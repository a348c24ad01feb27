"""What ATIF's documents hold: steps, the metrics of trained steps, and the documents of subagents inside the one that carries them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from mimetypes import guess_type
from typing import Any, NoReturn

from hermes.graph import MessageGraph
from hermes.trajectories.verify.expected import ExpectedSession
from hermes.trajectories.verify.expected_text import (
    REASONING,
    REPLACED,
    TextExpectation,
    TextLayout,
    is_text,
    layout_texts,
    part_text,
    place_turn,
    reasoning_of,
    replace_halves,
    turn_digest,
)
from hermes.trajectories.verify.source_samples import SourceSample

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
SOURCES = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}


class ExpectedAtif(TextExpectation):
    untrained = "only an agent's steps are trained in this format"

    def files(self) -> Sequence[str]:
        return [_file(row) for row in range(self.rows)]

    def add(self, session: str, samples: Sequence[SourceSample], graph: MessageGraph) -> ExpectedSession:  # noqa: ARG002
        out = ExpectedSession()
        rows = layout_texts(samples, lambda message: bool(message["role"] == "assistant"))
        documents = [_Document(number, row) for number, row in enumerate(rows)]
        hosts = _hosts(rows)
        for number, host in hosts.items():
            documents[host[0]].carried.append((host[1], documents[number]))
        for document in documents:
            document.carried.sort(key=lambda pair: (pair[0], pair[1].number))
        for document in (document for document in documents if document.number not in hosts):
            value = document.write(self.source)
            written = replace_halves(value)
            if written != value:
                reasons = [*document.row.differences(has_reasoning=True), REPLACED]
                written["extra"]["hermes"] |= {"on_policy": False, "off_policy": "; ".join(reasons)}
            out.values.append((_file(self.rows), written))
            inside = _documents_in(written)
            out.off_policy |= set() if all(each["extra"]["hermes"]["on_policy"] for each in inside) else {self.rows}
            digests = [turn_digest(step) for each in inside for step in each["steps"]]
            out.placed |= {sample: place_turn(self.rows, digests, turn, first) for sample, turn, first in document.places(0)}
            self.rows += 1
        return out


def _file(row: int) -> str:
    return f"trajectory-{row:05d}.json"


def _documents_in(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a document and those inside it, depth first."""
    return [document, *(each for inner in document.get("subagent_trajectories", ()) for each in _documents_in(inner))]


@dataclass(slots=True)
class _Document:
    number: int
    row: TextLayout
    carried: list[tuple[int, _Document]] = field(default_factory=list)
    """By the index of the message that carries them."""
    steps: list[dict[str, Any]] = field(default_factory=list)
    step_of: list[int] = field(default_factory=list)
    """For each message its step."""

    @property
    def name(self) -> str:
        return f"{self.row.session}#{self.number}"

    def write(self, agent: str) -> dict[str, Any]:
        self._write_steps()
        reasons = self.row.differences(has_reasoning=True)
        about: dict[str, Any] = {"name": agent, "version": "unknown"}
        model = next((sample.record.model for sample in self.row.samples if sample.record.model), None)
        about |= {"model_name": model} if model else {}
        about |= {"tool_definitions": self.row.tools} if self.row.tools else {}
        hermes = {"rollout": self.row.rollout, "row": self.number, "on_policy": not reasons, "off_policy": "; ".join(reasons)}
        hermes["left_out"] = self.row.left_out
        document = {
            "schema_version": "ATIF-v1.8",
            "session_id": self.row.session,
            "trajectory_id": self.name,
            "agent": about,
            "steps": self.steps,
            "extra": {"hermes": hermes},
        }
        inner = [child.write(agent) for _, child in self.carried]
        return document | ({"subagent_trajectories": inner} if inner else {})

    def places(self, first: int) -> Iterator[tuple[SourceSample, int, int]]:
        """Yield each sample with its step and the first step of its document, counted over the whole file."""
        yield from ((sample, first + self.step_of[index], first) for index, sample in self.row.trained.items())
        first += len(self.steps)
        for _, child in self.carried:
            yield from child.places(first)
            first += child.size

    @property
    def size(self) -> int:
        return len(self.steps) + sum(child.size for _, child in self.carried)

    def _write_steps(self) -> None:
        open_calls: set[str] = set()
        for index, message in enumerate(self.row.messages):
            references = [{"trajectory_id": child.name} for at, child in self.carried if at == index]
            if message["role"] not in ("tool", "function"):
                step = self._step(index, message)
                if references:
                    step["observation"] = {"results": [{"subagent_trajectory_ref": references}]}
                self.steps.append(step)
                open_calls = {call["tool_call_id"] for call in step.get("tool_calls", ())}
            elif message.get("tool_call_id") in open_calls:
                result = {"source_call_id": message["tool_call_id"], **_result(message, references, "tool_call_id")}
                self.steps[-1].setdefault("observation", {"results": []})["results"].append(result)
            else:
                open_calls = set()
                observation = {"results": [_result(message, references)]}
                self.steps.append({"step_id": len(self.steps) + 1, "source": "system", "message": "", "observation": observation})
            self.step_of.append(len(self.steps) - 1)

    def _step(self, index: int, message: Mapping[str, Any]) -> dict[str, Any]:
        text, about = _content(message)
        step: dict[str, Any] = {"step_id": len(self.steps) + 1, "source": SOURCES[message["role"]], "message": text}
        elsewhere = {"role", "content", "metadata"}
        if message["role"] == "assistant":
            sample = self.row.trained.get(index) or self.row.context.get(index)
            if sample is not None:
                about |= {"response": sample.response_id, "sample": sample.sample_id}
                step |= {"model_name": sample.record.model} if sample.record.model else {}
            thought = reasoning_of(message)
            if thought:
                step["reasoning_content"] = thought
                elsewhere |= {name for name in REASONING if message.get(name) == thought}
            if message.get("tool_calls"):
                step["tool_calls"] = [_tool_call(call, f"call_{index}_{place}") for place, call in enumerate(message["tool_calls"])]
                elsewhere.add("tool_calls")
            if index in self.row.trained:
                metrics = _metrics(self.row.trained[index])
                step |= {"metrics": metrics} if metrics else {}
                step["llm_call_count"] = 1
            else:
                step["is_copied_context"] = True
        elif message["role"] != step["source"]:
            about["role"] = message["role"]
        return step | _extra(about, message, elsewhere)


def _extra(about: dict[str, Any], holder: Mapping[str, Any], elsewhere: set[str]) -> dict[str, Any]:
    fields = {key: value for key, value in holder.items() if key not in elsewhere}
    about = {**about, **({"fields": fields} if fields else {})}
    return {"extra": {"hermes": about}} if about else {}


def _result(message: Mapping[str, Any], references: Sequence[Any], *elsewhere: str) -> dict[str, Any]:
    text, about = _content(message)
    about |= {} if message["role"] == "tool" else {"role": message["role"]}
    known = {"content": text} | ({"subagent_trajectory_ref": references} if references else {})
    return known | _extra(about, message, {"role", "content", "metadata", *elsewhere})


def _content(message: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    content = message.get("content")
    if not isinstance(content, list):
        return content or "", {}
    parts = [_part(part) for part in content]
    whole = {"content": content} if None in parts else {}
    return [part or {"type": "text", "text": part_text(given)} for part, given in zip(parts, content, strict=True)], whole


def _part(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a part in ATIF's form; None if ATIF has none for it."""
    if is_text(part):
        return {"type": "text", "text": part["text"]} if len(part) == 2 else None
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, Mapping) else None
    if part.get("type") != "image_url" or not isinstance(url, str) or url.startswith("data:") or guess_type(url)[0] not in IMAGE_TYPES:
        return None
    return {"type": "image", "source": {"media_type": guess_type(url)[0], "path": url}}


def _tool_call(call: Mapping[str, Any], name: str) -> dict[str, Any]:
    function = call["function"] if isinstance(call.get("function"), Mapping) else {}
    text = function.get("arguments")
    arguments = _object(text)
    about = {} if arguments is not None and json.dumps(arguments, ensure_ascii=False) == text else {"arguments": text}
    fields = {key: value for key, value in call.items() if key not in ("id", "type", "function")}
    fields |= {key: value for key, value in function.items() if key not in ("name", "arguments")}
    return {
        "tool_call_id": call["id"] if isinstance(call.get("id"), str) else name,
        "function_name": str(function.get("name") or ""),
        "arguments": arguments or {},
        **_extra(about, fields, set()),
    }


def _object(text: Any) -> dict[str, Any] | None:
    try:
        value = json.loads(text, parse_constant=_no_constant) if isinstance(text, str) else None
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _metrics(sample: SourceSample) -> dict[str, Any]:
    """Return what the server said about a call, and its annotations; nothing if there is no record of it."""
    if sample.response.call is None:
        return {}
    record = sample.record
    usage = record.usage or {}
    details = usage.get("prompt_tokens_details")
    prompt = record.prompt_token_ids
    counts = {
        "prompt_tokens": usage.get("prompt_tokens", None if prompt is None else len(prompt)),
        "completion_tokens": sample.sampled or usage.get("completion_tokens"),
        "cached_tokens": details.get("cached_tokens") if isinstance(details, Mapping) else None,
    }
    metrics: dict[str, Any] = {key: value for key, value in counts.items() if type(value) is int}
    scores = None if record.logprobs is None else list(record.logprobs)
    lists = {
        "prompt_token_ids": None if prompt is None else list(prompt),
        "completion_token_ids": None if record.token_ids is None else list(record.token_ids),
        "logprobs": scores if scores is not None and all(math.isfinite(score) for score in scores) else None,
    }
    extra = {
        "policy_version": record.policy_version,
        "policy_spans": [list(span) for span in record.policy_spans] if record.policy_spans else None,
        "prompt_derived": True if record.prompt_derived else None,
        "tokenizer": record.tokenizer,
        "finish_reason": record.finish_reason,
        "sampling": record.sampling,
        "reward": sample.reward,
        "advantage": sample.advantage,
        "rollout_reward": sample.rollout_reward,
    }
    known = {key: value for key, value in extra.items() if value is not None}
    metrics |= {key: value for key, value in lists.items() if value is not None}
    return metrics | ({"extra": known} if known else {})


def _hosts(rows: Sequence[TextLayout]) -> dict[int, tuple[int, int]]:
    """Return for each row that goes inside another one that row, and the message there whose chat it was sampled in."""
    chats = [
        (message.chat.response_ids, at, index)
        for at, row in enumerate(rows)
        for index, message in enumerate(row.messages)
        if getattr(message, "chat", None) is not None
    ]
    hosts: dict[int, tuple[int, int]] = {}
    for number, row in enumerate(rows):
        if not any(sample.response.is_own for sample in row.samples):
            ids = {sample.response_id for sample in row.samples}
            holding = sorted((len(known), at, index) for known, at, index in chats if at != number and ids <= known)
            if holding:
                hosts[number] = holding[0][1:]
    for number in range(len(rows)):
        at, seen = number, set[int]()
        while at in hosts and at not in seen:
            seen.add(at)
            at = hosts[at][0]
        if at in seen and number in hosts:
            del hosts[number]
    return hosts
