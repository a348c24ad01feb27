"""What a caller reads from a graph: items that write through to their slot, and versions that are read-only.

Knows the graph only as an `ItemOwner`, which can replace the fields of an item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar, overload

from hermes.graph.errors import MessageError
from hermes.graph.history import GraphHistory
from hermes.graph.message import METADATA, freeze_items, thaw
from hermes.graph.node import Node, extend_ids, is_same_content, root_id

T = TypeVar("T")


class ItemOwner(Protocol):
    """The keeper of an item's slot."""

    def change(self, item: Message, change: Callable[[dict[str, Any]], T]) -> T: ...
    def is_sampled(self, item: Message) -> bool: ...


class Message(dict[str, Any]):
    """One message of a graph: a dict with real storage whose writes are edits of the graph.

    It follows its slot when inserts and deletes move it, and into the version that an edit elsewhere starts. Once its slot is
    deleted or replaced, writing raises StaleItemError; reading still shows its last fields. Nested values are frozen. A message
    without a graph (popped, copied or made by hand) is a plain dict, but appending it to a graph writes an authored message."""

    __slots__ = ("__weakref__", "_hint", "_node", "_owner")

    _owner: ItemOwner
    _node: Node
    _hint: int

    @property
    def sampled(self) -> bool:
        """Whether a model sampled this message with exactly the messages before it as its context."""
        owner = self._graph()
        return owner is not None and owner.is_sampled(self)

    def _graph(self) -> ItemOwner | None:
        return getattr(self, "_owner", None)

    def _change(self, change: Callable[[dict[str, Any]], T]) -> T:
        """Apply `change` to a copy of the fields and write the result; if the graph refuses it, nothing is written."""
        owner = self._graph()
        if owner is None:
            fields = dict(self)
            result = change(fields)
            self._show(fields)
            return result
        return owner.change(self, change)

    def _show(self, fields: Mapping[str, Any]) -> None:
        # In this order, so that another thread never misses a field that is there both before and after.
        dict.update(self, fields)
        for key in [key for key in self if key not in fields]:
            dict.__delitem__(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._change(lambda fields: fields.__setitem__(key, value))

    def __delitem__(self, key: str) -> None:
        self._change(lambda fields: fields.__delitem__(key))

    def update(self, *args: Any, **kwargs: Any) -> None:
        new = dict(*args, **kwargs)
        self._change(lambda fields: fields.update(new))

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]  # dict's overloads; the meaning is the same
        self.update(other)
        return self

    def pop(self, key: str, *default: Any) -> Any:
        return self._change(lambda fields: fields.pop(key, *default))

    def popitem(self) -> tuple[str, Any]:
        return self._change(lambda fields: fields.popitem())

    def setdefault(self, key: str, default: Any = None) -> Any:
        self._change(lambda fields: fields.setdefault(key, default))
        return self.get(key)

    def clear(self) -> None:
        self._change(lambda fields: fields.clear())

    def copy(self) -> Message:
        return Message(self)

    def __copy__(self) -> Message:
        return Message(self)

    def __deepcopy__(self, _: object) -> Message:
        return Message({key: thaw(value) for key, value in self.items()})

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, ({key: thaw(value) for key, value in self.items()},)


class Version(Sequence[Node]):
    """A list of messages as it once was, or is now: read-only, and compares with lists."""

    __slots__ = ("_head", "_history", "_nodes")

    def __init__(self, history: GraphHistory, place: int) -> None:
        self._history = history
        self._head = history.live if place == len(history.kept) else history.kept[place]
        self._nodes = tuple(history.nodes_at(place))

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> list[Node]: ...
    def __getitem__(self, index: int | slice) -> Node | list[Node]:
        return list(self._nodes[index]) if isinstance(index, slice) else self._nodes[index]

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def __eq__(self, other: object) -> bool:
        return same_messages(self._nodes, other) if isinstance(other, list | Version) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equals lists, which have no hash

    @property
    def place(self) -> int:
        """The index of this version in `versions`."""
        with self._history.lock:
            return self._history.place_of(self._head)

    @property
    def previous(self) -> Version | None:
        """The version kept before this one."""
        with self._history.lock:
            return Version(self._history, self.place - 1) if self.place else None

    prev_graph = previous

    @property
    def messages(self) -> Version:
        """The founding sketch's name for the list, which is the version itself. Read-only."""
        return self

    @property
    def head(self) -> str:
        """The context id of the whole list."""
        ids = [root_id(self._history.seed)]
        extend_ids(ids, self._nodes, len(self._nodes))
        return ids[-1].hex()

    @property
    def kind(self) -> str | None:
        """The kind of the edge to its successor; None for the current list."""
        edge = self._edge()
        return edge[2] if edge is not None else None

    @property
    def successor(self) -> int | None:
        """The place of the version that this one was edited into; None for the current list."""
        edge = self._edge()
        with self._history.lock:
            return self._history.place_of(edge[1]) if edge is not None else None

    @property
    def sampled(self) -> frozenset[int]:
        """The indices of the messages that a model sampled in exactly this version's prefix."""
        with self._history.lock:
            return frozenset(self._history.slots_at(self.place))

    def _edge(self) -> tuple[int, int, str] | None:
        with self._history.lock:
            return None if self._head == self._history.live else self._history.edges[self.place]

    def __repr__(self) -> str:
        return f"Version({[dict(node) for node in self._nodes]!r})"


class Versions(Sequence[Version]):
    """All versions of a graph, oldest first, the current list last. Each is read when it is indexed."""

    __slots__ = ("_history",)

    def __init__(self, history: GraphHistory) -> None:
        self._history = history

    @overload
    def __getitem__(self, index: int) -> Version: ...
    @overload
    def __getitem__(self, index: slice) -> list[Version]: ...
    def __getitem__(self, index: int | slice) -> Version | list[Version]:
        with self._history.lock:
            places = range(len(self))[index]
            if isinstance(places, range):
                return [Version(self._history, place) for place in places]
            return Version(self._history, places)

    def __len__(self) -> int:
        return len(self._history.kept) + 1

    def __repr__(self) -> str:
        return f"Versions({[list(map(dict, version)) for version in self]!r})"


def same_messages(nodes: Sequence[Node], other: Sequence[Any]) -> bool:
    """Compare with a list of messages, by canonical form; a value that is not a message is unequal."""
    return len(nodes) == len(other) and all(map(same_message, nodes, other))


def same_message(node: Node, message: object) -> bool:
    """Whether a node and any value, a plain dict for instance, have the same content."""
    if isinstance(message, Node):
        return is_same_content(node, message)
    if not isinstance(message, Mapping):
        return False
    try:
        return node.digest == Node(freeze_items({key: value for key, value in message.items() if key != METADATA}, "message")).digest
    except MessageError:  # not JSON, so not a message
        return False
