"""What an export does faster in the usual case, it does as in every other case."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.graph.stored_graph import responses_of
from hermes.trajectories import rows, tree
from hermes.trajectories.calls import SampledCall, SamplePolicies, read_calls
from hermes.trajectories.plan import plan_session
from hermes.trajectories.source import ExportSession
from tests.unit.trajectories.programs import PROGRAMS, Step, program_graphs


@settings(max_examples=60, deadline=None)
@given(PROGRAMS)
def test_calls_in_line_have_the_rows_and_the_tree_of_the_trie(program: list[Step]) -> None:
    for number, graph in enumerate(program_graphs(program)):
        session = ExportSession(str(number), graph)
        for rollout in plan_session(session, read_calls(session, SamplePolicies())).rollouts:
            found = rows_and_tree(rollout.calls)
            with pytest.MonkeyPatch.context() as patch:
                for module in (rows, tree):
                    patch.setattr(module, "are_in_line", lambda _: False)
                assert rows_and_tree(rollout.calls) == found


def rows_and_tree(calls: Sequence[SampledCall]) -> Any:
    """Everything that rows and tree say, as values that can be compared."""
    whole = tree.tree_row(calls)
    linear = [[getattr(row, field.name) for field in fields(row)] for row in rows.linear_rows(calls)]
    if whole is None:
        return linear, None
    arrays = (whole.tokens, whole.position_ids, whole.subtree_end, whole.parents)
    placed = [(place.call, place.segments) for place in whole.placed]
    return linear, (whole.session, whole.rollout, whole.tokenizer, placed, [(str(array.dtype), array.tolist()) for array in arrays])


@settings(max_examples=60, deadline=None)
@given(PROGRAMS, st.integers(0, 99))
def test_all_responses_read_at_once_are_those_read_one_by_one(program: list[Step], number: int) -> None:
    for graph in program_graphs(program):
        if number % 2:
            graph.redact(number % len(graph))
        assert responses_of(graph) == [(response, response.read()) for response in graph.responses()]
