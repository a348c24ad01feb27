"""Recording what a model said: on the list if the list still is what was sent, else on a branch; each sample id once.

Knows nothing about list faces or JSON. Callers hold the history's lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hermes.graph.call import CallRecord
from hermes.graph.context import Overlay
from hermes.graph.edit import branch, extend
from hermes.graph.errors import ForeignTurn, MessageError, SampleConflict
from hermes.graph.history import PLAIN, History, Sample, new_sample_id
from hermes.graph.node import Node, Tombstone, common_prefix
from hermes.graph.response import Response, Turn


def commit(history: History, turn: Turn, node: Node, call: CallRecord | None, *, adopt: bool) -> Response:
    """Record the response to a prepared turn; the list grows only if it still equals what was sent.

    With `adopt` a response that came too late is also appended to the list, as an authored copy."""
    if turn.seed != history.seed:
        raise ForeignTurn
    call, overlay = agree(call, turn.overlay)
    context = _without_erased(turn.nodes, history.erased)
    known = _known(history, call, overlay, node, context)
    if known is not None:
        return known
    if len(context) == len(history.nodes) and common_prefix(context, history.nodes) == len(context):
        extend(history, [node])
        head, index = history.live, len(context)
    else:
        head, index = branch(history, context, node)
        if adopt:
            extend(history, [Node(node)])
    return _record(history, head, index, overlay, call)


def append_response(history: History, node: Node, call: CallRecord | None = None) -> None:
    """Record a response sampled under what the list shows now. Appending the same sample a second time changes nothing."""
    call, overlay = agree(call, PLAIN)
    if call is not None and call.sample_id:
        known = history.find(call.sample_id)
        is_last = known is not None and known.index == len(history.nodes) - 1
        context = history.nodes[:-1] if is_last else history.nodes
        if _known(history, call, overlay, node, context) is not None:
            return
    extend(history, [node])
    _record(history, history.live, len(history.nodes) - 1, overlay, call)


def agree(call: CallRecord | None, overlay: Overlay) -> tuple[CallRecord | None, Overlay]:
    """Make the call and the overlay say the same about tools and template: what one knows, the other takes over."""
    if call is None:
        return None, overlay
    for name in ("tools", "template_id"):
        said, pinned = getattr(call, name), getattr(overlay, name)
        if said is not None and pinned is not None and said != pinned:
            raise MessageError(f"call.{name}", "differs from what the turn was prepared with")
        if said is None and pinned is not None:
            call = replace(call, **{name: pinned})
        if said is not None and pinned is None:
            overlay = replace(overlay, **{name: said})
    return call, overlay


def _record(history: History, head: int, index: int, overlay: Overlay, call: CallRecord | None) -> Response:
    if call is not None:
        call.seal()
    name = call.sample_id if call is not None and call.sample_id else new_sample_id()
    sample = Sample(head, index, name, overlay, call)
    history.add_sample(sample)
    return Response(history, sample, history)


def _known(history: History, call: CallRecord | None, overlay: Overlay, node: Node, context: Sequence[Node]) -> Response | None:
    """Return the response that this sample id already names, if any; raise SampleConflict if it is another one."""
    sample = history.find(call.sample_id) if call is not None and call.sample_id else None
    if sample is None:
        return None
    nodes = history.nodes_of(sample.head)
    is_same = (
        sample.index == len(context)
        and sample.overlay == overlay
        and sample.call == call
        and common_prefix(nodes, [*context, node]) > sample.index
    )
    if not is_same:
        raise SampleConflict(f"sample id {sample.sample_id!r} is already recorded with another context, message or call")
    return Response(history, sample, history)


def _without_erased(nodes: Sequence[Node], erased: set[bytes]) -> Sequence[Node]:
    """A turn may have been prepared before some of its messages were erased: do not bring them back."""
    if not erased:
        return nodes
    return [Tombstone.of(node["role"], node.digest, node.chat) if node.digest in erased else node for node in nodes]
