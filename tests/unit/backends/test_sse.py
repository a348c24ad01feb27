"""Streams cut into events, wherever the network cut them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.backends.vendor_answers import JsonLines, MalformedAnswer, ServerSentEvents, StreamEvent

STREAM = (
    b"\xef\xbb\xbf: hello\n\nevent: ping\ndata: {}\n\n"
    b"id: 7\r\nretry: 10\r\nevent: message\r\ndata: one\r\ndata:two\r\n\r\n"
    b'data: {"text": "\xe4\xb8\x96\xe7\x95\x8c"}\n\n'
    b"event: empty\n\nnonsense\n\ndata\n\n: OPENROUTER PROCESSING\n\ndata: [DONE]\n\n"
)
EVENTS = [
    StreamEvent("ping", "{}"),
    StreamEvent("message", "one\ntwo"),
    StreamEvent("", '{"text": "世界"}'),
    StreamEvent("", ""),
    StreamEvent("", "[DONE]"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_are_the_same_wherever_the_stream_was_cut(cuts: list[int]) -> None:
    framing = ServerSentEvents()
    ends = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in pairwise(ends)]
    assert [event for piece in pieces for event in framing.feed(piece)] == EVENTS


def test_an_event_that_has_not_ended_is_none() -> None:
    assert list(ServerSentEvents().feed(b"data: half")) == []
    assert list(ServerSentEvents().feed(b"data: half\n")) == []


@given(st.integers(0, 30))
def test_lines_are_the_same_wherever_the_stream_was_cut(at: int) -> None:
    stream = '{"a":"é"}\n\n{"b":2}\r\n{"half"'.encode()
    framing = JsonLines()
    assert [*framing.feed(stream[:at]), *framing.feed(stream[at:])] == [StreamEvent("", '{"a":"é"}'), StreamEvent("", '{"b":2}')]


def test_a_line_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.backends.vendor_answers.MAX_LINE_BYTES", 1_000)
    framing = JsonLines()
    assert list(framing.feed(b"x" * 1_000)) == []
    with pytest.raises(MalformedAnswer):
        list(framing.feed(b"x"))
