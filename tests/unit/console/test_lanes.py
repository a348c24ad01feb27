"""Lanes: every message of every version is a row, each version is a path downwards, and no two lanes share a place."""

from itertools import pairwise
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.console.chat_shapes import shape_of
from hermes.console.lane_rows import MAX_LANES, START, GraphLayout, ReplayMark
from hermes.console.lanes import lay_out
from hermes.graph import MessageGraph
from hermes.graph.stored_graph import history_of
from hermes.ports.conversations import GraphShape

WORDS = ("a", "b", "c", "d")


def edited(graph: MessageGraph, steps: list[tuple[int, int, int, int]]) -> MessageGraph:
    """A graph after a series of appends, answers, edits, deletions, compactions and alternatives."""
    for kind, where, size, word in steps:
        text = WORDS[word]
        if kind == 0 or not graph:
            graph.append({"role": "user", "content": text})
        elif kind == 1:
            graph.append({"role": "assistant", "content": text})
        elif kind == 2:
            graph.replace(where % len(graph), {"role": "user", "content": text})
        elif kind == 3:
            start = where % len(graph)
            del graph[start : start + size]
        elif kind == 4:
            graph.compact(slice(0, 1 + where % len(graph)), text)
        elif kind == 5:
            turn = graph.fork(where % len(graph)).prepare()
            graph.commit(turn, {"role": "assistant", "content": text})
        else:
            graph.reverse()
    return graph


STEPS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 30), st.integers(1, 4), st.integers(0, 3)), max_size=40)


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 5))
def test_every_version_is_a_path_downwards_through_all_rows(steps: list[tuple[int, int, int, int]], seed: int) -> None:
    graph = edited(MessageGraph(), steps)
    shape = shape_of(history_of(graph))
    marks = [ReplayMark(UUID(int=node), node) for node in shape.listed[seed:][:2]]
    layout = lay_out(shape, marks)
    seen: set[int] = set()
    for place, version in enumerate(graph.versions):
        path = layout.path(place)
        assert path == sorted(set(path))
        assert [shape.addresses[layout.rows[row].node] for row in path] == [
            shape.addresses[shape_node] for shape_node in nodes_of(shape, place)
        ]
        assert len(path) == len(version)
        seen.update(path)
    assert seen == {row.number for row in layout.rows if row.node >= 0}
    check_lanes(layout)
    check_edges(layout, len(shape.versions))
    check_samples(graph, layout)


def nodes_of(shape: GraphShape, place: int) -> list[int]:
    nodes = list(shape.listed)
    for version in reversed(shape.versions[place:]):
        nodes[version.tail :] = version.end
        for hunk in reversed(version.hunks):
            nodes[hunk.start : hunk.stop] = hunk.nodes
    return nodes


def check_lanes(layout: GraphLayout) -> None:
    """In every row each half of each lane belongs to one line at most, and lines go on from row to row."""
    for row in layout.rows:
        upper = [*row.through, *(s.lane for s in row.joins if s.lane < MAX_LANES), *([row.lane] if row.lane < MAX_LANES else [])]
        lower = [*row.through, *(s.lane for s in row.leaves if s.lane < MAX_LANES), *([row.lane] if row.lane < MAX_LANES else [])]
        assert len(upper) == len(set(upper))
        assert len(lower) == len(set(lower))
        assert row.lane < layout.lanes or (row.lane == MAX_LANES and layout.lanes == MAX_LANES)  # no lane is left free
    for above, below in pairwise(layout.rows):
        down = {*above.through, *(s.lane for s in above.leaves)} | ({above.lane} if above.has_below else set())
        up = {*below.through, *(s.lane for s in below.joins)} | ({below.lane} if below.has_above else set())
        assert down - {MAX_LANES} == up - {MAX_LANES}


def check_edges(layout: GraphLayout, count: int) -> None:
    """Every step of every version is drawn: within a lane, or by a segment that leaves or joins."""
    drawn: set[tuple[int, int]] = set()
    current = [layout.place_of_row[row] for row in layout.current]
    drawn.update(pairwise(current))
    for segment in layout.segments:
        rows = [layout.place_of_row[row] for row in segment.rows]
        before = [layout.place_of_row[segment.leaves]] if segment.leaves != START else []
        after = [layout.place_of_row[segment.joins]] if segment.joins is not None else []
        way = [*before, *rows, *after]
        drawn.update(pairwise(way))
    for place in range(count + 1):
        path = layout.path(place)
        assert set(pairwise(path)) <= drawn


def check_samples(graph: MessageGraph, layout: GraphLayout) -> None:
    """A row is sampled if the graph says so of its place in its own version."""
    shape = layout.shape
    sampled = [set(version.sampled) for version in graph.versions]
    paths = [layout.path(place) for place in range(len(shape.versions) + 1)]
    marked = {sample for row in layout.rows for sample in row.samples}
    for row in layout.rows:
        if row.node >= 0 and row.samples:
            assert paths[row.owner].index(row.number) in sampled[row.owner]
    for row in layout.rows:
        if row.owner == len(shape.versions) and paths[-1].index(row.number) in sampled[-1]:
            assert row.samples
    assert len(marked) + sum(len(row.copied) for row in layout.rows) >= len(shape.samples)


def test_an_edit_leaves_and_comes_back_on_a_second_lane() -> None:
    graph = MessageGraph([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])
    graph.append({"role": "assistant", "content": "a"})
    graph.replace(1, {"role": "user", "content": "v"})
    layout = lay_out(shape_of(history_of(graph)))
    assert [(row.lane, bool(row.samples), row.copied) for row in layout.rows] == [
        (0, False, ()),
        (1, False, ()),
        (0, False, ()),
        (0, False, (0,)),
    ]
    [segment] = layout.segments
    assert (segment.kind, segment.version, layout.path(0), layout.path(1)) == ("edit", 0, [0, 1, 3], [0, 2, 3])


def test_more_versions_than_lanes_are_counted() -> None:
    graph = MessageGraph([{"role": "user", "content": "u"}])
    for number in range(12):
        graph.commit(graph.fork(1).prepare(), {"role": "assistant", "content": f"a{number}"})
    layout = lay_out(shape_of(history_of(graph)))
    assert len(layout.rows) == 13
    assert layout.lanes <= MAX_LANES
    assert max(row.hidden for row in layout.rows) > 0
    check_lanes(layout)


def test_ten_thousand_messages_and_two_hundred_versions_are_laid_out() -> None:
    graph = MessageGraph()
    for number in range(5_000):
        graph.append({"role": "user", "content": f"question {number}"})
        graph.append({"role": "assistant", "content": f"answer {number}"})
        if number % 25 == 24:
            graph.replace(2 * ((number * 7919) % (number - 1)), {"role": "user", "content": f"other {number}"})
    shape = shape_of(history_of(graph))
    assert (len(shape.listed), len(shape.versions)) == (10_000, 200)
    layout = lay_out(shape)
    assert len(layout.rows) == 10_200
    check_lanes(layout)
