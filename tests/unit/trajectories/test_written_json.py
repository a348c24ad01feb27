"""JSON that is written piece by piece, for speed, is what the encoder of whole objects writes."""

import json
from hashlib import sha256
from io import BytesIO
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hermes import CallRecord, MessageGraph
from hermes.graph.call import _NAMES, _PARTS
from hermes.graph.message import canonical, canonical_message
from hermes.trajectories.calls import SamplePolicies, read_calls
from hermes.trajectories.formats.sharegpt import line_of
from hermes.trajectories.ledger import Ledger, Placement, dump
from hermes.trajectories.sharegpt_turns import to_turns
from hermes.trajectories.source import ExportSession
from hermes.trajectories.text_rows import text_digest, text_rows
from tests.unit.trajectories.programs import PROGRAMS, Step, program_graphs

TEXTS = st.text(st.characters(exclude_categories=()), max_size=12)
NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS)
CALLS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("model", "policy_version", "finish_reason", "template_id", "tokenizer", "request_digest"), NAMES),
        "raw_text": TEXTS,
        **dict.fromkeys(("sampling", "usage", "extra"), st.dictionaries(NAMES, VALUES, max_size=3)),
        **dict.fromkeys(("prompt_token_ids", "token_ids"), st.lists(st.integers(0, 2**31 - 1), max_size=9)),
        "logprobs": st.lists(st.floats(max_value=0, width=32, allow_nan=False), max_size=9),
        "prompt_derived": st.booleans(),
        "logprob_mode": st.sampled_from(("raw", "processed")),
        "policy_spans": st.just([("1", 0, 2), ("é", 2, 3)]),
        "tools": st.just([{"b": 1, "a": "ü"}]),
    },
)


def sorted_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


@given(st.dictionaries(st.sampled_from(("role", "content", "name", "metadata", "x")), TEXTS, min_size=1))
def test_the_canonical_form_of_a_message_is_its_sorted_json(message: dict[str, str]) -> None:
    assert canonical_message(message) == sorted_json({key: value for key, value in message.items() if key != "metadata"})


@given(CALLS)
def test_a_call_has_the_digest_of_its_sorted_json_and_is_read_as_it_was_made(fields: dict[str, Any]) -> None:
    call = CallRecord(**fields)
    whole = call.to_dict()
    parts = [
        sha256(sorted_json({name: whole[name] for name in _PARTS[part] if name in whole})).digest() for part in ("prompt", "completion")
    ]
    rest = sorted_json({name: whole[name] for name in _NAMES if name in whole})
    assert call.digest == sha256(b"hermes.call\0" + b"".join(parts) + rest).digest()
    again = CallRecord.from_dict(json.loads(json.dumps(whole)))
    assert (again.to_dict(), again.digest) == (whole, call.digest)


@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS, st.booleans())
def test_a_line_of_sharegpt_is_what_the_encoder_writes_and_its_turns_have_the_digests_of_their_sorted_json(
    contents: list[str], name: str, has_tools: bool
) -> None:
    chat = MessageGraph(seed="s")
    for number, content in enumerate(contents):
        chat.append({"role": "user", "content": content, "name": name})
        turn = chat.prepare(tools=[{"name": name}] if has_tools else None, ephemeral=name)
        chat.commit(turn, {"role": "assistant", "content": content, "reasoning": name}, CallRecord(sample_id=str(number)))
    calls = read_calls(ExportSession(name, chat), SamplePolicies())
    for place, row in enumerate(text_rows(calls)):
        written = line_of(place, row, to_turns(row.messages), name)
        line = json.loads(written.text)
        assert written.text == json.dumps(line).encode()
        assert list(line) == ["conversations", "tools", "source", "id", "on_policy", "hermes"]
        assert written.digests == [text_digest(turn) for turn in line["conversations"]]
        assert written.differs is not line["on_policy"]


@given(PROGRAMS, TEXTS)
def test_the_lines_of_a_ledger_are_sorted_json(program: list[Step], name: str) -> None:
    session = ExportSession(name.encode("utf-8", "backslashreplace").decode(), MessageGraph())
    body = BytesIO()
    ledger = Ledger(body)
    for graph in program_graphs(program):
        calls = read_calls(ExportSession(session.name, graph), SamplePolicies())
        ledger.enter_session(graph.root, calls, [Placement(call, {"row": 0, "turn": 1}) for call in calls[::2]], "not here")
    lines = body.getvalue().splitlines(keepends=True)
    assert lines == [dump(json.loads(line)) for line in lines]
    leaves = [{key: value for key, value in json.loads(line).items() if key not in ("trained", "excluded")} for line in lines]
    assert sorted(ledger.leaves) == sorted((leaf["sample"], sha256(b"\0" + canonical(leaf) + b"\n").digest()) for leaf in leaves)
