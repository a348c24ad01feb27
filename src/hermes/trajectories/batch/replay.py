"""Copy a rollout's graph into another graph, and put all rollouts of a prompt into one graph.

Trainers that compare the rollouts of a prompt (GRPO and similar methods) read a *group*, and an export makes one group of each session. In
the graph of a whole prompt every rollout is its own branch, joined by edges of the kind `alternative`, and keeps its name and reward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from hermes.graph import MessageGraph, Response, Turn
from hermes.graph.node import Node
from hermes.trajectories.batch.run_folder import IndexedRollout, RunFolder
from hermes.trajectories.errors import SourceError

ALTERNATIVE = "alternative"


def replay(source: MessageGraph, into: MessageGraph) -> None:
    """Make the list of `into` equal to that of `source`, with every response in its context, with its sample id and annotations.

    The common beginning of both lists stays; the rest of `into` is kept as a version. `source` must have one version."""
    nodes = list(source.versions[-1])
    sampled = {response.index: response for response in source.responses() if response.is_own}
    current = list(into.versions[-1])
    shared = next((at for at, node in enumerate(nodes) if at >= len(current) or at in sampled or current[at] != node), len(nodes))
    if shared < len(current):
        into.replace(slice(shared, None), [], kind=ALTERNATIVE)
    for at in range(shared, len(nodes)):
        response = sampled.get(at)
        if response is None:
            into.append(nodes[at], sampled=False)
        else:
            _commit(into, response, nodes[at])
    _annotate(source, into)


def graphs_by_item(folder: RunFolder) -> Iterator[str]:
    """Yield for each item of a run one graph as JSON with all its rollouts, ordered by the item's first finished rollout."""
    places: dict[str, list[IndexedRollout]] = {}
    for placed in folder.read_index():
        places.setdefault(placed.entry.item, []).append(placed)
    for members in places.values():
        members.sort(key=lambda placed: placed.entry.rollout)
        yield merge_graphs(_load_graph(folder, placed) for placed in members).to_json()


def merge_graphs(graphs: Iterable[MessageGraph]) -> MessageGraph:
    """Return one graph with all of these as branches. Raises ValueError if they are not of one conversation, with the same seed."""
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
    """Copy the annotations to the responses of `into` with the same sample id, also those of attached chats."""
    names = {response.sample_id: response for response in into.responses()}
    for response in source.responses():
        for note in response.annotations:
            with suppress(KeyError):
                into.annotate(names[response.sample_id], **note)
