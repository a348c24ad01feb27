"""The sets of schemas that go with calls: few, always the same, and each made once, so that what is computed from it is computed once.

Knows nothing about tools, and not which of them go with a message."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.graph.call import freeze_tools

MAX_SETS = 64
"""Sets that are kept. The gate has a few; a server's tools, which come and go, make new ones."""

Schemas = Sequence[Mapping[str, Any]]


class SchemaSets:
    """Makes each set of schemas once. A set is known by its very schemas, not by what is in them."""

    def __init__(self) -> None:
        self._sets: OrderedDict[tuple[int, ...], tuple[Schemas, Schemas]] = OrderedDict()
        """By the ids of its schemas, which each entry keeps alive; the one that was asked for longest ago comes first."""

    def of(self, schemas: Schemas) -> Schemas:
        """Return the set of these schemas, in this order."""
        key = tuple(map(id, schemas))
        known = self._sets.pop(key, None) or (tuple(schemas), freeze_tools(schemas, "tools") or ())
        self._sets[key] = known
        if len(self._sets) > MAX_SETS:
            self._sets.popitem(last=False)
        return known[1]
