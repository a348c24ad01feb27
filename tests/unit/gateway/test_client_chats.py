"""Which conversation a request belongs to, and what a client did to it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway.chat_changes import ChatChange, ChatChangeKind, change_between
from hermes.gateway.chat_fingerprints import ChatFingerprinter
from hermes.gateway.chat_request import clean_message, message_key
from hermes.ports.sessions import ChatTraces


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    ("ours", "echoed"),
    [
        (said("hi"), {**said("hi"), "refusal": None, "audio": None, "function_call": None, "tool_calls": None, "annotations": []}),
        (said("hi"), {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "assistant", "tool_calls": [{**CALL, "index": 0}]}),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "assistant", "content": "", "tool_calls": [CALL]}),
        ({**said("hi"), "reasoning": "hm", "metadata": {"x": 1}}, {**said("hi"), "tool_calls": []}),
    ],
)
def test_a_client_may_add_and_leave_out_what_says_nothing(ours: dict[str, Any], echoed: dict[str, Any]) -> None:
    assert message_key(ours) == message_key(echoed)


@pytest.mark.parametrize(
    "other",
    [
        user("hi"),
        said("hi "),
        {"role": "assistant", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]},
        {"role": "assistant", "content": [{"type": "input_text", "text": "hi"}]},
        said(""),
        {**said("hi"), "tool_calls": [CALL]},
        {**said("hi"), "name": "bob"},
        {"role": "assistant", "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "x"}}]},
    ],
)
def test_what_says_something_else_is_something_else(other: dict[str, Any]) -> None:
    assert message_key(said("hi")) != message_key(other)


def test_arguments_keep_their_bytes() -> None:
    spaced = {**CALL, "function": {"name": "f", "arguments": '{"a":1}'}}
    assert message_key({"role": "assistant", "tool_calls": [CALL]}) != message_key({"role": "assistant", "tool_calls": [spaced]})


def test_a_list_is_marked_behind_every_answer_that_says_anything() -> None:
    messages = [user("one"), said("1"), user("two"), {"role": "assistant", "tool_calls": [CALL]}, said(""), user("three")]
    first, second = ChatFingerprinter(messages).fingerprints
    assert (first.length, second.length) == (2, 4)
    assert ChatFingerprinter(messages[:3]).fingerprints == [first]
    assert first.echo != second.echo
    assert ChatFingerprinter([user("ONE"), *messages[1:]]).fingerprints[0].echo != first.echo, "a short answer belongs to its question"
    assert ChatFingerprinter([user("ONE"), *messages[1:]]).fingerprints[1].echo == second.echo, "a tool call speaks for itself"
    assert ChatFingerprinter([user("ONE"), *messages[1:]]).fingerprints[0].shown != first.shown, "what it was said to is not"


def test_reasoning_is_in_one_of_the_two_digests() -> None:
    plain, thought = [user("one"), said("1")], [user("one"), {**said("1"), "reasoning": "hm"}]
    [bare], [full] = ChatFingerprinter(plain).fingerprints, ChatFingerprinter(thought).fingerprints
    assert bare.shown == bare.whole == full.shown != full.whole


def test_the_mark_of_the_next_answer_is_that_of_the_longer_list() -> None:
    marker = ChatFingerprinter([user("one")])
    longer = marker.fingerprint_after(said("1"))
    assert longer is not None
    assert replace(longer, traces=ChatTraces()) == ChatFingerprinter([user("one"), said("1")]).fingerprints[0]
    assert (len(longer.traces.contexts), longer.traces.spans) == (1, ()), "a short answer leaves no span"
    assert marker.fingerprint_after(said("")) is None
    assert marker.fingerprints == [], "the list has stayed as it is"


def test_two_lists_with_other_borders_between_their_messages_are_two_lists() -> None:
    one = ChatFingerprinter([user("a"), user("b"), said("x")]).fingerprints
    other = ChatFingerprinter([user('a"},{"b'), said("x")]).fingerprints
    assert one[0].shown != other[0].shown


def test_a_message_is_sent_on_without_what_says_nothing() -> None:
    given = {**said("hi"), "refusal": None, "reasoning_content": "hm", "tool_calls": None, "annotations": [], "metadata": {"x": 1}}
    assert clean_message(given) == {"role": "assistant", "content": "hi", "reasoning": "hm"}
    assert clean_message({**user("hi"), "reasoning": "hm"}) == user("hi"), "only a model thinks"


CHAT = [{"role": "system", "content": "S"}, user("one"), said("1"), user("two"), said("2")]


@pytest.mark.parametrize(
    ("wanted", "change"),
    [
        (CHAT, ChatChange(ChatChangeKind.NOTHING, 5, 5)),
        ([*CHAT, user("three")], ChatChange(ChatChangeKind.EXTENDED, 5, 5, (), (user("three"),))),
        ([CHAT[0], user("ONE"), *CHAT[2:], user("three")], ChatChange(ChatChangeKind.EDIT, 1, 2, (user("ONE"),), (user("three"),))),
        ([CHAT[0], user("ONE"), *CHAT[2:]], ChatChange(ChatChangeKind.EDIT, 1, 2, (user("ONE"),))),
        ([CHAT[0], user("(summary)"), *CHAT[3:]], ChatChange(ChatChangeKind.COMPACTION, 1, 3, (user("(summary)"),))),
        (
            [CHAT[0], user("(summary)"), CHAT[4], user("three")],
            ChatChange(ChatChangeKind.COMPACTION, 1, 4, (user("(summary)"),), (user("three"),)),
        ),
        ([CHAT[0], user("(summary)"), CHAT[2], user("x")], ChatChange(ChatChangeKind.EDIT, 1, 5, (user("(summary)"), CHAT[2], user("x")))),
        ([CHAT[0], CHAT[2], user("x")], ChatChange(ChatChangeKind.COMPACTION, 1, 5, (CHAT[2], user("x")))),
        ([CHAT[0], *CHAT[3:]], ChatChange(ChatChangeKind.COMPACTION, 1, 3)),
        (CHAT[:3], ChatChange(ChatChangeKind.EDIT, 3, 5)),
        ([*CHAT[:3], user("other")], ChatChange(ChatChangeKind.EDIT, 3, 5, (user("other"),))),
        ([], ChatChange(ChatChangeKind.EDIT, 0, 5)),
    ],
)
def test_what_a_client_did_is_one_splice_and_what_is_new(wanted: list[dict[str, Any]], change: ChatChange) -> None:
    assert change_between(CHAT, wanted) == change


MESSAGES = st.lists(st.sampled_from([user("a"), user("b"), said("a"), said("b")]), max_size=8)


@given(MESSAGES, MESSAGES)
def test_the_splice_gives_what_the_client_sent(current: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    change = change_between(current, wanted)
    assert [*current[: change.start], *change.messages, *current[change.stop :], *change.tail] == wanted
    assert (change.kind is ChatChangeKind.NOTHING) == (current == wanted)
    assert (change.kind is ChatChangeKind.EXTENDED) == (current != wanted and wanted[: len(current)] == current)
