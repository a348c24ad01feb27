"""What a reaction is worth, and what it adds to what is known of a response."""

from typing import Any

import pytest

from hermes.graph import CallRecord, MessageGraph
from hermes.ports.channels import Reaction
from hermes.ports.errors import NotFound
from hermes.ports.outbox import AnswerSource
from hermes.router.feedback import MAX_REACTION_CHARS, annotation_for, hash_sender, last_response, reward_of

ANN, BEN = "ann", "ben"


def graph() -> MessageGraph:
    """Two turns; the second one called a tool."""
    made = MessageGraph(seed="s")
    made.append({"role": "user", "content": "hi"})
    made.append({"role": "assistant", "content": "hello"}, call=CallRecord(sample_id="c1"))
    made.append({"role": "user", "content": "a bar?"})
    calls = [{"id": "t1", "type": "function", "function": {"name": "find_venues", "arguments": "{}"}}]
    made.append({"role": "assistant", "content": None, "tool_calls": calls}, call=CallRecord(sample_id="c2"))
    made.append({"role": "tool", "tool_call_id": "t1", "content": "Salt & Ember"})
    made.append({"role": "assistant", "content": "Salt & Ember!"}, call=CallRecord(sample_id="c3"))
    return made


def spoken(*calls: str) -> AnswerSource:
    return AnswerSource(turn_id=None, session_id=None, calls=calls)  # neither is looked at here


def react(made: MessageGraph, who: str, emoji: str) -> dict[str, Any] | None:
    response = last_response(made, spoken("c2", "c3"))
    note = annotation_for(response, Reaction(message_id="1", sender_id=who, emoji=emoji), who)
    if note is not None:
        made.annotate(response, **note)
    return note


@pytest.mark.parametrize(
    ("emoji", "reward"),
    [
        *((sign, 1.0) for sign in ("👍", "👍🏽", "❤", "❤️", "🔥", "❤‍🔥", "❤️‍🔥", "🎉", "love", "like")),
        *((sign, -1.0) for sign in ("👎", "👎🏿", "💩", "😡", "angry")),
        *((sign, None) for sign in ("😂", "😢", "🦄", "?", "\N{REPLACEMENT CHARACTER}", "", "wow")),
    ],
)
def test_what_a_reaction_is_worth(emoji: str, reward: float | None) -> None:
    assert reward_of(emoji) == reward


@pytest.mark.parametrize(("calls", "text"), [(("c1",), "hello"), (("c2", "c3"), "Salt & Ember!"), (("c2", "cut off"), None)])
def test_the_last_sample_of_a_turn_is_what_was_answered(calls: tuple[str, ...], text: str | None) -> None:
    assert last_response(graph(), spoken(*calls)).message["content"] == text


@pytest.mark.parametrize("calls", [(), ("a copy",)])
def test_what_no_model_said_has_no_response(calls: tuple[str, ...]) -> None:
    with pytest.raises(NotFound):
        last_response(graph(), spoken(*calls))


def test_a_reaction_is_noted_once_however_often_it_comes() -> None:
    made = graph()
    assert react(made, ANN, "👍") == {"reaction": "👍", "reaction_by": ANN, "reward": 1.0}
    assert react(made, ANN, "👍") is None
    assert [len(response.annotations) for response in made.responses()] == [0, 0, 1]


def test_another_one_follows_and_what_is_taken_back_is_said() -> None:
    made = graph()
    assert react(made, ANN, "") is None, "there was none"
    notes = [react(made, ANN, emoji) for emoji in ("👍", "👎", "🦄", "", "")]
    expected = [("👍", 1.0), ("👎", -1.0), ("🦄", None), ("", None)]
    assert notes == [*({"reaction": emoji, "reaction_by": ANN, "reward": reward} for emoji, reward in expected), None]


def test_in_a_group_the_reward_is_the_mean_of_what_everybody_thinks_last() -> None:
    made = graph()
    steps = [(ANN, "👍"), (BEN, "👎"), (ANN, "🦄"), (BEN, ""), (ANN, "👍"), (BEN, "❤️")]
    notes = [react(made, who, emoji) for who, emoji in steps]
    assert [note["reward"] for note in notes if note] == [1.0, 0.0, -1.0, None, 1.0, 1.0]


def test_what_others_noted_is_left_alone() -> None:
    made = graph()
    made.annotate(last_response(made, spoken("c3")), reward=0.5, reaction="by hand")
    assert react(made, ANN, "👎") == {"reaction": "👎", "reaction_by": ANN, "reward": -1.0}


def test_a_reaction_is_no_place_for_a_letter() -> None:
    note = react(graph(), ANN, "x" * 1_000)
    assert note is not None
    assert note["reaction"] == "x" * MAX_REACTION_CHARS


def test_who_it_was_is_told_within_a_conversation_and_in_no_other() -> None:
    made, other = graph(), MessageGraph(seed="t")
    assert hash_sender(made, ANN) == hash_sender(graph(), ANN)
    assert len({hash_sender(made, ANN), hash_sender(made, BEN), hash_sender(other, ANN)}) == 3
