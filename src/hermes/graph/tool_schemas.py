"""Tool schemas that are sent with many calls. They are most of an ordinary request, and every reader of a call writes, counts or hashes
them: so what a reader computes from them is computed once.

Knows nothing about what its readers compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from hermes.graph.message import FrozenDict, FrozenList

T = TypeVar("T")


class ToolSchemas(FrozenList):
    """A frozen list of frozen schemas, with what was computed from it. Made once for a set of tools, and passed on with each call."""

    __slots__ = ("_known",)

    def __init__(self, schemas: Iterable[FrozenDict | None] = ()) -> None:
        super().__init__(schemas)
        self._known: dict[Callable[[Any], Any], Any] = {}


def once(tools: Sequence[Any], compute: Callable[[Any], T]) -> T:
    """Return `compute(tools)`. For ToolSchemas it is computed once: `compute` is a function of a module, and has no other input."""
    if not isinstance(tools, ToolSchemas):
        return compute(tools)
    known = tools._known
    if compute not in known:
        known[compute] = compute(tools)
    found: T = known[compute]
    return found
