"""What belongs together, and what is protected."""

from dataclasses import replace
from typing import Any

from hermes.trajectories.compress.settings import ProtectedSettings
from hermes.trajectories.compress.turns import is_summary, lay_out, turns_of, units_of
from tests.unit.trajectories.compress.chats import answer, result, system, user

CALL = answer(None, ("c1", "a", "{}"), ("c2", "b", "{}"))
CHAT = [system("s"), user("u"), CALL, result("c2", "2"), result("c1", "1"), answer("so"), user("and?"), answer("yes")]


def spans(parts: Any) -> list[tuple[int, int]]:
    return [(part.start, part.stop) for part in parts]


def test_results_that_follow_each_other_are_one_turn() -> None:
    assert spans(turns_of(CHAT)) == [(0, 1), (1, 2), (2, 3), (3, 5), (5, 6), (6, 7), (7, 8)]


def test_a_call_and_its_results_are_one_unit() -> None:
    assert spans(units_of(CHAT)) == [(0, 1), (1, 2), (2, 5), (5, 6), (6, 7), (7, 8)]


def test_a_result_that_comes_late_binds_what_stands_between() -> None:
    late = [CALL, result("c1", "1"), user("still there?"), answer("yes"), result("c2", "2"), user("good")]
    assert spans(units_of(late)) == [(0, 5), (5, 6)]


def test_ids_that_come_again_are_told_apart_and_orphans_stand_alone() -> None:
    one = [answer(None, ("1", "a", "{}")), result("1", "x")]
    assert spans(units_of([*one, user("u"), *one, user("u"), result("1", "orphan"), user("u")])) == [
        (0, 2),
        (2, 3),
        (3, 5),
        (5, 6),
        (6, 7),
        (7, 8),
    ]


def test_results_without_ids_belong_to_the_message_before_them() -> None:
    textual = [answer("<tool_call>unparsed</tool_call>"), {"role": "tool", "content": "x"}, {"role": "tool", "content": "y"}]
    assert spans(units_of(textual)) == [(0, 3)]
    assert spans(units_of([{"role": "tool", "content": "first of all"}, user("u")])) == [(0, 1), (1, 2)]


def test_the_first_of_each_speaker_and_the_last_turns_are_protected() -> None:
    layout = lay_out(CHAT, ProtectedSettings(last_n_turns=2), ())
    assert sorted(layout.protected) == [0, 1, 2, 3, 4, 6, 7]
    assert [spans(segment) for segment in layout.segments] == [[(5, 6)]]


def test_what_cannot_go_without_a_protected_turn_stays_but_is_not_protected_itself() -> None:
    layout = lay_out(CHAT, ProtectedSettings(first_tool=False, last_n_turns=0), ())
    assert sorted(layout.protected) == [0, 1, 2]
    assert [spans(segment) for segment in layout.segments] == [[(5, 6), (6, 7), (7, 8)]]
    tail = lay_out(CHAT[:5], ProtectedSettings(first_gpt=False, first_tool=False, last_n_turns=1), ())
    assert (sorted(tail.protected), tail.segments) == ([0, 1, 3, 4], ())


def test_a_protected_turn_in_the_middle_makes_two_segments() -> None:
    layout = lay_out([user("a"), user("b"), answer("c"), user("d"), user("e")], ProtectedSettings(last_n_turns=0), ())
    assert [spans(segment) for segment in layout.segments] == [[(1, 2)], [(3, 4), (4, 5)]]


def test_the_place_of_a_message_among_the_turns() -> None:
    layout = lay_out(CHAT, ProtectedSettings(), ())
    assert [layout.turn_of(index) for index in range(9)] == [0, 1, 2, 3, 3, 4, 5, 6, 7]


def test_a_summary_is_known_by_its_mark_or_by_how_it_begins() -> None:
    headers = ("[CONTEXT SUMMARY",)
    assert is_summary(user("[CONTEXT SUMMARY]: all"), headers)
    assert is_summary({**user("other words"), "metadata": {"compression": {}}}, headers)
    assert not is_summary(user("as in [CONTEXT SUMMARY]"), headers)
    assert not is_summary(answer("[CONTEXT SUMMARY]: mine"), headers)
    assert not is_summary({"role": "user", "content": [{"type": "text", "text": "[CONTEXT SUMMARY]"}]}, headers)


def test_a_summary_is_nobodys_first_word() -> None:
    chat = [user("[CONTEXT SUMMARY]: before"), user("really the first"), answer("a")]
    assert sorted(lay_out(chat, ProtectedSettings(last_n_turns=0), ("[CONTEXT SUMMARY",)).protected) == [1, 2]


def test_the_first_turns_can_be_protected_by_count_and_a_call_keeps_its_results() -> None:
    nothing = ProtectedSettings(first_system=False, first_human=False, first_gpt=False, first_tool=False, last_n_turns=0)
    layout = lay_out(CHAT, replace(nothing, first_n_turns=3, last_n_turns=2), ())
    assert sorted(layout.protected) == [0, 1, 2, 6, 7]
    assert [spans(segment) for segment in layout.segments] == [[(5, 6)]], "the results stay with their call"
    assert lay_out(CHAT, replace(nothing, first_n_turns=99), ()).segments == ()


def test_a_summary_and_what_stands_behind_it_are_no_first_turns() -> None:
    nothing = ProtectedSettings(first_system=False, first_human=False, first_gpt=False, first_tool=False, first_n_turns=3, last_n_turns=0)
    chat = [system("s"), user("[CONTEXT SUMMARY]: before"), user("u"), answer("a")]
    assert sorted(lay_out(chat, nothing, ("[CONTEXT SUMMARY",)).protected) == [0]


def test_the_last_turns_by_count_keep_the_call_of_a_result() -> None:
    nothing = ProtectedSettings(first_system=False, first_human=False, first_gpt=False, first_tool=False, last_n_turns=4)
    layout = lay_out(CHAT, nothing, ())
    assert sorted(layout.protected) == [3, 4, 5, 6, 7]
    assert [spans(segment) for segment in layout.segments] == [[(0, 1), (1, 2)]], "the call of the protected results stays"
