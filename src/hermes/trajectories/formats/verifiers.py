"""verifiers: `traces.jsonl`, one Episode a line with one Trace in it; read it with `read_episodes(DIR, WireTrace)`.

A trace is a rollout in one tokenizer; episodes of one session share their `group`. Its nodes are messages; a node holds the tokens that
it adds to those of its parents. The ledger's `row` counts the sampled nodes of all traces in the order of the file: a row's tokens are
those of the path from the root to the node, and only the node's own tokens are trained, where its `mask` is true. A node is one sample,
so twins are two nodes and no weight is needed.

Servers do not return which prompt tokens belong to which message. So the last new message before a reply holds all new tokens of the
prompt, and the new messages before it none; if there is no new message, the reply holds them, masked. Calls share nodes while their
messages and tokens agree. `advantages` are present only if a reward or an advantage was annotated. Edges of the graph become
`semantic_parents`; a kind that verifiers does not know, or uses with another meaning, is `hermes:kind`. Hermes cuts nothing; prime-rl
cuts branches at `seq_len`. To train each token exactly once, use nodes: `Branch.sampled_mask` marks a node in every branch that has it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hermes.graph.message import REASONING, canonical, digest, thaw
from hermes.graph.node import Node
from hermes.trajectories.calls import TOKEN_BYTES, SampledCall
from hermes.trajectories.formats.files import LineFile
from hermes.trajectories.formats.response_links import response_links
from hermes.trajectories.formats.unweighted_rows import depth_first, sample_facts
from hermes.trajectories.ledger import Placement, dump
from hermes.trajectories.plan import ExportSettings, RolloutPlan, SessionPlan

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool", "function": "tool"}


def message(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as verifiers' types take it."""
    role = ROLES[source["role"]]
    content = source.get("content")
    if role == "assistant":
        out: dict[str, Any] = {"role": role, "content": None if content is None else _text(content)}
        reasoning = source.get("reasoning_content") or source.get("reasoning")
        if reasoning:
            out["reasoning_content"] = _clean(reasoning)
        if source.get("tool_calls"):
            out["tool_calls"] = [_tool_call(call) for call in source["tool_calls"]]
        return out
    out = {"role": role, "content": [_part(part) for part in content] if isinstance(content, list) else _clean(content or "")}
    if role == "tool":
        out["tool_call_id"] = _clean(source.get("tool_call_id") or "")
        if source.get("name"):
            out["name"] = _clean(source["name"])
    return out


def tool(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool schema without the `function` around it."""
    inner = schema.get("function")
    flat = inner if isinstance(inner, Mapping) else schema
    known = {"name": _clean(str(flat.get("name", "")))}
    if isinstance(flat.get("description"), str):
        known["description"] = _clean(flat["description"])
    if isinstance(flat.get("parameters"), Mapping):
        known["parameters"] = _clean_json(flat["parameters"])
    return known


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    inner = function if isinstance(function, Mapping) else call
    arguments = inner.get("arguments", "")
    text = arguments if isinstance(arguments, str) else json.dumps(thaw(arguments))
    return {"id": _clean(str(call.get("id") or "")), "name": _clean(str(inner.get("name", ""))), "arguments": _clean(text)}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    image = part.get("image_url")
    if part["type"] == "image_url" and isinstance(image, Mapping) and isinstance(image.get("url"), str):
        return {"type": "image_url", "image_url": {"url": _clean(image["url"])}}
    return {"type": "text", "text": _text([part])}


def _text(content: Any) -> str:
    """Return content as one text; a part without text is written as JSON."""
    if isinstance(content, str):
        return _clean(content)
    texts = [part["text"] if isinstance(part.get("text"), str) else json.dumps(thaw(part), sort_keys=True) for part in content]
    return _clean("".join(texts))


def _clean(text: str) -> str:
    """Return a text in which U+FFFD replaces each half of a surrogate pair, which verifiers refuses."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if not text.isascii() else text


def _clean_json(value: Any) -> Any:
    return json.loads(_clean(json.dumps(thaw(value), ensure_ascii=False)))


FILE_NAME = "traces.jsonl"
KNOWN_EDGES = frozenset({"continuation", "compaction", "subagent_call", "subagent_return", "agent_message", "subagent_cancel"})
"""Edge kinds with the same meaning in verifiers. Not compaction_attempt: verifiers would leave out a sample that this export trains."""
FINISH_REASONS = frozenset({"stop", "length", "tool_calls"})


class VerifiersWriter:
    """Streams episodes into one file."""

    untrained = "not written by this format"

    def __init__(self, folder: Path | None, settings: ExportSettings) -> None:  # noqa: ARG002  # every writer takes the settings
        self._file = LineFile(folder, FILE_NAME)
        self.files = (self._file,)
        self.rows = 0

    def write(self, plan: SessionPlan) -> Iterator[Placement]:
        known = response_links(plan.session.graph)
        for rollout in plan.rollouts:
            if not rollout.rows:
                continue
            nodes = TraceNodes()
            for call in depth_first(rollout):
                nodes.add(call)
                yield Placement(call, {"row": self.rows, "start": call.start, "end": call.end})
                self.rows += 1
            for kind, source, target in known:
                nodes.link(kind, source, target)
            self._file.write(dump(episode(rollout, nodes)))

    def close(self) -> None:
        self._file.close()


class TraceNodes:
    """The nodes of a trace, grown call by call."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.calls: list[tuple[int, SampledCall]] = []
        self._tokens: list[bytes] = []
        self._children: dict[tuple[int | None, bytes], list[int]] = {}
        self._of: dict[str, int] = {}

    def add(self, call: SampledCall) -> None:
        """Add a call below the deepest node whose messages and tokens its context begins with."""
        context = call.response.context
        tools = call.response.overlay.tools or []
        keys = [_key(sent) for sent in (*context, call.response.message)]
        keys[0] = digest(keys[0] + canonical(tools))  # tools are part of the context, and are kept at its root
        at, held, depth = None, 0, 0
        while depth < len(context):
            near = self._children.get((at, keys[depth]), [])
            fit = next((node for node in near if call.prompt.startswith(self._tokens[node], held)), None)
            if fit is None:
                break
            at, held, depth = fit, held + len(self._tokens[fit]), depth + 1
        for index in range(depth, len(context)):
            added = call.prompt[held:] if index == len(context) - 1 else b""
            at, held = self._append(at, keys[index], context[index], added, tools), held + len(added)
        node = self._append(at, keys[-1], call.response.message, call.tokens[held:], tools)
        scaffold = (len(call.prompt) - held) // TOKEN_BYTES
        self.nodes[node] |= {
            "sampled": True,
            "mask": [False] * scaffold + [True] * call.trained,
            "logprobs": np.frombuffer(call.logprobs, np.float32)[: call.trained].tolist(),
        }
        if any(value is not None for value in (call.advantage, call.reward, call.rollout_reward)):
            self.nodes[node]["advantages"] = [call.effective_advantage] * call.trained
        self.calls.append((node, call))
        self._of[call.response_id] = node

    def _append(self, parent: int | None, key: bytes, sent: Mapping[str, Any], tokens: bytes, tools: Sequence[Any]) -> int:
        number = len(self.nodes)
        ids = np.frombuffer(tokens, np.int32).tolist()
        node = {"parent": parent, "message": message(sent), "sampled": False, "timestamp": 0.0, "token_ids": ids, "logprobs": []}
        self.nodes.append(node | {"mask": [False] * len(ids), "semantic_parents": []})
        if parent is None:
            self.nodes[number]["tools"] = [tool(schema) for schema in tools]
        self._tokens.append(tokens)
        self._children.setdefault((parent, key), []).append(number)
        return number

    def link(self, kind: str, source: str, target: str) -> None:
        """Join two responses, if both are in this trace."""
        if source in self._of and target in self._of and source != target:
            label = kind if kind in KNOWN_EDGES else "hermes:" + re.sub(r"[^A-Za-z0-9._:-]", "_", kind)[:100]
            self.nodes[self._of[target]]["semantic_parents"].append({"node": self._of[source], "type": label})


def episode(rollout: RolloutPlan, nodes: TraceNodes) -> dict[str, Any]:
    """Return one line: an episode with its one trace."""
    first = nodes.calls[0][1]
    name = hashlib.sha256(dump([first.session, rollout.rollout, rollout.tokenizer])).hexdigest()[:32]
    task = {"type": "Hermes", "data": {"hermes": {"session": first.session, "rollout": rollout.rollout}}}
    trace = {
        "version": 1,
        "id": name,
        "task": task,
        "agent": {"config": {}, "name": "agent", "trainable": True},
        "tools": list({known["name"]: known for node in nodes.nodes for known in node.get("tools", [])}.values()),
        "nodes": nodes.nodes,
        "calls": [_model_call(node, call) for node, call in nodes.calls],
        "rewards": {} if first.rollout_reward is None else {"reward": {"score": first.rollout_reward, "weight": 1.0}},
        "metrics": {},
        "info": {
            "hermes": {
                "session": first.session,
                "rollout": rollout.rollout,
                "tokenizer": rollout.tokenizer,
                "loss_scale": rollout.loss_scale,
                "on_policy": all(call.on_policy for _, call in nodes.calls),
                "samples": [sample_facts(call) | {"node": node} for node, call in nodes.calls],
            }
        },
        "is_completed": True,
        "ok": True,
    }
    return {"id": name, "env": {"id": "hermes"}, "group": {"id": first.session}, "task": task, "ok": True, "traces": [trace]}


def _model_call(node: int, call: SampledCall) -> dict[str, Any]:
    record = call.response.call
    sampling = (record.sampling if record is not None else None) or {}
    finish = record.finish_reason if record is not None else None
    return {
        "node": node,
        "model": record.model if record is not None else None,
        "sampling": {key: value for key, value in sampling.items() if isinstance(value, int | float)},
        "finish_reason": finish if finish in FINISH_REASONS else None,
        "usage": {"prompt_tokens": call.start, "completion_tokens": call.sampled},
    }


def _key(sent: Mapping[str, Any]) -> bytes:
    """Return a message's key: its content without its reasoning. Whether the reasoning was sent again shows in the tokens."""
    if isinstance(sent, Node) and not any(name in sent for name in REASONING):
        return sent.digest
    return digest(canonical({key: value for key, value in sent.items() if key not in (*REASONING, "metadata")}))
