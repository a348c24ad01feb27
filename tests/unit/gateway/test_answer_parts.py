"""The parts of an answer, whole and as a stream: each part ends before the next one begins."""

import pytest

from hermes.gateway.answer_parts import (
    CallPart,
    PartEnded,
    PartGrown,
    PartStarted,
    PartStream,
    RefusalPart,
    TextPart,
    ThinkingPart,
    answer_parts,
)
from hermes.gateway.thinking_seal import SealedThinking, ThinkingSeal
from hermes.ports.backends import Delta, ReasoningDelta, TextDelta, ToolCallDelta

SIGNED = {"type": "thinking", "thinking": "Where?", "signature": "s1"}
HIDDEN = {"type": "redacted_thinking", "data": "d1"}


def call(name: str, arguments: str) -> dict[str, object]:
    return {"id": name, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_thinking_stands_where_it_was() -> None:
    message = {
        "content": "Looking. Still.",
        "reasoning": "Where?",
        "tool_calls": [call("a", '{"x":1}')],
        "thinking_blocks": {"model": "m", "blocks": [SIGNED, HIDDEN], "places": [[0, 0], [8, 0]]},
    }
    assert answer_parts(message) == [
        ThinkingPart("Where?", SIGNED),
        TextPart("Looking."),
        ThinkingPart("", HIDDEN),
        TextPart(" Still."),
        CallPart("a", "a", '{"x":1}'),
    ]
    assert answer_parts({"content": None, "reasoning": "hm", "refusal": "No."}) == [ThinkingPart("hm"), RefusalPart("No.")]


@pytest.mark.parametrize(
    ("deltas", "message", "events"),
    [
        (
            [ReasoningDelta("hm"), TextDelta("a"), TextDelta("b")],
            {"content": "ab", "reasoning": "hm"},
            [
                *(PartStarted(0, ThinkingPart("")), PartGrown(0, "hm"), PartEnded(0, ThinkingPart("hm"))),
                *(PartStarted(1, TextPart("")), PartGrown(1, "a"), PartGrown(1, "b"), PartEnded(1, TextPart("ab"))),
            ],
        ),
        (  # two calls that the server streams at the same time, the second one without arguments, and text that comes late
            [ToolCallDelta(0, "a", "a", "{"), ToolCallDelta(1, "b", "b", ""), TextDelta("late"), ToolCallDelta(0, None, None, "}")],
            {"content": "late", "tool_calls": [call("a", "{}"), call("b", "{}")]},
            [
                *(PartStarted(0, CallPart("a", "a", "")), PartGrown(0, "{"), PartGrown(0, "}"), PartEnded(0, CallPart("a", "a", "{}"))),
                *(PartStarted(1, TextPart("")), PartGrown(1, "late"), PartEnded(1, TextPart("late"))),
                *(PartStarted(2, CallPart("b", "b", "")), PartGrown(2, "{}"), PartEnded(2, CallPart("b", "b", "{}"))),
            ],
        ),
        (
            [ReasoningDelta("Where?"), ReasoningDelta("", SIGNED), ReasoningDelta("", HIDDEN), ReasoningDelta("\n\nThere.")],
            {"content": "", "refusal": "No."},
            [
                *(PartStarted(0, ThinkingPart("")), PartGrown(0, "Where?"), PartEnded(0, ThinkingPart("Where?", SIGNED))),
                *(PartStarted(1, ThinkingPart("", HIDDEN)), PartEnded(1, ThinkingPart("", HIDDEN))),
                *(PartStarted(2, ThinkingPart("")), PartGrown(2, "There."), PartEnded(2, ThinkingPart("There."))),
                *(PartStarted(3, RefusalPart("")), PartGrown(3, "No."), PartEnded(3, RefusalPart("No."))),
            ],
        ),
        ([], {"content": "whole"}, [PartStarted(0, TextPart("")), PartGrown(0, "whole"), PartEnded(0, TextPart("whole"))]),
    ],
)
def test_a_stream_is_the_same_row(deltas: list[Delta], message: dict[str, object], events: list[object]) -> None:
    stream = PartStream()
    assert [*(event for delta in deltas for event in stream.feed(delta)), *stream.finish(message)] == events


def test_only_the_same_key_brings_thinking_back() -> None:
    seal = ThinkingSeal("hk_one")
    sealed = seal.seal("m", SIGNED)
    assert seal.open(sealed) == SealedThinking("m", SIGNED)
    assert seal.open(seal.seal("m", None)) == SealedThinking("m", None)
    changed = sealed[:12] + ("A" if sealed[12] != "A" else "B") + sealed[13:]
    for other in (changed, sealed[:-1], "hermes1.", "hermes1.%%.", "of another server", None, 3):
        assert seal.open(other) is None, other
    assert ThinkingSeal("hk_two").open(sealed) is None
