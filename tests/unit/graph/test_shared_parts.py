"""Documents hold every message, sample and token once: prompts as what they add, forks by reference."""

import json
import random
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes import CallError, CallRecord, CodecError, MessageGraph
from hermes.graph import prompt_deltas
from hermes.graph.prompt_deltas import PromptReader, PromptWriter
from hermes.graph.token_arrays import PromptDigests
from tests.unit.graph.sessions import TOOLS

BRANCHES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 400), st.integers(0, 30)), max_size=20)
"""For each call: the call it continues, how many of its tokens it keeps, how many it samples."""


@settings(max_examples=300, deadline=None)
@given(BRANCHES, st.integers(0, 2**32))
def test_prompts_come_back_as_they_were(branches: list[tuple[int, int, int]], seed: int) -> None:
    rng = random.Random(seed)
    sequences: list[list[int]] = [[]]
    writer, reader, digests = PromptWriter(), PromptReader(), PromptDigests()
    for number, (back, kept, sampled) in enumerate(branches):
        prompt = [*sequences[-1 - back % len(sequences)][:kept], *(rng.randrange(50) for _ in range(rng.randrange(150)))]
        completion = array("i", [rng.randrange(50) for _ in range(sampled)])
        written = writer.write(number, array("i", prompt), completion)
        read = reader.read(json.loads(json.dumps(written)), "prompt")
        reader.note(number, read, completion)
        assert list(read) == prompt
        call = CallRecord(prompt_token_ids=prompt, token_ids=completion)
        assert call.compute_digest(digests) == call.compute_digest()
        sequences.append([*prompt, *completion])


def test_a_prompt_finds_the_branch_it_continues_however_many_calls_came_in_between() -> None:
    writer, rng = PromptWriter(), random.Random(1)
    shared = [rng.randrange(10**5) for _ in range(500)]
    branches = [[*shared, *(rng.randrange(10**5) for _ in range(300))] for _ in range(40)]
    for number, prompt in enumerate(branches):
        writer.write(number, array("i", prompt), None)
    written = [writer.write(100 + number, array("i", [*prompt, 1, 2]), None) for number, prompt in enumerate(branches)]
    assert [each.get("shared", 0) + (len(each["int32"]) * 3 // 4 // 4) for each in written] == [802] * 40
    assert min(each["shared"] for each in written) == 800


def conversation(calls: int, name: str = "", tokens: list[int] | None = None) -> tuple[MessageGraph, list[int]]:
    rng = random.Random(name)
    chat, prompt = MessageGraph([{"role": "system", "content": "s" * 500}], seed="s"), list(tokens or [])
    for at in range(calls):
        prompt = prompt + [rng.randrange(10**5) for _ in range(100)]
        chat.append({"role": "user", "content": f"question {name} {at}"})
        turn = chat.prepare(tools=TOOLS)
        completion = [rng.randrange(10**5) for _ in range(50)]
        call = CallRecord(sample_id=f"{name}{at}", prompt_token_ids=prompt, token_ids=completion)
        chat.commit(turn, {"role": "assistant", "content": f"answer {name} {at}"}, call)
        prompt = prompt + completion
    return chat, prompt


def test_a_document_holds_every_token_once() -> None:
    chat, tokens = conversation(100)
    text = chat.to_json()
    document = json.loads(text)
    held = sum(len(call["prompt_token_ids"]["int32"]) + len(call["token_ids"]["int32"]) for call in calls_of(document))
    assert held <= len(tokens) * 4 * 4 / 3 + 100 * 2 * 4
    assert MessageGraph.from_json(text).to_json() == text


def calls_of(document: Any) -> list[Any]:
    return [entry["call"] for graph in document["graphs"] for entry in graph["responses"] if "call" in entry]


def test_an_attached_fork_is_a_reference() -> None:
    chat, tokens = conversation(50)
    alone = len(chat.to_json())
    fork = chat.fork()
    fork.append({"role": "user", "content": "Sum up."})
    fork.append({"role": "assistant", "content": "summary"}, call=CallRecord(sample_id="sum", prompt_token_ids=tokens, token_ids=[1]))
    chat.compact(slice(1, 40), {"role": "user", "content": "summary", "metadata": {"chat": fork}})
    text = chat.to_json()
    again = MessageGraph.from_json(text)
    assert len(text) - alone < 0.15 * alone
    assert len(calls_of(json.loads(text))) == 51
    assert (again.to_json(), again.verify()) == (text, chat.verify())
    assert [(r.id, r.call, r.context) for r in again.responses()] == [(r.id, r.call, r.context) for r in chat.responses()]
    again.redact(2)
    assert (again.verify().status, MessageGraph.from_json(again.to_json()).verify().status) == ("redacted", "redacted")


def test_equal_messages_of_one_list_stay_separate_slots() -> None:
    inner = MessageGraph([{"role": "user", "content": "same"}], seed="i")
    outer = MessageGraph([{"role": "user", "content": "same"}, {"role": "user", "content": "same"}], seed="o")
    outer.append({"role": "tool", "content": "t", "metadata": {"chat": inner}})
    again = MessageGraph.from_json(outer.to_json())
    again[0]["content"] = "other"
    assert [message["content"] for message in again] == ["other", "same", "t"]
    assert again[2]["metadata"]["chat"][0]["content"] == "same"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda g: g[0]["responses"][1]["call"]["prompt_token_ids"].update({"from": 5}), r"prompt_token_ids.from: expected the number"),
        (lambda g: g[0]["responses"][1]["call"]["prompt_token_ids"].update({"from": [0]}), r"prompt_token_ids.from: expected the number"),
        (lambda g: g[0]["responses"][1]["call"]["prompt_token_ids"].update(shared=10**6), r"prompt_token_ids.shared: expected a whole"),
        (lambda g: g[0]["responses"][1]["call"]["prompt_token_ids"].update(shared=True), r"prompt_token_ids.shared: expected a whole"),
        (lambda g: g[0]["responses"][1]["call"]["prompt_token_ids"].update(int32="A"), r"responses\[1\].call.prompt_token_ids"),
        (lambda g: g[1]["responses"][0].update(same=99), r"graphs\[1\].responses\[0\].same: expected a whole number under"),
        (lambda g: g[1]["responses"][0].update(sample_id="x"), r"graphs\[1\].responses\[0\].sample_id: unknown field"),
        (lambda g: g[1]["messages"][0].update(same=[0, 10**6]), r"graphs\[1\].messages\[0\].same: expected a whole number under"),
        (lambda g: g[1]["messages"][0].update(same=3), r"graphs\[1\].messages\[0\].same: expected \[first, count\]"),
        (lambda g: g[1]["overlays"].append({"same": 7}), r"graphs\[1\].overlays\[0\].same: expected a whole number under"),
    ],
)
def test_a_reference_to_what_is_not_there_is_refused_with_its_path(change: Any, complaint: str) -> None:
    chat, _ = conversation(3)
    chat.append({"role": "tool", "content": "t", "metadata": {"chat": chat.fork()}})
    document = json.loads(chat.to_json())
    change(document["graphs"])
    with pytest.raises(CodecError, match=complaint):
        MessageGraph.from_json(json.dumps(document))


def test_a_small_document_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_deltas, "MAX_PROMPT_BYTES", 4_000)
    writer, reader, tokens = PromptWriter(), PromptReader(), array("i", range(200))
    written = [writer.write(number, tokens, None) for number in range(7)]
    for number in range(6):
        reader.note(number, reader.read(written[number], "prompt"), None)
    with pytest.raises(CallError, match="the prompts of this document take more than"):
        reader.read(written[6], "prompt")
