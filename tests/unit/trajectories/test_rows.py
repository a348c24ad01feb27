"""Rows and trees on small cases that can be checked by eye; random programs are in test_conservation.py."""

from array import array
from typing import Any

import numpy as np

from hermes import CallRecord, MessageGraph
from hermes.trajectories.calls import SampledCall, SamplePolicies, read_calls
from hermes.trajectories.formats.tree import record, table_of
from hermes.trajectories.plan import RolloutPlan
from hermes.trajectories.rows import Row, linear_rows, loss_scale
from hermes.trajectories.source import ExportSession
from hermes.trajectories.tree import ancestor_mask, tree_arrays, tree_plan, tree_row


def calls_of(*calls: dict[str, Any]) -> list[SampledCall]:
    """Calls as (prompt, completion) with logprobs of -1 unless given."""
    chat = MessageGraph([{"role": "user", "content": "q"}], seed="rows")
    turn = chat.prepare()
    for number, call in enumerate(calls):
        fields = {"logprobs": [-1.0] * len(call["token_ids"]), "sample_id": str(number), **call}
        reward = fields.pop("reward", None)
        response = chat.commit(turn, {"role": "assistant", "content": str(number)}, call=CallRecord(**fields))
        if reward is not None:
            chat.annotate(response, reward=reward)
    return read_calls(ExportSession("s", chat), SamplePolicies())


def call(prompt: list[int], completion: list[int], **fields: Any) -> dict[str, Any]:
    return {"prompt_token_ids": prompt, "token_ids": completion, **fields}


def shown(rows: list[Row]) -> list[tuple[list[int], list[tuple[str, int, int]], int, int]]:
    return [(list(array("i", row.tokens)), [(c.sample_id, c.start, c.end) for c in row.calls], row.parent, row.shared) for row in rows]


def test_a_session_that_only_grows_is_one_row() -> None:
    rows = linear_rows(calls_of(call([1], [2, 3]), call([1, 2, 3, 4], [5]), call([1, 2, 3, 4, 5, 6], [7])))
    assert shown(rows) == [([1, 2, 3, 4, 5, 6, 7], [("0", 1, 3), ("1", 4, 5), ("2", 6, 7)], -1, 0)]


def test_a_fork_is_a_row_and_the_shared_response_is_trained_once() -> None:
    rows = linear_rows(calls_of(call([1], [2]), call([1, 2, 8], [3]), call([1, 2, 9], [4])))
    assert shown(rows) == [([1, 2, 8, 3], [("0", 1, 2), ("1", 3, 4)], -1, 0), ([1, 2, 9, 4], [("2", 3, 4)], 0, 2)]
    assert [[c.sample_id for c in row.path] for row in rows] == [["0", "1"], ["0", "2"]]


def test_rows_come_depth_first_whatever_the_order_of_the_calls() -> None:
    rows = linear_rows(calls_of(call([1], [2]), call([7], [8]), call([1, 2, 3], [4]), call([7, 8, 9], [1]), call([1, 5], [6])))
    assert [list(array("i", row.tokens)) for row in rows] == [[1, 2, 3, 4], [1, 5, 6], [7, 8, 9, 1]]


def test_a_trimmed_reply_shares_what_it_kept() -> None:
    rows = linear_rows(calls_of(call([1], [2, 3, 4, 5]), call([1, 2, 3, 9], [6])))
    assert shown(rows) == [([1, 2, 3, 4, 5], [("0", 1, 5)], -1, 0), ([1, 2, 3, 9, 6], [("1", 4, 5)], 0, 3)]


def test_twins_that_agree_share_a_span_and_twins_that_differ_do_not() -> None:
    same, scored, versioned = (call([1], [2, 3], **fields) for fields in ({}, {"logprobs": [-1, -2]}, {"policy_version": "p"}))
    rows = linear_rows(calls_of(same, same, scored, versioned, scored))
    assert shown(rows) == [
        ([1, 2, 3], [("0", 1, 3), ("1", 1, 3)], -1, 0),
        ([1, 2, 3], [("2", 1, 3), ("4", 1, 3)], 0, 3),
        ([1, 2, 3], [("3", 1, 3)], 0, 3),
    ]


def test_twins_with_different_rewards_differ() -> None:
    assert len(linear_rows(calls_of(call([1], [2], reward=1.0), call([1], [2], reward=0.0)))) == 2
    assert len(linear_rows(calls_of(call([1], [2], reward=1.0), call([1], [2], reward=1.0)))) == 1


def test_a_twin_that_differs_is_placed_behind_the_longer_row_that_holds_its_tokens() -> None:
    rows = linear_rows(calls_of(call([1], [2]), call([1], [2], logprobs=[-9]), call([1, 2, 3], [4])))
    assert shown(rows) == [([1, 2, 3, 4], [("0", 1, 2), ("2", 3, 4)], -1, 0), ([1, 2], [("1", 1, 2)], 0, 2)]


def test_a_continued_completion_overlaps_the_one_it_continues() -> None:
    """The second call was prefilled with half of the first answer and sampled the same rest, with the same logprobs."""
    rows = linear_rows(calls_of(call([1], [2, 3, 4]), call([1, 2], [3, 4])))
    assert shown(rows) == [([1, 2, 3, 4], [("0", 1, 4), ("1", 2, 4)], -1, 0)]


def test_every_rollout_weighs_one() -> None:
    calls = calls_of(call([1], [2, 3]), call([1], [4, 5, 6]))
    assert loss_scale(sum(call.trained for call in calls)) * sum(call.trained for call in calls) == 1.0
    assert loss_scale(0) == 0.0


def test_calls_without_trained_tokens_make_no_rows() -> None:
    assert linear_rows(calls_of(call([1], [2], logprobs=None))) == []
    assert tree_row(calls_of(call([1], [2], logprobs=None))) is None


def test_a_tree_holds_each_unique_token_once() -> None:
    tree = tree_row(calls_of(call([1], [2, 3]), call([1], [2, 4]), call([1, 2, 4, 5], [6]), call([9], [8])))
    assert tree is not None
    assert tree.tokens.tolist() == [1, 2, 3, 4, 5, 6, 9, 8]
    assert tree.position_ids.tolist() == [0, 1, 2, 2, 3, 4, 0, 1]
    assert tree.subtree_end.tolist() == [6, 6, 3, 6, 6, 6, 8, 8]
    assert tree.parents.tolist() == [-1, 0, 1, 1, 3, 4, -1, 6]
    assert [(placed.call.sample_id, placed.segments) for placed in tree.placed] == [
        ("0", ((1, 2), (2, 3))),
        ("1", ((1, 2), (3, 4))),
        ("2", ((5, 6),)),
        ("3", ((7, 8),)),
    ]


def test_the_arrays_of_several_trees_are_those_of_each_one_after_the_other() -> None:
    forked = calls_of(call([1], [2, 3]), call([1], [2, 4]), call([1, 2, 4, 5], [6]), call([9], [8]))
    in_line = calls_of(call([1, 2], [3]), call([1, 2, 3, 4], [5, 6]))
    plans = [plan for plan in map(tree_plan, (forked, in_line, forked[3:])) if plan is not None]
    together = tree_arrays([plan.runs for plan in plans])
    trees = [row for row in map(tree_row, (forked, in_line, forked[3:])) if row is not None]
    assert together.position_ids.tolist() == [each for tree in trees for each in tree.position_ids.tolist()]
    assert together.subtree_end.tolist() == [each for tree in trees for each in tree.subtree_end.tolist()]
    assert together.parents.tolist() == [each for tree in trees for each in tree.parents.tolist()]
    records = [record(number, plan, RolloutPlan(plan.rollout, "", (), 0.5)) for number, plan in enumerate(plans)]
    assert table_of(records).to_pylist() == [table_of([each]).to_pylist()[0] for each in records]
    assert table_of([]).to_pylist() == []


def test_the_mask_lets_a_token_see_exactly_its_ancestors() -> None:
    tree = tree_row(calls_of(call([1], [2, 3]), call([1], [2, 4]), call([1, 2, 4, 5], [6]), call([9], [8])))
    assert tree is not None
    mask = ancestor_mask(tree.subtree_end)
    for place in range(len(tree.tokens)):
        seen, at = set(), place
        while at >= 0:
            seen.add(at)
            at = int(tree.parents[at])
        assert set(np.flatnonzero(mask[place]).tolist()) == seen
