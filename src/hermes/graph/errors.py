"""The errors of the message graph, as a tree. A class docstring is its default message.

GraphError
├── MessageError          a message was refused; the graph is unchanged     (also a ValueError)
│   └── CycleError        a chat would contain itself
├── CallError             a call record was refused                         (also a ValueError)
├── FrozenError           a value inside a graph was changed in place       (also a TypeError)
├── StaleItemError        an item outlived its slot
├── SampleConflict        a sample id came back with other content          (also a ValueError)
├── UnknownResponse       no response with that id                          (also a LookupError)
├── ForeignTurn           a turn of another conversation                    (also a ValueError)
└── CodecError            a document is not a message graph                 (also a ValueError)
"""

from __future__ import annotations


class GraphError(Exception):
    """The message graph refused an operation."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class PathError(GraphError, ValueError):
    """A value was refused; `path` says where it sits and `reason` what is wrong with it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type[PathError], tuple[str, str]]:
        return type(self), (self.path, self.reason)


class MessageError(PathError):
    """A message was refused; the graph is unchanged."""


class CycleError(MessageError):
    """A chat cannot be attached to a message of itself."""


class CallError(PathError):
    """A call record was refused."""


class CodecError(PathError):
    """The document is not a message graph that this version can read."""


class FrozenError(GraphError, TypeError):
    """A value inside a message graph cannot be changed in place.

    Assign the whole field instead: graph[i]["content"] = new_value. copy.deepcopy(value) gives a plain copy to work on."""


class StaleItemError(GraphError):
    """This message was deleted from its graph or replaced there; read it again: graph[i]."""


class SampleConflict(GraphError, ValueError):
    """This sample id is already recorded with another context, message or call."""


class UnknownResponse(GraphError, LookupError):
    """No response of this graph has that id."""


class ForeignTurn(GraphError, ValueError):
    """This turn was prepared in another conversation; prepare it in the graph that commits it."""
