"""Tables whose names the operator chooses: `[models.claude-haiku]`, `[tiers.free]`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class NamedTables(Mapping[str, T]):
    """Tables by name, in the order of the file. Immutable, so it can be a default and a key."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, T] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, name: str) -> T:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"NamedTables({self._values})"
