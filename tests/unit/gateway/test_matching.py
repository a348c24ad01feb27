"""Which conversation a request belongs to, and what a client did to it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway.matching import Change, ChangeKind, Known, change_between, home_of, key_of


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
        (said("hi"), {"role": "assistant", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "assistant", "tool_calls": [{**CALL, "index": 0}]}),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "assistant", "content": "", "tool_calls": [CALL]}),
        ({**said("hi"), "reasoning": "hm", "metadata": {"x": 1}}, {**said("hi"), "tool_calls": []}),
    ],
)
def test_a_client_may_add_and_leave_out_what_says_nothing(ours: dict[str, Any], echoed: dict[str, Any]) -> None:
    assert key_of(ours) == key_of(echoed)


@pytest.mark.parametrize(
    "other",
    [
        user("hi"),
        said("hi "),
        said(""),
        {**said("hi"), "tool_calls": [CALL]},
        {**said("hi"), "name": "bob"},
        {"role": "assistant", "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "x"}}]},
    ],
)
def test_what_says_something_else_is_something_else(other: dict[str, Any]) -> None:
    assert key_of(said("hi")) != key_of(other)


def test_arguments_keep_their_bytes() -> None:
    spaced = {**CALL, "function": {"name": "f", "arguments": '{"a":1}'}}
    assert key_of({"role": "assistant", "tool_calls": [CALL]}) != key_of({"role": "assistant", "tool_calls": [spaced]})


def known(*sampled: tuple[str, str]) -> dict[bytes, list[Known]]:
    index: dict[bytes, list[Known]] = {}
    for order, (session, text) in enumerate(sampled):
        index.setdefault(key_of(said(text)), []).append(Known(session, order))
    return index


def test_without_a_response_of_ours_it_is_a_new_chat() -> None:
    index = known(("a", "A1"))
    assert home_of([], index) is None
    assert home_of([user("A1"), {"role": "system", "content": "A1"}], index) is None, (
        "a role only says it claims so; this one does not even"
    )
    assert home_of([user("hi"), said("somebody else's")], index) is None


def test_the_newest_response_decides() -> None:
    index = known(("a", "A1"), ("b", "B1"), ("a", "A2"))
    assert home_of([user("x"), said("A1"), user("y"), said("A2")], index) == "a"
    assert home_of([user("x"), said("B1"), user("y"), said("A1")], index) == "b"
    assert home_of([user("x"), said("A2"), said("B1")], index) == "a"


def test_equal_answers_in_two_chats_belong_to_the_newer_one_until_something_else_tells() -> None:
    index = known(("a", "A1"), ("a", "ok"), ("b", "ok"), ("a", "A3"))
    assert home_of([user("x"), said("ok")], index) == "b"
    assert home_of([user("x"), said("A1"), said("ok"), said("A3")], index) == "a"


CHAT = [{"role": "system", "content": "S"}, user("one"), said("1"), user("two"), said("2")]


@pytest.mark.parametrize(
    ("wanted", "change"),
    [
        (CHAT, Change(ChangeKind.NOTHING, 5, 5, ())),
        ([*CHAT, user("three")], Change(ChangeKind.EXTENDED, 5, 5, (user("three"),))),
        ([CHAT[0], user("ONE"), *CHAT[2:], user("three")], Change(ChangeKind.EDIT, 1, 5, (user("ONE"), *CHAT[2:], user("three")))),
        ([CHAT[0], user("ONE"), *CHAT[2:]], Change(ChangeKind.EDIT, 1, 2, (user("ONE"),))),
        ([CHAT[0], user("(summary)"), *CHAT[3:]], Change(ChangeKind.COMPACTION, 1, 3, (user("(summary)"),))),
        ([CHAT[0], *CHAT[3:]], Change(ChangeKind.EDIT, 1, 3, ())),
        (CHAT[:3], Change(ChangeKind.EDIT, 3, 5, ())),
        ([], Change(ChangeKind.EDIT, 0, 5, ())),
    ],
)
def test_what_a_client_did_is_one_splice(wanted: list[dict[str, Any]], change: Change) -> None:
    assert change_between(CHAT, wanted) == change


MESSAGES = st.lists(st.sampled_from([user("a"), user("b"), said("a"), said("b")]), max_size=8)


@given(MESSAGES, MESSAGES)
def test_the_splice_gives_what_the_client_sent(current: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    change = change_between(current, wanted)
    assert [*current[: change.start], *change.messages, *current[change.stop :]] == wanted
    assert (change.kind is ChangeKind.NOTHING) == (current == wanted)
    assert (change.kind is ChangeKind.EXTENDED) == (current != wanted and wanted[: len(current)] == current)
