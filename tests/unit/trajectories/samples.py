"""A small session with one of everything that formats must get right, and a check that a written export says so.

Samples by name (tokens are prompt > completion, P is the prompt of `ask`):

    ask      P > 20 21 22 23          a tool call
    answer   P 20-23 30 31 32 > 24 25 26
    fork     P 20-23 40 41 > 27 28    after an edit of the tool's result
    twin-1, twin-2   P 50 > 60 61     agree in everything
    odd-1, odd-2     P 51 > 62        differ in the logprob
    whole    P 52 > 63 64 65          and its continuation:
    rest     P 52 63 > 64 65
    tail     P 53 > 70* 71* 72, and two that were not returned
    text     no token ids
    inner    90 91 > 92               a subagent, in the chat behind the tool's result; those from twin-1 to tail are in chats too
    other    P > 80 81                a rollout of its own
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hermes import CallRecord, MessageGraph
from hermes.trajectories.export import export
from hermes.trajectories.plan import ExportFormat, ExportSettings
from hermes.trajectories.source import ExportSession

P = [5, 6, 7, 8, 9, 10]
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {}}}}]

TRAINED: dict[str, tuple[list[int], list[int], list[float]]] = {
    "ask": (P, [20, 21, 22, 23], [-0.125, -0.5, -1.0625, -0.03125]),
    "answer": ([*P, 20, 21, 22, 23, 30, 31, 32], [24, 25, 26], [-0.25, -2.0, -0.0078125]),
    "fork": ([*P, 20, 21, 22, 23, 40, 41], [27, 28], [-0.75, -1.5]),
    "twin-1": ([*P, 50], [60, 61], [-0.5, -0.25]),
    "twin-2": ([*P, 50], [60, 61], [-0.5, -0.25]),
    "odd-1": ([*P, 51], [62], [-0.5]),
    "odd-2": ([*P, 51], [62], [-0.625]),
    "whole": ([*P, 52], [63, 64, 65], [-1.0, -0.5, -0.25]),
    "rest": ([*P, 52, 63], [64, 65], [-0.5, -0.25]),
    "tail": ([*P, 53], [70, 71], [-0.5, -0.25]),
    "inner": ([90, 91], [92], [-0.1]),
    "other": (P, [80, 81], [-3.0, -4.0]),
    "plain": ([1, 2], [3, 4], [-0.1, -0.2]),
}
"""Prompt, trained part of the completion and its logprobs, by sample. -0.1 and -0.2 are no float32: they test exactness."""

TRAINED_TOKENS = sum(len(completion) for _, completion, _ in TRAINED.values())


def sessions() -> list[ExportSession]:
    """The session above, whose rollout is rewarded, and a plain one of one call that is not."""
    plain = MessageGraph([user("plain")], seed="plain")
    plain.append(answer("plain"), call=record("plain"))
    return [ExportSession("s", everything()), ExportSession("t", plain)]


def everything() -> MessageGraph:
    inner = MessageGraph([user("add, please")], seed="inner")
    inner.append(answer("5"), call=record("inner"))

    chat = MessageGraph([{"role": "system", "content": "You add."}, user("2+3?")], seed="samples")
    first = chat.prepare(tools=TOOLS)
    calling = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    ask = chat.commit(first, {"role": "assistant", "content": None, "tool_calls": [calling]}, call=record("ask", policy_version="17"))
    chat.append({"role": "tool", "tool_call_id": "c1", "content": "5", "metadata": {"chat": inner}})
    chat.commit(chat.prepare(tools=TOOLS), answer("5"), call=record("answer", policy_version="18"))
    chat.replace(slice(3, 5), [{"role": "tool", "tool_call_id": "c1", "content": "6"}])
    chat.commit(chat.prepare(tools=TOOLS), answer("6?"), call=record("fork"))

    for names, question in ((("twin-1", "twin-2"), "twins"), (("odd-1", "odd-2"), "odd"), (("whole", "rest"), "half"), (("tail",), "tail")):
        side = MessageGraph([*chat[:2], user(question)], seed=question)
        turn = side.prepare(tools=TOOLS)
        for name in names:
            fields: dict[str, Any] = {}
            if name == "tail":
                fields = {"token_ids": [70, 71, 72], "usage": {"completion_tokens": 5}}
            side.commit(turn, answer(names[0]), call=record(name, **fields))
        chat.append({"role": "user", "content": question, "metadata": {"chat": side}})
    chat.append(answer("no ids"), call=CallRecord(sample_id="text"))
    other = chat.commit(first, answer("another"), call=record("other"))
    chat.annotate(ask, rollout_reward=1.0, reward=0.25)
    chat.annotate(other, rollout="r2", reward=-1.0, advantage=-0.5)
    return chat


def two_tokenizers() -> ExportSession:
    """A session whose model, and with it the tokenizer, was changed on the way."""
    chat = MessageGraph([user("q")], seed="two")
    for name, tokenizer in (("plain", "a"), ("inner", "b")):
        chat.append(answer(name), call=record(name, tokenizer=tokenizer))
    return ExportSession("two", chat)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def record(name: str, **fields: Any) -> CallRecord:
    prompt, completion, logprobs = TRAINED[name]
    known = {"model": "m", "sample_id": name, "prompt_token_ids": prompt, "token_ids": completion, "logprobs": logprobs}
    return CallRecord(**{**known, "sampling": {"temperature": 1.0}, "finish_reason": "stop", **fields})


Unit = tuple[list[int], list[bool]]
"""What a reader sees of a format's unit: tokens, and which of them are trained."""


def written(out: Path, name: str, form: ExportFormat) -> Path:
    """Export the sessions above in one format and return the folder."""
    export(sessions(), out, ExportSettings(format=name), {name: form})
    return out


def check_conservation(folder: Path, units: Sequence[Unit]) -> None:
    """Every sample is trained once, where the ledger says, in its own context; nothing else is; the rest is excluded with its reason."""
    manifest, *lines = map(json.loads, (folder / "ledger.jsonl").read_text().splitlines())
    assert manifest["rows"] == len(units)
    spans: list[tuple[int, int]] = []
    for line in lines:
        if line["sample"] == "text":
            assert (line["trained"], line["excluded"]) == ([], [{"start": 0, "end": 0, "reason": "no token ids"}])
            continue
        prompt, completion, _ = TRAINED[line["sample"]]
        (where,) = line["trained"]
        tokens, mask = units[where["row"]]
        assert len(tokens) == len(mask)
        assert (tokens[: where["start"]], tokens[where["start"] : where["end"]]) == (prompt, completion)
        spans += [(where["row"], at) for at in range(where["start"], where["end"])]
    masked = [(row, at) for row, (_, mask) in enumerate(units) for at, trained in enumerate(mask) if trained]
    assert sorted(spans) == masked, "each masked token stands for one sample"
    assert sorted(line["sample"] for line in lines) == sorted([*TRAINED, "text"])
    assert manifest["tokens"] == {"sampled": TRAINED_TOKENS + 3, "trained": TRAINED_TOKENS, "excluded": 3}
