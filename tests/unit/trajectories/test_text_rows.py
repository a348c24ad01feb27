"""Text rows: one for each leaf of the trie of messages, each response trained once, twins apart, differences stated."""

from typing import Any

from hermes import CallRecord, MessageGraph
from hermes.trajectories.text_rows import (
    EPHEMERAL,
    NOTES,
    REASONING_BACK,
    REASONING_GONE,
    TextRow,
    can_train_as_text,
    reasoning_of,
    replace_surrogates,
    text_rows,
)
from tests.unit.trajectories.text_sessions import NOTED, TOOLS, answer, calls_of, forked_session, sampled, soul_session, tool_session, user


def told(row: TextRow) -> list[str]:
    """The texts of a row; a star for those trained there."""
    return [f"{message['content']}{'*' if index in row.trained else ''}" for index, message in enumerate(row.messages)]


def test_rows_are_the_leaves_depth_first_and_each_response_is_trained_in_the_first_that_holds_it() -> None:
    rows = list(text_rows(calls_of(forked_session())))
    assert [told(row) for row in rows] == [["Q", "a*", "V", "b*"], ["Q", "a", "V", "b*"], ["Q", "a", "W", "c*"]]
    assert [[call.sample_id for call in row.calls] for row in rows] == [["A", "B"], ["B-twin"], ["C"]]
    assert [{index: call.sample_id for index, call in row.context.items()} for row in rows] == [{}, {1: "A"}, {1: "A"}]


def test_a_twin_in_the_middle_gets_a_row_of_its_own_that_ends_with_it() -> None:
    chat = MessageGraph([user("Q")], seed="s")
    turn = chat.prepare()
    for name in ("1", "2", "3"):
        chat.commit(turn, answer("same"), CallRecord(sample_id=name))
    chat.append(user("more"))
    sampled(chat, "4", answer("end"))
    rows = list(text_rows(calls_of(chat)))
    assert [told(row) for row in rows] == [["Q", "same*", "more", "end*"], ["Q", "same*"], ["Q", "same*"]]
    assert [call.sample_id for row in rows for call in row.calls] == ["1", "4", "2", "3"]


def test_the_base_system_prompt_is_in_the_row_and_notes_of_user_messages_are_not() -> None:
    rows = list(text_rows(calls_of(soul_session())))
    image = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}
    assert [told(row) for row in rows] == [
        ["Be kind.", "Hi", "a0*", "More?", "a1*"],
        ["Be kinder.", "Hi", "a0", "More?", "a1", str([image, {"type": "text", "text": ""}]), "a2*"],
    ]
    assert [message["role"] for message in rows[0].messages] == ["system", "user", "assistant", "user", "assistant"]
    assert [row.left_out for row in rows] == [{"ephemeral": 0, "notes": 2}, {"ephemeral": 0, "notes": 3}]
    assert [row.differences(has_reasoning=True) for row in rows] == [["no token ids", NOTES], ["no token ids", NOTES]]


def test_a_base_system_prompt_joins_the_system_message_of_the_list_and_ephemeral_text_does_not() -> None:
    chat = MessageGraph([{"role": "developer", "content": "Listed."}, user("Q")], seed="s")
    turn = chat.prepare(system="Base.", ephemeral="Psst.")
    assert turn.messages[0] == {"role": "developer", "content": "Listed.\n\nBase.\n\nPsst."}
    chat.commit(turn, answer("a"), CallRecord(sample_id="1"))
    [row] = text_rows(calls_of(chat))
    assert (told(row), row.messages[0]["role"]) == (["Listed.\n\nBase.", "Q", "a*"], "developer")
    assert row.differences(has_reasoning=True) == ["no token ids", EPHEMERAL]
    assert row.left_out == {"ephemeral": 1, "notes": 0}


def test_a_note_that_the_content_does_not_begin_with_any_more_takes_nothing_from_the_users_words() -> None:
    contents: list[Any] = [f"{NOTED}\n\nHi", f"{NOTED} Hi", "Hi", [], None, [{"type": "image_url", "image_url": {"url": "x"}}]]
    chat = MessageGraph([{"role": "user", "content": content, "metadata": {"note": NOTED}} for content in contents], seed="s")
    chat.append({"role": "system", "content": f"{NOTED}\n\nHi", "metadata": {"note": NOTED}})
    sampled(chat, "1", answer("a"))
    [row] = text_rows(calls_of(chat))
    assert [message["content"] for message in row.messages] == ["Hi", *contents[1:], f"{NOTED}\n\nHi", "a"]
    assert row.left_out == {"ephemeral": 0, "notes": 1}


def test_authored_assistant_messages_are_context_only() -> None:
    chat = MessageGraph([user("Q"), answer("authored"), user("R")], seed="s")
    sampled(chat, "1", answer("said"))
    [row] = text_rows(calls_of(chat))
    assert told(row) == ["Q", "authored", "R", "said*"]
    assert row.context == {}


def test_rollouts_and_tools_do_not_share_rows() -> None:
    chat = MessageGraph([user("Q")], seed="s")
    chat.commit(chat.prepare(tools=TOOLS), answer("with"), CallRecord(sample_id="1"))
    chat.append(user("R"))
    sampled(chat, "2", answer("without"))
    chat.append(user("S"))
    sampled(chat, "3", answer("other rollout"))
    chat.annotate(list(chat.responses())[2], rollout="r")
    rows = list(text_rows(calls_of(chat)))
    assert [(row.rollout, bool(row.tools), told(row)[-1], list(row.trained)) for row in rows] == [
        ("s", True, "with*", [1]),
        ("s", False, "without*", [3]),
        ("r", False, "other rollout*", [5]),
    ]


def test_text_needs_no_token_ids_but_consent_and_policies_hold() -> None:
    chat = MessageGraph([user("Q")], seed="s")
    names = ("none", "unscored", "derived", "refused", "private", "excluded")
    turn = chat.prepare()
    for name in names:
        tokens = {} if name == "none" else {"prompt_token_ids": [1], "token_ids": [2]}
        chat.commit(turn, answer(name), CallRecord(sample_id=name, prompt_derived=name == "derived", policy_version=name, **tokens))
    by_name = {response.sample_id: response for response in chat.responses()}
    chat.annotate(by_name["private"], consent=False)
    chat.annotate(by_name["excluded"], exclude="bad taste")
    wanted = frozenset(names) - {"refused"}
    calls = calls_of(chat, policy_versions=wanted)
    assert {call.sample_id: can_train_as_text(call) for call in calls} == {
        "none": True,
        "unscored": True,
        "derived": True,
        "refused": False,
        "private": False,
        "excluded": False,
    }


def test_what_was_redacted_stays_out() -> None:
    chat = MessageGraph([user("secret")], seed="s")
    sampled(chat, "1", answer("said"))
    chat.redact(0)
    assert list(text_rows(calls_of(chat))) == []


def test_a_row_says_how_it_differs_from_what_was_sent() -> None:
    chat = MessageGraph([user("Q")], seed="s")
    sampled(chat, "1", answer("a", reasoning="hm"))
    chat.append(user("R"))
    sampled(chat, "2", answer("b"))
    [row] = text_rows(calls_of(chat))
    assert row.differences(has_reasoning=True) == ["no token ids", REASONING_BACK]
    assert row.differences(has_reasoning=False) == ["no token ids", REASONING_GONE]
    [tools] = text_rows(calls_of(tool_session()))
    assert tools.differences(has_reasoning=True) == [EPHEMERAL, "no token ids"]  # its second answer has none


def test_reasoning_that_was_sent_is_no_difference() -> None:
    chat = MessageGraph([user("Q")], seed="s")
    tokens = {"prompt_token_ids": [1], "token_ids": [2], "logprobs": [-0.5]}
    sampled(chat, "1", answer("a", reasoning="hm"), **tokens)
    chat.append(user("R"))
    chat.commit(chat.prepare(keep_reasoning="all"), answer("b"), CallRecord(sample_id="2", **tokens))
    [row] = text_rows(calls_of(chat))
    assert row.differences(has_reasoning=True) == []


def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_is_not() -> None:
    assert replace_surrogates({"a\ud800": ["x\udc00y", "\U0001f600", 1, None]}) == {"a\ufffd": ["x\ufffdy", "\U0001f600", 1, None]}


def test_a_message_without_content_may_hold_reasoning() -> None:
    assert reasoning_of({"role": "system", "reasoning": "hm"}) == "hm"
    assert reasoning_of({"role": "user", "content": "hi"}) == ""
