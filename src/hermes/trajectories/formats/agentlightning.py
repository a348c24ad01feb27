"""agent-lightning: one record for each call, as events (v1.0) in `events.jsonl` and as spans (0.3.0) in `spans.jsonl`.

The ledger's `row` counts the `model_request` lines of `events.jsonl` in order: a row's tokens are `prompt_token_ids` +
`response_token_ids`, and the whole response is trained. `spans.jsonl` holds the same for the adapters of 0.3.0: its n-th span named
`openai.chat.completion` is row n. Read one file or the other, never both. The spans were checked with the package itself; of
v1.0, which is not on PyPI, only the source was read.

Calls come depth first, so that a trainer that merges consecutive calls (v1.0) merges all it can. v1.0 keeps only the last of
several requests with one prompt in a rollout; so where a prompt was sampled n times, the second to n-th sample are rollouts of their own
(`name~1` ...) with the same reward. Rewards are the rollout's; those of single responses are in `hermes.reward`, which no trainer reads.
Timestamps count a rollout's records, not seconds. Messages are not written: `TraceToMessages` finds none. Hermes cuts nothing; v1.0 drops
prompts longer than `data.max_prompt_length` and cuts responses longer than `data.max_response_length`."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hermes.trajectories.calls import SampledCall
from hermes.trajectories.formats.files import LineFile
from hermes.trajectories.formats.unweighted_rows import depth_first
from hermes.trajectories.ledger import Placement, dump
from hermes.trajectories.plan import ExportSettings, SessionPlan

EVENTS = "events.jsonl"
SPANS = "spans.jsonl"
ATTEMPT = "0"
ROOT = f"{0:016x}"


class AgentLightningWriter:
    """Streams calls into both files."""

    untrained = "not written by this format"

    def __init__(self, folder: Path | None, settings: ExportSettings) -> None:  # noqa: ARG002  # every writer takes the settings
        self._events = LineFile(folder, EVENTS)
        self._spans = LineFile(folder, SPANS)
        self.files = (self._events, self._spans)
        self.rows = 0

    def write(self, plan: SessionPlan) -> Iterator[Placement]:
        for name, calls in rollouts(plan):
            self._spans.write(dump(span(name, 0, "hermes.rollout", {}, len(calls) + 2)))
            for number, call in enumerate(calls, start=1):
                self._events.write(dump(event(name, number, "model_request", model_request(call))))
                self._spans.write(dump(span(name, number, "openai.chat.completion", attributes(call))))
                yield Placement(call, {"row": self.rows, "start": call.start, "end": call.end})
                self.rows += 1
            reward = calls[0].rollout_reward
            if reward is not None:
                self._events.write(dump(event(name, len(calls) + 1, "reward", {"value": reward})))
                stated = {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": reward}
                self._spans.write(dump(span(name, len(calls) + 1, "agentlightning.annotation", stated)))

    def close(self) -> None:
        self._events.close()
        self._spans.close()


def rollouts(plan: SessionPlan) -> Iterator[tuple[str, list[SampledCall]]]:
    """Yield the session's calls by rollout, depth first; no two calls of one list have the same prompt."""
    tokenizers = Counter(rollout.rollout for rollout in plan.rollouts if rollout.rows)
    for rollout in plan.rollouts:
        session, marked = _escape_name(plan.session.name), _escape_name(rollout.rollout)
        name = session if marked == session else f"{session}/{marked}"
        name = f"{name}@{_escape_name(rollout.tokenizer)}" if tokenizers[rollout.rollout] > 1 else name
        lists: list[list[SampledCall]] = []
        seen: Counter[bytes] = Counter()
        for call in depth_first(rollout):
            prompt = hashlib.sha256(call.prompt).digest()
            if seen[prompt] == len(lists):
                lists.append([])
            lists[seen[prompt]].append(call)
            seen[prompt] += 1
        yield from ((f"{name}~{number}" if number else name, calls) for number, calls in enumerate(lists))


def _escape_name(name: str) -> str:
    """Escape the characters that join the parts of a rollout id."""
    return name.replace("%", "%25").replace("~", "%7E").replace("@", "%40")


def event(rollout_id: str, number: int, kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"event_type": kind, "rollout_id": rollout_id, "attempt_id": ATTEMPT, "timestamp": float(number), "data": data}


def model_request(call: SampledCall) -> dict[str, Any]:
    """Return the data of a v1.0 event: the server's stored `response`, and the fields that the server derives from it for the trainer."""
    record = call.response.call
    model = (record.model if record is not None else None) or ""
    version = int(call.policy) if call.policy.isdecimal() and len(call.policy) < 19 else None
    finish = record.finish_reason if record is not None else None
    prompt, response, logprobs = numbers(call)
    choice = {
        "index": 0,
        "token_ids": response,
        "logprobs": {"content": content(response, logprobs)},
        "finish_reason": finish,
    }
    return {
        "model": model,
        "model_version": version,
        "server": {"model": model, "version": version},
        "request": {},
        "response": {"id": call.response_id, "prompt_token_ids": prompt, "choices": [choice]},
        "prompt_token_ids": prompt,
        "response_token_ids": response,
        "response_log_probs": logprobs,
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(response)},
        "finish_reason": finish,
        "status": "ok",
        "hermes": {"sample": call.sample_id, "reward": call.reward, "advantage": call.advantage, "policy": call.policy},
    }


def span(rollout_id: str, number: int, name: str, attributes: dict[str, Any], length: float = 0.5) -> dict[str, Any]:
    """Return a span as 0.3.0 requires it: with every key; the first span of a rollout encloses the others, which do not overlap."""
    return {
        "rollout_id": rollout_id,
        "attempt_id": ATTEMPT,
        "sequence_id": number,
        "trace_id": hashlib.sha256(rollout_id.encode("utf-8", "surrogatepass")).hexdigest()[:32],
        "span_id": f"{number:016x}",
        "parent_id": ROOT if number else None,
        "name": name,
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


def attributes(call: SampledCall) -> dict[str, Any]:
    """Return the attributes of a span; the response's id is unique, because 0.3.0 drops a span whose id it saw before."""
    prompt, response, logprobs = numbers(call)
    rewarded = {} if call.reward is None else {"hermes.reward": call.reward}
    return {
        "prompt_token_ids": prompt,
        "response_token_ids": response,
        "logprobs.content": json.dumps(
            [{"token": str(token), "logprob": logprob} for token, logprob in zip(response, logprobs, strict=True)]
        ),
        "gen_ai.response.id": call.response_id,
        "hermes.sample": call.sample_id,
        "hermes.policy": call.policy,
        **rewarded,
    }


def numbers(call: SampledCall) -> tuple[list[int], list[int], list[float]]:
    """Return prompt ids, trained completion ids and their logprobs, exactly."""
    prompt, completion = np.frombuffer(call.prompt, np.int32), np.frombuffer(call.completion, np.int32)
    return prompt.tolist(), completion[: call.trained].tolist(), np.frombuffer(call.logprobs, np.float32)[: call.trained].tolist()


def content(tokens: list[int], logprobs: list[float]) -> list[dict[str, Any]]:
    """Return logprobs in the form of chat servers; the text of a token is not known here, so `token` is its id."""
    return [{"token": str(token), "logprob": logprob} for token, logprob in zip(tokens, logprobs, strict=True)]
