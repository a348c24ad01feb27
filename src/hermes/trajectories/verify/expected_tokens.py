"""What the files of token formats hold: Parquet rows and trees, TRL, verl, Atropos, slime and agent-lightning."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from hermes.graph import MessageGraph
from hermes.trajectories.verify.expected import NOT_WRITTEN, ExpectedSession
from hermes.trajectories.verify.linear_reader import FILE_NAME as ROWS_FILE
from hermes.trajectories.verify.linear_reader import SCHEMA as ROWS_SCHEMA
from hermes.trajectories.verify.linear_reader import TRL_SCHEMA
from hermes.trajectories.verify.source_samples import SourceSample
from hermes.trajectories.verify.token_layout import (
    LayoutRow,
    RolloutSamples,
    group_samples,
    in_order,
    layout_rows,
    layout_tree,
    policy_spans,
    single_rows,
)
from hermes.trajectories.verify.tree_reader import FILE_NAME as TREE_FILE
from hermes.trajectories.verify.tree_reader import SCHEMA as TREE_SCHEMA

IGNORED_LABEL = -100
SLIME_FILE_TOKENS = 1_000_000
"""slime's file ends with the session that fills it with this many tokens."""


class TokenExpectation:
    """What all token formats share."""

    untrained = NOT_WRITTEN
    schemas: ClassVar[Mapping[str, pa.Schema]] = {}
    fixed: ClassVar[Mapping[str, Any]] = {}
    names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, source: str) -> None:  # noqa: ARG002  # only text formats write the source
        self.rows = 0

    def files(self) -> Sequence[str]:
        return self.names

    def add(self, session: str, samples: Sequence[SourceSample], graph: MessageGraph) -> ExpectedSession:  # noqa: ARG002
        out = ExpectedSession()
        for group in group_samples(samples):
            self.add_rollout(group, out)
        return out

    def add_rollout(self, group: RolloutSamples, out: ExpectedSession) -> None:
        raise NotImplementedError

    def place(self, samples: Sequence[SourceSample], out: ExpectedSession) -> None:
        """Note that a row trains these samples, and count it."""
        for sample in samples:
            out.placed[sample] = {"row": self.rows, "start": sample.start, "end": sample.end}
        self.rows += 1


class ExpectedParquet(TokenExpectation):
    names = (ROWS_FILE,)
    schemas: ClassVar[Mapping[str, pa.Schema]] = {ROWS_FILE: ROWS_SCHEMA}

    def add_rollout(self, group: RolloutSamples, out: ExpectedSession) -> None:
        first = self.rows
        for row in layout_rows(group.samples):
            tokens, columns = np.frombuffer(row.tokens, "<i4"), row.columns()
            value = {
                **_columns(row, group, self.rows),
                "loss_mask": columns["mask"],
                "position_ids": np.arange(len(tokens), dtype=np.int32),
                "parent_row": first + row.parent if row.parent >= 0 else -1,
                "shared_prefix": row.shared,
                "path": [sample.response_id for sample in row.path],
            }
            out.values.append((self.names[0], value))
            self.place(row.trained, out)


class ExpectedTrl(TokenExpectation):
    names = (ROWS_FILE,)
    schemas: ClassVar[Mapping[str, pa.Schema]] = {ROWS_FILE: TRL_SCHEMA}

    def add_rollout(self, group: RolloutSamples, out: ExpectedSession) -> None:
        for row in single_rows(group.samples):
            value = {**_columns(row, group, self.rows), "samples": [sample.sample_id for sample in row.trained]}
            out.values.append((self.names[0], value))
            self.place(row.trained, out)


def _columns(row: LayoutRow, group: RolloutSamples, number: int) -> dict[str, Any]:
    """Return the columns that canonical rows and TRL's rows share."""
    tokens, columns = np.frombuffer(row.tokens, "<i4"), row.columns()
    return {
        "session": group.session,
        "rollout": group.rollout,
        "row": number,
        "tokenizer": group.tokenizer,
        "input_ids": tokens,
        "labels": np.where(columns["mask"], tokens, IGNORED_LABEL).astype(np.int64),
        "logprobs": columns["logprobs"],
        "weight": columns["weight"],
        "advantages": columns["advantages"],
        "reward": row.reward,
        "loss_scale": group.loss_scale,
        "on_policy": row.on_policy,
        "policy_spans": [span for sample in row.trained for span in policy_spans(sample)],
    }


class ExpectedTree(TokenExpectation):
    names = (TREE_FILE,)
    schemas: ClassVar[Mapping[str, pa.Schema]] = {TREE_FILE: TREE_SCHEMA}

    def add_rollout(self, group: RolloutSamples, out: ExpectedSession) -> None:
        tree = layout_tree(group.samples)
        if tree is None:
            return
        samples = list(tree.segments)
        index = [np.arange(start, end, dtype=np.int32) for sample in samples for start, end in tree.segments[sample]]
        sizes = [sample.trained for sample in samples]
        value = {
            "session": group.session,
            "rollout": group.rollout,
            "row": self.rows,
            "tokenizer": group.tokenizer,
            "input_ids": tree.tokens,
            "position_ids": tree.depths,
            "subtree_end": tree.ends,
            "parents": tree.parents,
            "token_index": np.concatenate(index),
            "logprob": np.frombuffer(b"".join(sample.logprobs for sample in samples), "<f4"),
            "advantage": np.repeat(np.asarray([sample.best_reward or 0.0 for sample in samples], np.float32), sizes),
            "weight": np.ones(sum(sizes), np.float32),
            "sample": np.repeat(np.arange(len(samples), dtype=np.int32), sizes),
            "samples": [sample.sample_id for sample in samples],
            "reward": samples[0].rollout_reward,
            "loss_scale": group.loss_scale,
            "on_policy": all(sample.on_policy for sample in samples),
        }
        out.values.append((self.names[0], value))
        for sample, segments in tree.segments.items():
            out.placed[sample] = {"row": self.rows, "segments": segments}
        self.rows += 1


class ExpectedVerl(TokenExpectation):
    names = ("rows.jsonl",)

    def add_rollout(self, group: RolloutSamples, out: ExpectedSession) -> None:
        for row in single_rows(group.samples):
            tokens, columns, start = np.frombuffer(row.tokens, "<i4").tolist(), row.columns(), row.trained[0].start
            value = {
                "prompt_ids": tokens[:start],
                "response_ids": tokens[start:],
                "response_mask": columns["mask"][start:].astype(int).tolist(),
                "response_logprobs": columns["logprobs"][start:].tolist(),
                "reward_score": row.reward,
                "num_turns": row.trained[-1].response.index + 1,
                "metrics": {},
                "extra_fields": {"reward_extra_info": {}, **_training_steps(row), "hermes": {**origin(row, group), "row": self.rows}},
            }
            out.values.append((self.names[0], value))
            self.place(row.trained, out)


def _training_steps(row: LayoutRow) -> dict[str, int]:
    versions = [version for sample in row.trained for version, _, _ in sample.policy_spans]
    steps = [version_number(version) for version in versions]
    numbers = [step for step in steps if step is not None]
    return {"min_global_steps": min(numbers), "max_global_steps": max(numbers)} if len(numbers) == len(steps) else {}


def version_number(version: str) -> int | None:
    """Return a policy version as a number; None if it is none, or has more digits than trainers read."""
    return int(version) if version.isdecimal() and len(version) <= 18 else None


def origin(row: LayoutRow, group: RolloutSamples) -> dict[str, Any]:
    """Return what a row holds under `hermes`."""
    return {
        "session": group.session,
        "rollout": group.rollout,
        "tokenizer": group.tokenizer,
        "reward": row.reward,
        "loss_scale": group.loss_scale,
        "on_policy": row.on_policy,
        "samples": [facts(sample) for sample in row.trained],
    }


def facts(sample: SourceSample) -> dict[str, Any]:
    """Return what a row says about one of its samples."""
    return {
        "sample": sample.sample_id,
        "response": sample.response_id,
        "start": sample.start,
        "end": sample.end,
        "reward": sample.reward,
        "advantage": sample.advantage,
        "policy_spans": policy_spans(sample),
    }


class ExpectedAtropos(TokenExpectation):
    names = ("groups.jsonl",)

    def add(self, session: str, samples: Sequence[SourceSample], graph: MessageGraph) -> ExpectedSession:  # noqa: ARG002
        out = ExpectedSession()
        by_tokenizer: dict[str, list[tuple[LayoutRow, RolloutSamples]]] = {}
        for group in group_samples(samples):
            by_tokenizer.setdefault(group.tokenizer, []).extend((row, group) for row in single_rows(group.samples))
        for tokenizer, rows in by_tokenizer.items():
            if rows:
                about = {"hermes": {"session": session, "tokenizer": tokenizer}}
                value: dict[str, Any] = {key: [] for key in ("tokens", "masks", "scores", "advantages", "inference_logprobs", "overrides")}
                for row, group in rows:
                    tokens, columns = np.frombuffer(row.tokens, "<i4"), row.columns()
                    value["tokens"].append(tokens.tolist())
                    value["masks"].append(np.where(columns["mask"], tokens, IGNORED_LABEL).tolist())
                    value["scores"].append(row.reward or 0.0)
                    value["advantages"].append(columns["advantages"].tolist())
                    value["inference_logprobs"].append(np.where(columns["mask"], columns["logprobs"], np.float32(1)).tolist())
                    value["overrides"].append({"hermes": origin(row, group)})
                    self.place(row.trained, out)
                out.values.append((self.names[0], {**value, "group_overrides": about}))
        return out


class ExpectedSlime(TokenExpectation):
    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._file = 0
        self._tokens = 0
        self._sessions = 0
        self._rollouts = 0
        self._used = 0
        """How many files have a sample."""

    def files(self) -> Sequence[str]:
        return [f"rollout_{number}.pt" for number in range(max(self._used, 1))]

    def add(self, session: str, samples: Sequence[SourceSample], graph: MessageGraph) -> ExpectedSession:  # noqa: ARG002
        out = ExpectedSession()
        groups: dict[str, list[tuple[RolloutSamples, list[LayoutRow]]]] = {}
        for group in group_samples(samples):
            rows = list(single_rows(group.samples))
            if rows:
                groups.setdefault(group.rollout, []).append((group, rows))
        for members in groups.values():
            for group, rows in members:
                for row in rows:
                    out.values.append((f"rollout_{self._file}.pt", self._sample(row, group)))
                    self._tokens += len(row.tokens) // 4
                    self._used = self._file + 1
                    self.place(row.trained, out)
            self._rollouts += 1
        self._sessions += 1
        if self._tokens >= SLIME_FILE_TOKENS:
            self._file, self._tokens = self._file + 1, 0
        return out

    def _sample(self, row: LayoutRow, group: RolloutSamples) -> dict[str, Any]:
        tokens, columns, start = np.frombuffer(row.tokens, "<i4").tolist(), row.columns(), row.trained[0].start
        return {
            "prompt": "",
            "tokens": tokens,
            "response": "",
            "response_length": len(tokens) - start,
            "label": None,
            "reward": row.reward or 0.0,
            "loss_mask": columns["mask"][start:].astype(int).tolist(),
            "rollout_log_probs": columns["logprobs"][start:].tolist(),
            "weight_versions": list(dict.fromkeys(version for sample in row.trained for version, _, _ in sample.policy_spans)),
            "remove_sample": False,
            "status": "completed",
            "session_id": group.session,
            "metadata": {"hermes": origin(row, group)},
            "index": self.rows,
            "group_index": self._sessions,
            "rollout_id": self._rollouts,
        }


class ExpectedAgentLightning(TokenExpectation):
    names = ("events.jsonl", "spans.jsonl")

    def add(self, session: str, samples: Sequence[SourceSample], graph: MessageGraph) -> ExpectedSession:  # noqa: ARG002
        out = ExpectedSession()
        groups = [(group, layout_rows(group.samples)) for group in group_samples(samples)]
        groups = [(group, rows) for group, rows in groups if rows]
        rollouts = [group.rollout for group, _ in groups]
        for group, rows in groups:
            name = _quote(group.session)
            name += f"/{_quote(group.rollout)}" if group.rollout != group.session else ""
            name += f"@{_quote(group.tokenizer)}" if rollouts.count(group.rollout) > 1 else ""
            lists: list[dict[bytes, SourceSample]] = []
            for sample in (sample for row in rows for sample in in_order(row)):
                free = next((prompts for prompts in lists if sample.prompt not in prompts), None)
                if free is None:
                    free = {}
                    lists.append(free)
                free[sample.prompt] = sample
            for number, prompts in enumerate(lists):
                self._add_list(f"{name}~{number}" if number else name, list(prompts.values()), out)
        return out

    def _add_list(self, name: str, samples: Sequence[SourceSample], out: ExpectedSession) -> None:
        count = len(samples)
        self._add_line(out, 1, _span(name, 0, "hermes.rollout", {}, count + 2))
        for number, sample in enumerate(samples, start=1):
            self._add_line(out, 0, _event(name, number, "model_request", _request(sample)))
            self._add_line(out, 1, _span(name, number, "openai.chat.completion", _attributes(sample)))
            self.place([sample], out)
        reward = samples[0].rollout_reward
        if reward is not None:
            self._add_line(out, 0, _event(name, count + 1, "reward", {"value": reward}))
            stated = {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": reward}
            self._add_line(out, 1, _span(name, count + 1, "agentlightning.annotation", stated))

    def _add_line(self, out: ExpectedSession, file: int, line: dict[str, Any]) -> None:
        out.values.append((self.names[file], line))


def _quote(name: str) -> str:
    return "".join(f"%{ord(letter):02X}" if letter in "%~@" else letter for letter in name)


def _event(name: str, number: int, kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"event_type": kind, "rollout_id": name, "attempt_id": "0", "timestamp": float(number), "data": data}


def _span(name: str, number: int, kind: str, attributes: dict[str, Any], length: float = 0.5) -> dict[str, Any]:
    return {
        "rollout_id": name,
        "attempt_id": "0",
        "sequence_id": number,
        "trace_id": hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32],
        "span_id": f"{number:016x}",
        "parent_id": f"{0:016x}" if number else None,
        "name": kind,
        "status": {"status_code": "OK"},
        "attributes": attributes,
        "events": [],
        "links": [],
        "start_time": float(number),
        "end_time": number + length,
        "context": None,
        "parent": None,
        "resource": {"attributes": {}, "schema_url": ""},
    }


def _request(sample: SourceSample) -> dict[str, Any]:
    prompt, response, scores = _numbers(sample)
    model, version, finish = sample.record.model or "", version_number(sample.policy), sample.record.finish_reason
    content = list(_content(response, scores))
    choice = {"index": 0, "token_ids": response, "logprobs": {"content": content}, "finish_reason": finish}
    return {
        "model": model,
        "model_version": version,
        "server": {"model": model, "version": version},
        "request": {},
        "response": {"id": sample.response_id, "prompt_token_ids": prompt, "choices": [choice]},
        "prompt_token_ids": prompt,
        "response_token_ids": response,
        "response_log_probs": scores,
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(response)},
        "finish_reason": finish,
        "status": "ok",
        "hermes": {"sample": sample.sample_id, "reward": sample.reward, "advantage": sample.advantage, "policy": sample.policy},
    }


def _attributes(sample: SourceSample) -> dict[str, Any]:
    prompt, response, scores = _numbers(sample)
    return {
        "prompt_token_ids": prompt,
        "response_token_ids": response,
        "logprobs.content": json.dumps(list(_content(response, scores))),
        "gen_ai.response.id": sample.response_id,
        "hermes.sample": sample.sample_id,
        "hermes.policy": sample.policy,
        **({} if sample.reward is None else {"hermes.reward": sample.reward}),
    }


def _numbers(sample: SourceSample) -> tuple[list[int], list[int], list[float]]:
    tokens = np.frombuffer(sample.tokens, "<i4").tolist()
    return tokens[: sample.start], tokens[sample.start :], np.frombuffer(sample.logprobs, "<f4").tolist()


def _content(tokens: Sequence[int], scores: Sequence[float]) -> Iterator[dict[str, Any]]:
    return ({"token": str(token), "logprob": score} for token, score in zip(tokens, scores, strict=True))
