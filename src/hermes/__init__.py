"""Hermes routes messages, remembers exactly what every model saw, and hands you on-policy training data from it.

The map, in the order a message travels:

    graph          I    the message graph: edited like a list, never forgets what a model saw    (standard library only)
    trajectories   II   training data out of graphs, with a ledger that proves it                (needs the extra `export`)
    picture, demo, cli  thin faces

Importing this package does nothing but define names: no file, network or environment is touched."""

from hermes.graph import (
    CallError,
    CallRecord,
    CodecError,
    CycleError,
    Edge,
    ForeignTurn,
    FrozenError,
    GraphError,
    Message,
    MessageError,
    MessageGraph,
    Overlay,
    PolicySpan,
    Report,
    Response,
    SampleConflict,
    StaleItemError,
    Turn,
    UnknownResponse,
    Version,
)

__version__ = "0.1.0"

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
