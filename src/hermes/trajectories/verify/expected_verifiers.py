"""What verifiers' `traces.jsonl` holds: for each rollout the tree of its messages, with the tokens that each message adds."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hermes.graph import Edge, MessageGraph
from hermes.trajectories.verify.expected import ExpectedSession
from hermes.trajectories.verify.expected_tokens import TokenExpectation, facts
from hermes.trajectories.verify.source_samples import TOKEN, SourceSample
from hermes.trajectories.verify.token_layout import RolloutSamples, group_samples, in_order, layout_rows

SPEAKERS = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool", "function": "tool"}
SAME_EDGES = frozenset({"continuation", "compaction", "subagent_call", "subagent_return", "agent_message", "subagent_cancel"})
"""Edges that verifiers knows under the same name."""
SUBAGENT_EDGES = frozenset({"subagent_call", "subagent_return"})
FINISHED = frozenset({"stop", "length", "tool_calls"})
_HALF = re.compile("[\ud800-\udfff]")


class ExpectedVerifiers(TokenExpectation):
    names = ("traces.jsonl",)

    def add(self, session: str, samples: Sequence[SourceSample], graph: MessageGraph) -> ExpectedSession:
        out = ExpectedSession()
        links = _links(graph)
        for group in group_samples(samples):
            ordered = [sample for row in layout_rows(group.samples) for sample in in_order(row)]
            if not ordered:
                continue
            tree = _MessageTree()
            for sample in ordered:
                tree.add(sample)
                self.place([sample], out)
            for kind, source, target in links:
                tree.link(kind, source, target)
            out.values.append((self.names[0], _episode(session, group, ordered, tree)))
        return out


@dataclass(slots=True)
class _MessageTree:
    nodes: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[bytes] = field(default_factory=list)
    below: dict[tuple[int | None, str], list[int]] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    """The node of each response."""

    def add(self, sample: SourceSample) -> None:
        tools = sample.response.overlay.tools or []
        sent = [*sample.response.context, sample.response.message]
        keys = [json.dumps({key: value for key, value in one.items() if key not in NOT_IN_KEY}, sort_keys=True) for one in sent]
        keys[0] += json.dumps(tools, sort_keys=True)
        at: int | None = None
        held = depth = 0
        while depth < len(sent) - 1:
            same = (node for node in self.below.get((at, keys[depth]), ()) if sample.prompt.startswith(self.tokens[node], held))
            fit = next(same, None)
            if fit is None:
                break
            at, held, depth = fit, held + len(self.tokens[fit]), depth + 1
        for index in range(depth, len(sent) - 1):
            new = sample.prompt[held:] if index == len(sent) - 2 else b""
            at, held = self._grow(at, keys[index], sent[index], new, tools), held + len(new)
        node = self._grow(at, keys[-1], sent[-1], sample.tokens[held:], tools)
        masked = (len(sample.prompt) - held) // TOKEN
        self.nodes[node]["sampled"] = True
        self.nodes[node]["mask"] = [False] * masked + [True] * sample.trained
        self.nodes[node]["logprobs"] = np.frombuffer(sample.logprobs, "<f4").tolist()
        if sample.best_reward is not None:
            self.nodes[node]["advantages"] = [sample.best_reward] * sample.trained
        self.places[sample.response_id] = node

    def _grow(self, parent: int | None, key: str, sent: Mapping[str, Any], tokens: bytes, tools: Sequence[Any]) -> int:
        ids = np.frombuffer(tokens, "<i4").tolist()
        node: dict[str, Any] = {"parent": parent, "message": _message(sent), "sampled": False, "timestamp": 0.0, "token_ids": ids}
        node |= {"logprobs": [], "mask": [False] * len(ids), "semantic_parents": []}
        if parent is None:
            node["tools"] = [_tool(schema) for schema in tools]
        self.nodes.append(node)
        self.tokens.append(tokens)
        self.below.setdefault((parent, key), []).append(len(self.nodes) - 1)
        return len(self.nodes) - 1

    def link(self, kind: str, source: str, target: str) -> None:
        if source != target and source in self.places and target in self.places:
            name = kind if kind in SAME_EDGES else "hermes:" + re.sub(r"[^A-Za-z0-9._:-]", "_", kind)[:100]
            self.nodes[self.places[target]]["semantic_parents"].append({"node": self.places[source], "type": name})


NOT_IN_KEY = frozenset({"reasoning", "reasoning_content", "metadata"})
"""Fields that do not tell messages apart: whether reasoning was sent again shows in the tokens."""


def _episode(session: str, group: RolloutSamples, samples: Sequence[SourceSample], tree: _MessageTree) -> dict[str, Any]:
    text = json.dumps([session, group.rollout, group.tokenizer], separators=(",", ":")) + "\n"
    name = hashlib.sha256(text.encode("ascii")).hexdigest()[:32]
    task = {"type": "Hermes", "data": {"hermes": {"session": session, "rollout": group.rollout}}}
    tools: dict[str, Any] = {}
    for node in tree.nodes:
        tools |= {known["name"]: known for known in node.get("tools", ())}
    reward = samples[0].rollout_reward
    trace = {
        "version": 1,
        "id": name,
        "task": task,
        "agent": {"config": {}, "name": "agent", "trainable": True},
        "tools": list(tools.values()),
        "nodes": tree.nodes,
        "calls": [_call(tree.places[sample.response_id], sample) for sample in samples],
        "rewards": {} if reward is None else {"reward": {"score": reward, "weight": 1.0}},
        "metrics": {},
        "info": {
            "hermes": {
                "session": session,
                "rollout": group.rollout,
                "tokenizer": group.tokenizer,
                "loss_scale": group.loss_scale,
                "on_policy": all(sample.on_policy for sample in samples),
                "samples": [{**facts(sample), "node": tree.places[sample.response_id]} for sample in samples],
            }
        },
        "is_completed": True,
        "ok": True,
    }
    return {"id": name, "env": {"id": "hermes"}, "group": {"id": session}, "task": task, "ok": True, "traces": [trace]}


def _call(node: int, sample: SourceSample) -> dict[str, Any]:
    record = sample.record
    return {
        "node": node,
        "model": record.model,
        "sampling": {key: value for key, value in (record.sampling or {}).items() if isinstance(value, int | float)},
        "finish_reason": record.finish_reason if record.finish_reason in FINISHED else None,
        "usage": {"prompt_tokens": sample.start, "completion_tokens": sample.sampled},
    }


# Messages --------------------------------------------------------------------------------------------------------


def _message(sent: Mapping[str, Any]) -> dict[str, Any]:
    role, content = SPEAKERS[sent["role"]], sent.get("content")
    if role == "assistant":
        out: dict[str, Any] = {"role": role, "content": None if content is None else _text(content)}
        thought = sent.get("reasoning_content") or sent.get("reasoning")
        if thought:
            out["reasoning_content"] = _clean(thought)
        if sent.get("tool_calls"):
            out["tool_calls"] = [_tool_call(call) for call in sent["tool_calls"]]
        return out
    out = {"role": role, "content": [_part(part) for part in content] if isinstance(content, list) else _clean(content or "")}
    if role == "tool":
        out["tool_call_id"] = _clean(sent.get("tool_call_id") or "")
        if sent.get("name"):
            out["name"] = _clean(sent["name"])
    return out


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"] if isinstance(call.get("function"), Mapping) else call
    arguments = function.get("arguments", "")
    arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": _clean(str(call.get("id") or "")), "name": _clean(str(function.get("name", ""))), "arguments": _clean(arguments)}


def _tool(schema: Mapping[str, Any]) -> dict[str, Any]:
    inner = schema["function"] if isinstance(schema.get("function"), Mapping) else schema
    out = {"name": _clean(str(inner.get("name", "")))}
    if isinstance(inner.get("description"), str):
        out["description"] = _clean(inner["description"])
    if isinstance(inner.get("parameters"), Mapping):
        out["parameters"] = json.loads(_clean(json.dumps(inner["parameters"], ensure_ascii=False)))
    return out


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    image = part.get("image_url")
    if part["type"] == "image_url" and isinstance(image, Mapping) and isinstance(image.get("url"), str):
        return {"type": "image_url", "image_url": {"url": _clean(image["url"])}}
    return {"type": "text", "text": _text([part])}


def _text(content: Any) -> str:
    if isinstance(content, list):
        texts = (part["text"] if isinstance(part.get("text"), str) else json.dumps(part, sort_keys=True) for part in content)
        return _clean("".join(texts))
    return _clean(content)


def _clean(text: str) -> str:
    """Return a text without halves of surrogate pairs: UTF-8 would need three bytes for each, and none of them can be read."""
    return _HALF.sub("\ufffd\ufffd\ufffd", text)


# Links -----------------------------------------------------------------------------------------------------------


def _links(graph: MessageGraph) -> list[tuple[str, str, str]]:
    """Return kind, source and target of every connection between responses that does not just follow the order of messages."""
    sampled: dict[str, list[str]] = {}
    for chat in _chats(graph):
        for response in chat.responses():
            if response.is_own:
                sampled.setdefault(_context_id(chat.seed, [*response.prefix, response.message]), []).append(response.id)
    edges = list(graph.edges())
    above = {edge.target: edge.source for edge in edges if edge.kind == "sequential"}
    nearest: dict[str, list[str]] = {}
    for context in sampled:
        nearest.setdefault(context, []).append(context)
        for place in list(_upwards(context, above))[1:]:
            if place in sampled:
                break
            nearest.setdefault(place, []).append(context)
    found: dict[tuple[str, str, str], None] = {}
    for edge in (edge for edge in edges if edge.kind != "sequential"):
        source = next((place for place in _upwards(edge.source, above) if place in sampled), None)
        if source is not None:
            targets = nearest.get(edge.target, []) if edge.kind in SUBAGENT_EDGES else _first_new(edge, sampled, above)
            found |= {(edge.kind, sampled[source][0], response): None for target in targets for response in sampled[target]}
    return list(found)


def _first_new(edge: Edge, sampled: Mapping[str, Any], above: Mapping[str, str]) -> list[str]:
    """Return the first sampled context on the way to an edge's target that is not on the way to its source."""
    known = set(_upwards(edge.source, above))
    found: list[str] = []
    for place in _upwards(edge.target, above):
        if place in known:
            break
        found = [place] if place in sampled else found
    return found


def _upwards(context: str, above: Mapping[str, str]) -> Iterator[str]:
    place: str | None = context
    while place is not None:
        yield place
        place = above.get(place)


def _chats(graph: MessageGraph) -> list[MessageGraph]:
    chats, seen = [graph], set[int]()
    for chat in chats:  # the loop appends to `chats`
        for node in (node for version in chat.versions for node in version):
            if node.chat is not None and id(node.chat.history) not in seen:
                seen.add(id(node.chat.history))
                chats.append(node.chat.graph)
    return chats


def _context_id(seed: str, nodes: Sequence[Any]) -> str:
    """Return the id of a context, as the graph defines it."""
    last = hashlib.sha256(b"hermes.root\0" + seed.encode("utf-8", "surrogatepass")).digest()
    for node in nodes:
        last = hashlib.sha256(b"hermes.node\0" + last + node.digest).digest()
    return last.hex()
