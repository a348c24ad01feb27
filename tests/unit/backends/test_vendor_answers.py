"""Streams are cut into events wherever their pieces end; counts and tokens are taken as the vendor gave them, or not at all."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.backends.vendor_answers import (
    JsonLines,
    MalformedAnswer,
    ReturnedTokens,
    ServerSentEvents,
    StreamEvent,
    TokenCounts,
    billed_usage,
    consistent_tokens,
)
from hermes.gateway.prices import TOKENS_PER_IMAGE, prompt_tokens
from hermes.ports.backends import ModelRequest, Usage

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


# --- usage and tokens

ASK = ModelRequest(messages=[{"role": "user", "content": "x" * 300}], max_tokens=50)
ANSWER = {"role": "assistant", "content": "y" * 30, "reasoning": "z" * 30}


def test_the_vendors_counts_are_taken_as_they_are() -> None:
    counts = TokenCounts(tokens_in=9, tokens_out=3, cache_read=4, cache_write=1, cache_write_1h=2)
    assert billed_usage(counts, ASK, ANSWER) == Usage(tokens_in=9, tokens_out=3, cache_read=4, cache_write=1, cache_write_1h=2)


def test_what_is_missing_is_estimated_and_marked() -> None:
    assert billed_usage(TokenCounts(tokens_in=9), ASK, ANSWER) == Usage(tokens_in=9, tokens_out=20, is_estimated=True)
    assert billed_usage(TokenCounts(tokens_out=3), ASK, ANSWER) == Usage(tokens_in=108, tokens_out=3, is_estimated=True)


def test_an_answer_is_never_longer_than_it_was_allowed_to_be() -> None:
    assert billed_usage(TokenCounts(), ASK, {"content": "y" * 3000}).tokens_out == 50


def test_images_count_by_number_and_tools_by_length() -> None:
    data = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    ask = ModelRequest(messages=[{"role": "user", "content": [data, {"type": "text", "text": "xyz"}]}], max_tokens=1)
    assert prompt_tokens(ask) == TOKENS_PER_IMAGE + 1 + 8
    assert prompt_tokens(ModelRequest(messages=[], tools=[{"name": "x" * 300}], max_tokens=1)) > 100


def test_tokens_are_kept_when_every_length_agrees() -> None:
    tokens = ReturnedTokens(prompt=[1, 2, 3], completion=[4, 5], logprobs=[-0.1, -0.2])
    assert consistent_tokens(tokens, TokenCounts(tokens_in=3, tokens_out=2)) == (tokens, {})
    assert consistent_tokens(tokens, TokenCounts()) == (tokens, {})


def test_tokens_are_dropped_when_a_length_does_not_agree() -> None:
    whole = ReturnedTokens(prompt=[1, 2, 3], completion=[4, 5], logprobs=[-0.1, -0.2])
    for tokens, counts in [
        (whole, TokenCounts(tokens_in=3, tokens_out=3)),
        (whole, TokenCounts(tokens_in=4, tokens_out=2)),
        (ReturnedTokens(prompt=[1], completion=[4, 5], logprobs=[-0.1]), TokenCounts()),
        (ReturnedTokens(prompt=[1], completion=None, logprobs=[-0.1]), TokenCounts()),
        (ReturnedTokens(prompt=[-1], completion=[4], logprobs=[-0.1]), TokenCounts()),
        (ReturnedTokens(prompt=[1], completion=[True], logprobs=[-0.1]), TokenCounts()),
        (ReturnedTokens(prompt=[1], completion=[4], logprobs=[float("nan")]), TokenCounts()),
    ]:
        kept, note = consistent_tokens(tokens, counts)
        assert kept == ReturnedTokens()
        assert note["token_mismatch"]["tokens_out"] == counts.tokens_out


def test_logprobs_alone_are_kept() -> None:
    assert consistent_tokens(ReturnedTokens(logprobs=[-0.1]), TokenCounts(tokens_out=7)) == (ReturnedTokens(logprobs=[-0.1]), {})
