"""The items of one graph: one `Message` for each slot that somebody holds, found again wherever the slot went.

Items are remembered weakly, by the node in their slot: who holds an item keeps it alive, nobody else does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakValueDictionary

from hermes.graph import edit
from hermes.graph.errors import StaleItemError
from hermes.graph.history import History
from hermes.graph.node import Node
from hermes.graph.view import Message


class Items:
    """Hands out items and writes them through. Callers hold the history's lock."""

    __slots__ = ("_freeze", "_held", "_history")

    def __init__(self, history: History, freeze: Callable[[Any, str], Node]) -> None:
        self._history = history
        self._freeze = freeze
        self._held: WeakValueDictionary[int, Message] = WeakValueDictionary()

    def item(self, index: int) -> Message:
        """Return the one item of a slot: all who hold it see each other's writes."""
        node = self._history.nodes[index]
        item = self._held.get(id(node))
        return item if item is not None else self._bind(Message(node), node, index)

    def editing(self) -> AbstractContextManager[Any]:
        """Hold the graph still between reading an item's fields and writing them."""
        return self._history.lock

    def write(self, item: Message, fields: dict[str, Any]) -> None:
        """Replace the fields of an item: an edit of the graph at the item's slot."""
        index = self._index_of(item)
        node = self._freeze(fields, f"messages[{index}]")
        edit.rewrite(self._history, index, index + 1, [node])
        if self._history.nodes[index] is node:
            del self._held[id(item._node)]
            self._bind(item, node, index)

    def is_sampled(self, item: Message) -> bool:
        with self._history.lock:
            return self._index_of(item) in self._history.samples_on(len(self._history.kept))

    def follow(self, before: list[Node]) -> None:
        """Nodes were exchanged in place, slot for slot: let the items show the new ones."""
        for index, (old, new) in enumerate(zip(before, self._history.nodes, strict=True)):
            item = self._held.pop(id(old), None) if old is not new else None
            if item is not None:
                self._bind(item, new, index)

    def _bind(self, item: Message, node: Node, index: int) -> Message:
        item._show(node)
        item._owner, item._node, item._hint = self, node, index
        self._held[id(node)] = item
        return item

    def _index_of(self, item: Message) -> int:
        """Find an item's slot, looking outwards from where it was last; raise StaleItemError if the slot is gone."""
        nodes, node, hint = self._history.nodes, item._node, item._hint
        for distance in range(max(hint + 1, len(nodes) - hint)):
            for index in (hint - distance, hint + distance):
                if 0 <= index < len(nodes) and nodes[index] is node:
                    item._hint = index
                    return index
        raise StaleItemError
