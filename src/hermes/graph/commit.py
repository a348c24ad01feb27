"""Record a model's response: on the list if the list is still what was sent, else on a branch; each sample id once.

Knows nothing about list operations or JSON. The caller holds the history's lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hermes.graph.call import CallRecord
from hermes.graph.context import Overlay
from hermes.graph.edit import branch, extend
from hermes.graph.errors import CallError, ForeignTurn, MessageError, SampleConflict
from hermes.graph.history import EMPTY_OVERLAY, GraphHistory, Sample, new_sample_id
from hermes.graph.node import Node, common_prefix
from hermes.graph.redact import erase_call, without_erased
from hermes.graph.response import Response, Turn


def commit(history: GraphHistory, turn: Turn, node: Node, call: CallRecord | None, *, adopt: bool) -> Response:
    """Record the response to a prepared turn; the list is extended only if it still equals what was sent.

    With `adopt` a response that came too late is also appended to the list, as an authored copy."""
    if turn.seed != history.seed:
        raise ForeignTurn
    call, overlay = agree(call, turn.overlay)
    context = without_erased(history, turn.nodes)
    known = _find_recorded(history, call, overlay, node, context)
    if known is not None:
        return Response(history, known, history)
    if len(context) == len(history.nodes) and common_prefix(context, history.nodes) == len(context):
        extend(history, [node])
        head, index = history.live, len(context)
    else:
        head, index = branch(history, context, node)
        if adopt:
            extend(history, [Node(node)])
    return Response(history, _record(history, head, index, overlay, call), history)


def append_response(history: GraphHistory, node: Node, call: CallRecord | None = None) -> None:
    """Append a response that was sampled with the current list as its context, and record it.

    A sample that is already the list's last message is not appended again; one that was removed from the list is appended as a copy."""
    call, overlay = agree(call, EMPTY_OVERLAY)
    known = history.find(call.sample_id) if call is not None and call.sample_id else None
    if known is None:
        extend(history, [node])
        _record(history, history.live, len(history.nodes) - 1, overlay, call)
        return
    is_last = history.settle()[known].index == len(history.nodes) - 1
    _find_recorded(history, call, overlay, node, history.nodes[:-1] if is_last else history.nodes)
    if not is_last:
        extend(history, [node])


def agree(call: CallRecord | None, overlay: Overlay) -> tuple[CallRecord | None, Overlay]:
    """Return the call and the overlay with equal tools and template: a value that only one of them has is copied to the other."""
    if call is None:
        return None, overlay
    if not isinstance(call, CallRecord):
        raise CallError("call", f"expected a CallRecord, got {type(call).__name__}")
    for name in ("tools", "template_id"):
        recorded, pinned = getattr(call, name), getattr(overlay, name)
        if recorded is not None and pinned is not None and recorded != pinned:
            raise MessageError(f"call.{name}", "differs from what the turn was prepared with")
        if recorded is None and pinned is not None:
            call = replace(call, **{name: pinned})
        if recorded is not None and pinned is None:
            overlay = replace(overlay, **{name: recorded})
    return call, overlay


def _record(history: GraphHistory, head: int, index: int, overlay: Overlay, call: CallRecord | None) -> int:
    if call is not None:
        call.seal(history.prompt_digests)
        call = erase_call(call, history.nodes_of(head), index)
    name = call.sample_id if call is not None and call.sample_id else new_sample_id()
    return history.add_sample(Sample(head, index, name, overlay, call))


def _find_recorded(history: GraphHistory, call: CallRecord | None, overlay: Overlay, node: Node, context: Sequence[Node]) -> int | None:
    """Return the place of the sample with this sample id, None if there is none; raise SampleConflict if its content differs."""
    known = history.find(call.sample_id) if call is not None and call.sample_id else None
    if known is None:
        return None
    sample = history.settle()[known]
    is_same = (
        sample.index == len(context)
        and sample.overlay == overlay
        and sample.call == call
        and common_prefix(history.nodes_of(sample.head), [*context, node]) > sample.index
    )
    if not is_same:
        raise SampleConflict(f"sample id {sample.sample_id!r} is already recorded with another context, message or call")
    return known
