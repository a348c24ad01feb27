"""Write a rollout's graph into another one; and put all rollouts of a prompt into one graph.

Trainers that compare the rollouts of a prompt (GRPO and its kin) read a *group*: exports make one of each session. In a graph of a whole
prompt every rollout is a branch of its own, joined by edges of the kind `alternative`, and keeps its name and its reward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from hermes.graph import MessageGraph, Response, Turn
from hermes.graph.node import Node
from hermes.trajectories.batch.run_folder import IndexedRollout, RunFolder
from hermes.trajectories.errors import SourceError

ALTERNATIVE = "alternative"


def replay(source: MessageGraph, into: MessageGraph) -> None:
    """Make a graph's list what another one's is, with every response in its context, under its sample id, with its notes.

    What `into` has in common with it from the front stays; the rest is left behind as a version. `source` has one version."""
    nodes = list(source.versions[-1])
    sampled = {response.index: response for response in source.responses() if response.is_own}
    held = list(into.versions[-1])
    shared = next((at for at, node in enumerate(nodes) if at >= len(held) or at in sampled or held[at] != node), len(nodes))
    if shared < len(held):
        into.replace(slice(shared, None), [], kind=ALTERNATIVE)
    for at in range(shared, len(nodes)):
        response = sampled.get(at)
        if response is None:
            into.append(nodes[at], sampled=False)
        else:
            _commit(into, response, nodes[at])
    _annotate(source, into)


def graphs_by_item(folder: RunFolder) -> Iterator[str]:
    """Yield a graph as JSON for each item of a run, with all of its rollouts, in the order in which items were first finished."""
    places: dict[str, list[IndexedRollout]] = {}
    for placed in folder.placed():
        places.setdefault(placed.entry.item, []).append(placed)
    for members in places.values():
        members.sort(key=lambda placed: placed.entry.rollout)
        yield merge_graphs(_load_graph(folder, placed) for placed in members).to_json()


def merge_graphs(graphs: Iterable[MessageGraph]) -> MessageGraph:
    """Return one graph with all of these as its branches. They are of one conversation: they have the same seed."""
    first, *others = graphs
    whole = first.copy()
    for other in others:
        if other.seed != whole.seed:
            raise ValueError("graphs of different conversations cannot be merged")
        replay(other, whole)
    return whole


def _load_graph(folder: RunFolder, placed: IndexedRollout) -> MessageGraph:
    graph = MessageGraph.from_json(folder.graph_line(placed))
    report = graph.verify()
    if not report:
        raise SourceError(f"{folder.path}, rollout {placed.entry.name}", f"altered after it was recorded ({report.problems[0]})")
    return graph


def _commit(into: MessageGraph, response: Response, node: Node) -> None:
    turn = into.prepare()
    into.commit(Turn(turn.nodes, response.overlay, turn.seed), dict(node), response.call)


def _annotate(source: MessageGraph, into: MessageGraph) -> None:
    """Take the notes over. A response of a chat that is attached is the same one here; one of the graph itself is found by its name."""
    names = {response.sample_id: response for response in into.responses()}
    for response in source.responses():
        for note in response.annotations:
            with suppress(KeyError):
                into.annotate(names[response.sample_id], **note)
