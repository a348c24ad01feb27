"""Calls: what was sampled, graded token by token, and what the policies leave out."""

from typing import Any

import pytest

from hermes import CallRecord, MessageGraph
from hermes.trajectories.calls import SampledCall, SamplePolicies, read_calls
from hermes.trajectories.errors import AnnotationError
from hermes.trajectories.source import ExportSession
from hermes.trajectories.text_rows import can_train_as_text


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def record(name: str, **fields: Any) -> CallRecord:
    return CallRecord(**{"sample_id": name, "prompt_token_ids": [1, 2], "token_ids": [3, 4, 5], "logprobs": [-1, -2, -3], **fields})


def calls_of(chat: MessageGraph, **policies: Any) -> list[SampledCall]:
    return read_calls(ExportSession("s", chat), SamplePolicies(**policies))


def reasons(chat: MessageGraph, **policies: Any) -> dict[str, list[tuple[int, int, str]]]:
    return {call.sample_id: [(part.start, part.end, part.reason) for part in call.excluded] for call in calls_of(chat, **policies)}


GRADES: dict[str, tuple[dict[str, Any], int, int, list[tuple[int, int, str]]]] = {
    "all": ({}, 3, 3, []),
    "no ids": ({"token_ids": None, "logprobs": None}, 0, 0, [(0, 0, "no token ids")]),
    "no ids but counted": ({"token_ids": None, "usage": {"completion_tokens": 7}}, 7, 0, [(0, 7, "no token ids")]),
    "no prompt ids": ({"prompt_token_ids": None}, 3, 0, [(0, 3, "no prompt token ids")]),
    "no logprobs": ({"logprobs": None}, 3, 0, [(0, 3, "no logprobs")]),
    "a tail without logprobs": ({"logprobs": [-1]}, 3, 1, [(1, 3, "no logprobs")]),
    "a tail not returned": ({"usage": {"completion_tokens": 5}}, 5, 3, [(3, 5, "counted by the server but not returned")]),
    "both": (
        {"logprobs": [-1, -2], "usage": {"completion_tokens": 5}},
        5,
        2,
        [(2, 3, "no logprobs"), (3, 5, "counted by the server but not returned")],
    ),
    "a logprob of minus infinity": ({"logprobs": [-1, float("-inf"), -2]}, 3, 1, [(1, 3, "not a logprob")]),
    "a logprob above 0": ({"logprobs": [1e-6, -1, 0.5]}, 3, 2, [(2, 3, "not a logprob")]),
    "an empty prompt": ({"prompt_token_ids": []}, 3, 0, [(0, 3, "empty prompt: nothing predicts the first token")]),
    "more logprobs than ids": ({"logprobs": [-1, -2, -3, -4]}, 3, 3, []),
    "fewer counted than returned": ({"usage": {"completion_tokens": 2}}, 3, 3, []),
    "derived prompt": ({"prompt_derived": True}, 3, 0, [(0, 3, "prompt tokens derived, not recorded")]),
    "an empty list of ids": ({"token_ids": [], "logprobs": []}, 0, 0, [(0, 0, "no token ids")]),
    "an empty list of ids, but counted": (
        {"token_ids": [], "logprobs": [], "usage": {"completion_tokens": 7}},
        7,
        0,
        [(0, 7, "no token ids")],
    ),
}


@pytest.mark.parametrize(
    ("message", "reason", "is_text"),
    [
        (answer("a"), "no token ids", True),
        ({**answer(""), "reasoning": "hm"}, "no token ids", True),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f"}}]}, "no token ids", True),
        (answer(""), "empty completion", False),
        ({"role": "assistant", "content": None}, "empty completion", False),
    ],
)
def test_an_answer_with_an_empty_list_of_ids_is_text_unless_it_is_empty_itself(message: Any, reason: str, is_text: bool) -> None:
    chat = MessageGraph([user("q")])
    chat.append(message, call=record("1", token_ids=[], logprobs=[]))
    (call,) = calls_of(chat)
    assert ([part.reason for part in call.excluded], can_train_as_text(call)) == ([reason], is_text)


@pytest.mark.parametrize(("fields", "sampled", "trained", "excluded"), GRADES.values(), ids=GRADES)
def test_grades_token_by_token(fields: dict[str, Any], sampled: int, trained: int, excluded: list[tuple[int, int, str]]) -> None:
    chat = MessageGraph([user("q")])
    chat.append(answer("a"), call=record("1", **fields))
    (call,) = calls_of(chat)
    assert (call.sampled, call.trained, [(part.start, part.end, part.reason) for part in call.excluded]) == (sampled, trained, excluded)
    assert call.sampled == call.trained + sum(part.end - part.start for part in call.excluded)


@pytest.mark.parametrize("ids", [{}, {"prompt_token_ids": None, "token_ids": None, "logprobs": None}])
def test_what_a_script_answered_is_excluded_as_such_also_after_a_round_trip(ids: dict[str, Any]) -> None:
    chat = MessageGraph([user("q")])
    chat.append(answer("a"), call=record("1", model="scripted", usage={"completion_tokens": 3}, **ids))
    chat.append(answer("b"), call=record("2", model="scripted-7b"))
    chat = MessageGraph.from_json(chat.to_json())
    assert reasons(chat) == {"1": [(0, 3, "scripted answer")], "2": []}
    assert reasons(chat, policy_versions=frozenset({"v1"}))["1"] == [(0, 3, "scripted answer")], "before reasons that settings give"
    assert reasons(chat, scripted="include") == {"1": [(0, 3, "no token ids")] if ids else [], "2": []}


def test_what_a_person_forbids_is_said_before_that_a_script_answered() -> None:
    chat = MessageGraph([user("q")])
    response = chat.commit(chat.prepare(), answer("a"), call=record("1", model="scripted"))
    chat.annotate(response, consent=False)
    assert reasons(chat) == {"1": [(0, 3, "no consent")]}


def test_a_script_that_answers_last_does_not_make_a_models_sample_a_retry() -> None:
    chat = MessageGraph([user("q")])
    turn = chat.prepare()
    for name, model in (("1", "m"), ("2", "m"), ("3", "scripted")):
        chat.commit(turn, answer(name), call=record(name, model=model))
    assert reasons(chat, retries="last") == {"1": [(0, 3, "retried")], "2": [], "3": [(0, 3, "scripted answer")]}


def test_derived_prompts_can_be_included_and_are_off_policy() -> None:
    chat = MessageGraph([user("q")])
    chat.append(answer("a"), call=record("1", prompt_derived=True))
    (call,) = calls_of(chat, derived="include")
    assert (call.trained, call.on_policy) == (3, False)


def test_every_version_and_every_attached_chat_counts() -> None:
    inner = MessageGraph([user("i")])
    inner.append(answer("inner"), call=record("inner"))
    chat = MessageGraph([user("q")])
    chat.append(answer("a"), call=record("1"))
    chat[0]["content"] = "edited"
    chat.append({"role": "tool", "content": "t", "metadata": {"chat": inner}})
    chat.append(answer("b"), call=record("2"))
    assert [(call.sample_id, call.order) for call in calls_of(chat)] == [("1", 0), ("2", 1), ("inner", 2)]


def test_consent_redaction_and_notes_exclude_with_their_reason() -> None:
    chat = MessageGraph([user("secret")])
    for name in "123":
        chat.append(answer(name), call=record(name))
    first, second, third = chat.responses()
    chat.annotate(first, consent=False)
    chat.annotate(second, exclude="looked wrong")
    assert reasons(chat) == {"1": [(0, 3, "no consent")], "2": [(0, 3, "looked wrong")], "3": []}
    chat.annotate(first, consent=True)
    assert reasons(chat)["1"] == []
    chat.redact(third.message)
    assert reasons(chat)["3"][0][2] == "redacted"
    chat.redact(0)
    assert {parts[0][2] for parts in reasons(chat).values()} == {"redacted"}


def summariser(name: str) -> MessageGraph:
    chat = MessageGraph([user("sum up")])
    chat.append(answer(f"summary {name}"), call=record(name))
    return chat


def test_what_an_edit_gave_up_can_be_left_out() -> None:
    chat = MessageGraph([user("q")])
    chat.append(answer("given up"), call=record("1"))
    chat[0]["content"] = "better question"
    chat.append(user("more"))
    chat.append(answer("kept"), call=record("2"))
    chat.compact(slice(0, 2), "short")
    chat.append(answer("now"), call=record("3"))
    assert reasons(chat) == {"1": [], "2": [], "3": []}
    assert reasons(chat, keep="accepted") == {"1": [(0, 3, "superseded by an edit")], "2": [], "3": []}


def test_a_rejected_compaction_attempt_can_be_left_out_and_what_it_summed_up_stays() -> None:
    chat = MessageGraph([user("q")])
    chat.append(answer("a"), call=record("1"))
    chat.append(user("more"))
    before = [dict(message) for message in chat]
    attempt = {**user("bad summary"), "metadata": {"chat": summariser("attempt")}}
    chat.replace(slice(0, 2), [attempt], kind="compaction_attempt")
    chat.append(answer("confused"), call=record("2"))
    chat[:] = before  # back to where it was
    chat.append(answer("b"), call=record("3"))
    good = {**user("good summary"), "metadata": {"chat": summariser("good")}}
    chat.compact(slice(0, 3), good)
    chat.append(answer("c"), call=record("4"))
    assert {name: [reason for *_, reason in parts] for name, parts in reasons(chat, keep="accepted").items()} == {
        "1": [],
        "2": ["rejected compaction attempt"],
        "3": [],
        "4": [],
        "attempt": ["rejected compaction attempt"],
        "good": [],
    }


def test_several_samples_of_one_context_are_not_given_up() -> None:
    chat = MessageGraph([user("q")])
    turn = chat.prepare()
    for name in "12":
        chat.commit(turn, answer(name), call=record(name))
    assert reasons(chat, keep="accepted") == {"1": [], "2": []}


def test_what_was_given_up_inside_a_subagent_is_given_up() -> None:
    inner = MessageGraph([user("i")])
    inner.append(answer("first try"), call=record("1"))
    inner[0]["content"] = "better"
    inner.append(answer("second try"), call=record("2"))
    chat = MessageGraph([user("q"), {"role": "tool", "content": "t", "metadata": {"chat": inner}}])
    assert reasons(chat, keep="accepted") == {"1": [(0, 3, "superseded by an edit")], "2": []}
    del chat[1]
    assert reasons(chat, keep="accepted") == {"1": [(0, 3, "superseded by an edit")], "2": [(0, 3, "superseded by an edit")]}


def test_policy_spans_count_for_the_choice_of_policy_versions() -> None:
    chat = MessageGraph([user("q")])
    chat.append(answer("a"), call=record("1", policy_version="v2", policy_spans=[("v1", 0, 2), ("v2", 2, 3)]))
    chat.append(answer("b"), call=record("2", policy_spans=[("v2", 0, 3)]))
    assert reasons(chat, policy_versions=frozenset({"v2"})) == {"1": [(0, 3, "policy version v1 not asked for")], "2": []}


def test_along_a_compaction_the_older_version_counts_as_accepted() -> None:
    chat = MessageGraph([user("q")])
    chat.append(answer("a"), call=record("1"))
    chat.append(user("more"))
    chat.append(answer("b"), call=record("2"))
    chat.compact(slice(0, 3), "short")
    chat.append(answer("c"), call=record("3"))
    assert reasons(chat, keep="accepted") == {"1": [], "2": [], "3": []}


def test_a_response_that_is_still_in_the_list_was_not_given_up() -> None:
    chat = MessageGraph([user("q")])
    chat.append(answer("a"), call=record("1"))
    chat.append(user("more"))
    chat.append(answer("b"), call=record("2"))
    chat[2]["content"] = "other"
    assert reasons(chat, keep="accepted") == {"1": [], "2": [(0, 3, "superseded by an edit")]}


def test_of_several_samples_in_one_context_the_last_can_be_kept() -> None:
    chat = MessageGraph([user("q")])
    turn = chat.prepare()
    for name in "123":
        chat.commit(turn, answer(name), call=record(name))
    chat.commit(chat.prepare(), answer("next"), call=record("4"))
    assert reasons(chat, retries="last") == {"1": [(0, 3, "retried")], "2": [(0, 3, "retried")], "3": [], "4": []}


def test_policy_versions_can_be_chosen() -> None:
    chat = MessageGraph([user("q")])
    chat.append(answer("a"), call=record("1", policy_version="step-1"))
    chat.append(answer("b"), call=record("2"))
    assert reasons(chat, policy_versions=frozenset({"step-1"})) == {"1": [], "2": [(0, 3, "policy version unknown not asked for")]}


def test_rewards_sit_on_responses_and_rollouts() -> None:
    chat = MessageGraph([user("q")])
    for name in "1234":
        chat.append(answer(name), call=record(name))
    one, two, three, _ = chat.responses()
    chat.annotate(one, reward=0.5, advantage=-1)
    chat.annotate(two, reward=None)
    chat.annotate(three, rollout="other", reward=2, rollout_reward=3.0)
    assert [(call.rollout, call.reward, call.advantage, call.rollout_reward) for call in calls_of(chat)] == [
        ("s", 0.5, -1.0, 0.5),
        ("s", None, None, 0.5),
        ("other", 2.0, None, 3.0),
        ("s", None, None, 0.5),
    ]


def test_an_annotation_that_is_no_number_is_said() -> None:
    chat = MessageGraph([user("q")])
    chat.append(answer("a"), call=record("1"))
    chat.annotate(next(chat.responses()), reward="high")
    with pytest.raises(AnnotationError, match="annotation reward='high' of response"):
        calls_of(chat)
