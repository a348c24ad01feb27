"""Hermes routes messages, remembers exactly what every model saw, and hands you on-policy training data from it.

The map, in reading order: a room imports only rooms above it.

    graph          the message graph: edited like a list, keeps what every model saw (standard library only)
    trajectories   training data made from graphs, with a ledger that proves it; compression and batch runs
    event_log      a log that is loaded with its first line
    turn           what flows through the router: a message in, an answer out
    graphemes      characters as a reader counts them
    time_ids       ids that begin with the moment when they were made
    tasks          ends asyncio tasks, also where a cancellation gets lost
    http_client    sends HTTP requests: each once, and with errors that hold no secret
    ports          what Hermes needs from stores, models and platforms, as Protocols
    router         how a message is taken in, its ten steps, and how the answer leaves
    soul           what Hermes knows about a user, and how it learns it
    gateway        every model call: who may call, which backend answers, what it costs
    tools          what a model may do: registry, executor, gate, the memory's tools, images, MCP servers
    delivery       how an answer reaches its platform: tries, breaker, receipts, dead letters
    testing        for users' own tests: stores and a router in memory, a scripted model, what fake platforms share
    channels       each platform's format: WhatsApp, Telegram, Instagram; each with a strict fake of the platform
    backends       each model vendor's API, and models on this machine
    stores         the ports on PostgreSQL and Redis, and both servers as Python wheels
    packs          everything about one trade in one folder that can be removed: the concierge
    ops            logs, metrics, alerts, the event loop's heartbeat
    console        what operators see and do, behind the pages, the commands and the API
    config         settings, read once from hermes.toml and HERMES_* variables
    app            the composition root: which adapter implements which port
    web            the HTTP server: the API, webhooks, the chat page, health and metrics
    terminal       a message graph, drawn in the terminal
    cli            the command `hermes`

Importing this package loads nothing else; a name of the message graph is loaded when it is first used. No file, network or environment is
touched."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def __getattr__(name: str) -> object:
    """Load the message graph with the first of its names that is used: most commands of `hermes` use none."""
    if name in __all__:
        return getattr(import_module("hermes.graph"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
