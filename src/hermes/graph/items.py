"""The items of one graph: one `Message` for each slot that a caller holds, found again wherever inserts and deletes moved the slot.

Items are kept by weak reference, by the node in their slot: an item lives only as long as a caller holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from hermes.graph.edit import rewrite
from hermes.graph.errors import StaleItemError
from hermes.graph.history import GraphHistory
from hermes.graph.node import Node
from hermes.graph.view import Message

T = TypeVar("T")


class GraphItems:
    """Returns items and writes their changes into the graph. The caller of `item` and `follow` holds the history's lock."""

    __slots__ = ("_freeze", "_held", "_history")

    def __init__(self, history: GraphHistory, freeze: Callable[[Any, str], Node]) -> None:
        self._history = history
        self._freeze = freeze
        self._held: WeakValueDictionary[int, Message] = WeakValueDictionary()

    def item(self, index: int) -> Message:
        """Return the one item of a slot: all callers that hold it see each other's writes."""
        node = self._history.nodes[index]
        item = self._held.get(id(node))
        return item if item is not None else self._bind(Message(node), node, index)

    def change(self, item: Message, change: Callable[[dict[str, Any]], T]) -> T:
        """Apply `change` to an item's fields: one edit of the graph at the item's slot, whole or not at all.

        The new fields are frozen without the lock, because freezing may read another graph that is being attached; if another
        thread wrote the slot meanwhile, the change is applied again."""
        while True:
            with self._history.lock:
                node, index = item._node, self._index_of(item)
            fields = dict(node)
            result = change(fields)
            new = self._freeze(fields, f"messages[{index}]")
            with self._history.lock:
                if item._node is not node:
                    continue
                index = self._index_of(item)
                rewrite(self._history, index, index + 1, [new])
                if self._history.nodes[index] is new:
                    del self._held[id(node)]
                    self._bind(item, new, index)
                return result

    def is_sampled(self, item: Message) -> bool:
        with self._history.lock:
            return self._index_of(item) in self._history.slots()

    def follow(self, before: list[Node]) -> None:
        """Let the items show the new nodes, after nodes were replaced slot by slot."""
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
        """Return the index of an item's slot, searching outwards from its last place; raise StaleItemError if the slot is gone."""
        nodes, node, hint = self._history.nodes, item._node, item._hint
        for distance in range(max(hint + 1, len(nodes) - hint)):
            for index in (hint - distance, hint + distance):
                if 0 <= index < len(nodes) and nodes[index] is node:
                    item._hint = index
                    return index
        raise StaleItemError
