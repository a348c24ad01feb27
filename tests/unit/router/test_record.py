"""What a turn leaves in the graph is exactly what the model was sent and said, whatever the model did or others write there."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.ports.users import User
from hermes.router.pipeline import handle_message
from hermes.router.speakers import speaker_id
from hermes.router.steps.build_messages import CUT_TO_CHARS, MAX_REQUEST_CHARS, content_length, count_unfit
from hermes.router.steps.run_tools import MAX_TOOL_CALLS, TOO_MANY_CALLS
from hermes.soul.language import UserLanguages
from hermes.testing.memory import RouterHarness
from tests.unit.router.test_pipeline import CALLS, asked, house

THOUGHT = {"reasoning": "They want a bar.", "thinking_blocks": {"model": "m-1", "blocks": [{"type": "thinking", "thinking": "…"}]}}


def contexts(made: RouterHarness) -> list[list[Any]]:
    [graph] = made.graphs.graphs.values()
    return [[dict(message) for message in response.context] for response in graph.responses()]


async def test_every_sample_stands_under_exactly_what_was_sent_reasoning_included() -> None:
    made = house({"content": "Hello!", **THOUGHT}, {**CALLS, **THOUGHT}, {"content": "Old Man's.", **THOUGHT}, "Bye.")
    for text in ("hi", "a sunset bar in Canggu", "thanks"):
        await handle_message(made.claim(text), made.services)
    sent = [[dict(message) for message in asked(made, at)] for at in range(4)]
    assert contexts(made) == sent
    shown = [["reasoning" in message for message in messages] for messages in sent]
    assert shown[:2] == [[False] * 2, [False] * 4], "of earlier turns nobody is shown what was thought"
    assert shown[2] == [False, False, False, False, True, False], "between a call and its result it belongs to it"


async def test_a_model_that_only_calls_tools_again_is_not_believed_to_have_answered() -> None:
    made = house(CALLS, CALLS)
    ended = await handle_message(made.claim("a sunset bar in Canggu"), made.services)
    assert ended.text.endswith("Old Man's, open until 1 am")
    [graph] = made.graphs.graphs.values()
    assert [message["role"] for message in graph] == ["user", "assistant", "tool", "assistant"]
    assert "tool_calls" not in graph[-1]


async def test_words_beside_calls_that_nobody_runs_are_said_and_leave_no_call_without_a_result() -> None:
    made = house(CALLS, {**CALLS, "content": "Try Old Man's."}, "Glad to help.")
    assert (await handle_message(made.claim("a sunset bar in Canggu"), made.services)).text == "Try Old Man's."
    await handle_message(made.claim("thanks"), made.services)
    calls = [call["id"] for message in asked(made, 2) for call in message.get("tool_calls") or ()]
    results = [message["tool_call_id"] for message in asked(made, 2) if message["role"] == "tool"]
    assert calls == results
    assert len(contexts(made)) == 2, "what was altered is context, and no sample"


async def test_of_too_many_calls_at_once_some_are_not_run_and_the_model_is_told() -> None:
    many = [{**CALLS["tool_calls"][0], "id": f"c{number}"} for number in range(MAX_TOOL_CALLS + 3)]  # type: ignore[index]
    made = house({"content": None, "tool_calls": many}, "Done.")
    assert (await handle_message(made.claim("a sunset bar in Canggu"), made.services)).text == "Done."
    assert len(made.tools.ran) == MAX_TOOL_CALLS  # type: ignore[attr-defined]
    assert [message["content"] for message in asked(made, 1) if message["role"] == "tool"][-3:] == [TOO_MANY_CALLS] * 3


async def test_in_a_room_nothing_is_known_of_anyone_and_what_is_recorded_is_what_was_sent() -> None:
    made = house("Hello, Ada!", "Hello again!")
    for text in ("hi", "hi again"):
        claim = made.claim(text)
        await handle_message(replace(claim, envelope=replace(claim.envelope, is_shared=True, sender_name="Ada")), made.services)
    first, second = contexts(made)
    assert [[dict(message) for message in asked(made, at)] for at in range(2)] == [first, second]
    assert second[0]["content"] == "You are Hermes, in a room."
    assert "morning" not in str(second)
    label = f'[person {speaker_id(made.conversation_id, made.user.id)}, "Ada", writes:]'
    noon = "<context>\nIt is noon.\n</context>"
    assert [message["content"] for message in second[1:]] == [
        f"{noon}\n\n{label}\n> hi",
        "Hello, Ada!",
        f"{noon}\n\n{label}\n> hi again",
    ]


async def test_what_was_said_in_private_stays_there_when_a_conversation_becomes_a_room() -> None:
    made = house("Hello, Ada!", "Hello, all!")
    await handle_message(made.claim("hi, I am allergic to nuts"), made.services)
    claim = made.claim("hello")
    await handle_message(replace(claim, envelope=replace(claim.envelope, is_shared=True)), made.services)
    assert "nuts" not in str(asked(made, 1))
    assert len(made.graphs.graphs) == 2


async def test_an_answer_out_of_the_cache_costs_nothing_unless_it_is_said_to() -> None:
    for charges in (False, True):
        made = house("Hello!")
        made.models.copy_of = "another call"  # type: ignore[attr-defined]
        claim = made.claim("hi")
        await handle_message(claim, replace(made.services, charges_cached=charges))
        assert made.credits.turns[claim.turn_id][1] == ("posted" if charges else "voided")


PICTURE = [{"type": "image_url", "image_url": {"url": "x" * 1_500_000}}]
messages = st.lists(
    st.sampled_from(
        [
            {"role": "user", "content": "hi"},
            {"role": "user", "content": PICTURE},
            {"role": "assistant", "content": "yes"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
            {"role": "tool", "content": "found"},
        ]
    ),
    max_size=12,
)


@given(messages, st.sampled_from([2, 3_000_000, 9_000_000]))
def test_what_a_model_is_shown_begins_with_a_user_and_fits(listed: list[dict[str, Any]], heavy: int) -> None:
    left_out = count_unfit(listed, heavy)
    kept = listed[left_out:]
    total = heavy + sum(content_length(message["content"]) for message in listed)
    assert not kept or kept[0]["role"] == "user"
    if total <= MAX_REQUEST_CHARS:
        assert all(message["role"] != "user" for message in listed[:left_out]), "no more than what cannot stand first"
    else:
        assert not kept or heavy + sum(content_length(message["content"]) for message in kept) <= CUT_TO_CHARS


def test_a_message_that_is_driven_twice_changes_no_language() -> None:
    made = house()
    languages, user = UserLanguages(), replace(made.user, language="en")
    text = "dónde puedo cenar esta noche con mis amigos"
    assert [languages.new_language(user, text) for _ in range(3)] == [None] * 3
    languages.note(user, text)
    assert languages.new_language(user, "quiero reservar una mesa para dos personas mañana") == "es"
    assert languages.of(User(user.id, user.state, "free", None, "c", trains=False), "x") == "en"


@pytest.mark.parametrize("content", ["text", None, [{"type": "text", "text": "text"}]])
def test_a_content_weighs_what_it_says(content: Any) -> None:
    assert content_length(content) == (4 if content else 0)
