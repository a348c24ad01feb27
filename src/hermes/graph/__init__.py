"""The message graph: a chat history that is edited like a list and keeps what every model saw. Standard library only.

Read it in this order: errors, message (shapes, canonical form), tool_schemas, token_arrays, call, context (what is sent), node (ids),
delta (versions as differences), version_tree (how far versions agree), history (the state), edit (the rule), redact, response, view,
items, commit, root (one hash over all of it), traversal, prompt_deltas and shared_parts (each token and message once), linear_document
(the commonest graph), codec, mermaid, graph (the public class), stored_graph (for stores)."""

from hermes.graph.call import CallRecord, PolicySpan
from hermes.graph.context import Overlay
from hermes.graph.errors import (
    CallError,
    CodecError,
    CycleError,
    ForeignTurn,
    FrozenError,
    GraphError,
    MessageError,
    SampleConflict,
    StaleItemError,
    UnknownResponse,
)
from hermes.graph.graph import MessageGraph
from hermes.graph.response import Response, Turn
from hermes.graph.traversal import Edge, Report
from hermes.graph.view import Message, Version

__all__ = [
    "CallError",
    "CallRecord",
    "CodecError",
    "CycleError",
    "Edge",
    "ForeignTurn",
    "FrozenError",
    "GraphError",
    "Message",
    "MessageError",
    "MessageGraph",
    "Overlay",
    "PolicySpan",
    "Report",
    "Response",
    "SampleConflict",
    "StaleItemError",
    "Turn",
    "UnknownResponse",
    "Version",
]
