"""Go through a whole graph, versions and attached chats to any depth included: every response once, every edge, and check every id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hermes.graph.edit import SEQUENTIAL, SUBAGENT_CALL, SUBAGENT_RETURN
from hermes.graph.history import GraphHistory, Sample
from hermes.graph.message import METADATA, canonical_message, digest
from hermes.graph.node import Node
from hermes.graph.response import Response, ResponseParts
from hermes.graph.root import root_of
from hermes.graph.token_arrays import PromptDigests

ALTERED = "context, message or call was altered"
INCOMPLETE = "parts of its call are missing"


def histories(top: GraphHistory) -> list[GraphHistory]:
    """Return the graph itself and every chat attached anywhere in it, each once, in the order of discovery."""
    found = [top]
    seen = {id(top)}
    for history in found:  # the loop appends to `found`
        for node in history.all_nodes():
            chat = node.chat if METADATA in node else None
            if chat is not None and id(chat.history) not in seen:
                seen.add(id(chat.history))
                found.append(chat.history)
    return found


def responses(top: GraphHistory) -> Iterator[Response]:
    """Yield every sample once, a graph's own in the order of sampling, then those of attached chats.

    A sample that several chats hold (a fork, a later snapshot of one subagent) is one sample. The same sample id with
    other content is another sample, and both are yielded."""
    seen: dict[str, list[Response]] = {}
    for history in histories(top):
        for at, sample in enumerate(history.settle()):
            response = Response(history, at, top)
            same_name = seen.get(sample.sample_id)
            if same_name is None:
                seen[sample.sample_id] = [response]
                yield response
            elif not any(response.id == other.id for other in same_name):
                same_name.append(response)
                yield response


def read_responses(top: GraphHistory) -> list[tuple[Response, ResponseParts]]:
    """Return every response that `responses` yields, and what its `read` gives. The caller holds the lock."""
    samples = top.settle()
    if len(histories(top)) > 1 or len({sample.sample_id for sample in samples}) < len(samples):
        return [(response, response.read()) for response in responses(top)]
    found = []
    nodes: Sequence[Node] = top.nodes
    head, first_erased = -1, 0
    for at, sample in enumerate(samples):
        if sample.head != head:
            head, nodes = sample.head, top.nodes_of(sample.head)
            first_erased = next((index for index, node in enumerate(nodes) if node.redacted), len(nodes))
        known = top.seal(sample)
        notes = list(top.annotations.get(known, ())) if top.annotations else []
        is_erased = first_erased <= sample.index
        parts = ResponseParts(known, sample.sample_id, nodes[sample.index], sample.overlay, sample.call, is_erased, notes)
        found.append((Response(top, at, top), parts))
    return found


class Edge(NamedTuple):
    """A connection between two contexts, by id. A `sequential` edge leads to the next message; any other kind is parallel."""

    kind: str
    source: str
    target: str


def edges(top: GraphHistory) -> Iterator[Edge]:
    """Yield every edge once: from message to message in every version, from kept heads to their successors, into subagents and back."""
    seen: set[Edge] = set()
    for history in histories(top):
        for edge in _edges_of(history):
            if edge not in seen:
                seen.add(edge)
                yield edge


def _edges_of(history: GraphHistory) -> Iterator[Edge]:
    for place in range(len(history.kept) + 1):
        nodes = history.nodes_at(place)
        ids = [history.id_of(place, length).hex() for length in range(len(nodes) + 1)]
        for index, node in enumerate(nodes):
            yield Edge(SEQUENTIAL, ids[index], ids[index + 1])
            chat = node.chat
            if chat is not None:
                inner = chat.history
                yield Edge(SUBAGENT_CALL, ids[index], inner.id_of(len(inner.kept), min(1, len(inner.nodes))).hex())
                yield Edge(SUBAGENT_RETURN, inner.id_of(len(inner.kept), len(inner.nodes)).hex(), ids[index + 1])
    for head, successor, kind in history.edges:
        ends = [(place, len(history.nodes_at(place))) for place in map(history.place_of, (head, successor))]
        yield Edge(kind, *(history.id_of(place, length).hex() for place, length in ends))


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify` found. Truthy when nothing is wrong. Erased content is not a fault; it is listed in `redacted`."""

    messages: int
    responses: int
    redacted: tuple[str, ...]
    """Ids of the responses whose message or context was erased."""
    problems: tuple[str, ...]
    root: str = ""
    """The root of the whole graph, in hexadecimal (`root.py`)."""
    is_sealed: bool = True
    """False if the graph was read from a document without a root, as Hermes once wrote them: then ids show that each response is as it
    was sampled, and nothing shows that annotations, edges or responses were not changed or removed."""

    @property
    def status(self) -> str:
        """`ok`, `redacted` or `broken`."""
        return "broken" if self.problems else "redacted" if self.redacted else "ok"

    def __bool__(self) -> bool:
        return not self.problems


def verify(top: GraphHistory) -> Report:
    """Compute every id again from the content and compare it with the id that was recorded or loaded."""
    problems: list[str] = []
    redacted: list[str] = []
    messages = count = 0
    for number, history in enumerate(histories(top)):
        where = "" if number == 0 else f"attached chat {number}: "
        history.forget_ids(-1)
        history.forget_reading()
        if history.broken_root is not None:
            problems.append(f"{where}{_broken_root(history.broken_root)}")
        for node in history.all_nodes():
            messages += 1
            if not node.redacted and node.digest != digest(canonical_message(node)):
                problems.append(f"{where}a message was altered after it was recorded: {node.get('role')}")
            chat = node.chat
            if chat is not None and node[METADATA].get("length") != len(chat):
                problems.append(f"{where}metadata.length is not the length of the attached chat")
        names: set[str] = set()
        prompts = PromptDigests()
        for at, sample in _by_place(history):
            count += 1
            if sample.sample_id in names:
                problems.append(f"{where}sample id {sample.sample_id} is used twice")
            names.add(sample.sample_id)
            known = sample.sealed or history.seal(sample)
            call = sample.call.compute_digest(prompts) if sample.call is not None else None
            if history.response_id(sample, call) != known or (sample.call is not None and sample.call.digest != call):
                problems.append(f"{where}{_name(sample, known)}: {ALTERED}")
            response = Response(history, at, top)
            if response.redacted:
                redacted.append(known)
            elif sample.call is not None and sample.call.redacted:
                problems.append(f"{where}{_name(sample, known)}: {INCOMPLETE}")
        problems += [f"{where}annotation for an unknown response {known[:12]}" for known in _unknown_annotations(history)]
    return Report(messages, count, tuple(redacted), tuple(problems), root_of(top), not top.is_rootless)


def find_alteration(top: GraphHistory) -> str | None:
    """Return the first problem that `verify` reports of a graph that was just read from a document, or None.

    Reading computed every digest from what it read, so they are used here: no content is hashed a second time."""
    for number, history in enumerate(histories(top)):
        where = "" if number == 0 else f"attached chat {number}: "
        if history.broken_root is not None:
            return f"{where}{_broken_root(history.broken_root)}"
        for at, sample in _by_place(history):
            known = history.seal(sample)
            if sample.is_recorded and history.response_id(sample) != known:
                return f"{where}{_name(sample, known)}: {ALTERED}"
            if sample.call is not None and sample.call.redacted and not Response(history, at, top).redacted:
                return f"{where}{_name(sample, known)}: {INCOMPLETE}"
        for known in _unknown_annotations(history):
            return f"{where}annotation for an unknown response {known[:12]}"
    return None


def _by_place(history: GraphHistory) -> list[tuple[int, Sample]]:
    """Return the samples with their numbers in the order of versions: neighbours share most of their ids, so few are computed."""
    numbered = list(enumerate(history.settle()))
    return sorted(numbered, key=lambda pair: history.place_of(pair[1].head)) if history.kept else numbered


def _broken_root(root: str) -> str:
    return f"altered after it was saved: its root is not {root[:12]}, as the document said"


def _name(sample: Sample, known: str) -> str:
    return f"response {known[:12]} (sample {sample.sample_id})"


def _unknown_annotations(history: GraphHistory) -> list[str]:
    return sorted(history.annotations.keys() - {response.id for response in responses(history)}) if history.annotations else []
