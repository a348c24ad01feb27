"""Classes of values that nobody changes, and of which each call makes a dozen.

    @value(frozen=True, slots=True)
    class Answer: ...

For the type checker `value` is `dataclass`, and refuses to change a field. At run time nothing refuses it: a frozen dataclass takes three
times as long to make, and the values of one call have over two hundred fields. Equality, hash and `replace` are those of a frozen one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    T = TypeVar("T")

    def value(*, frozen: bool, slots: bool = False, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
        """Make a class a dataclass whose fields nobody changes. There are no others here: `frozen` says so to the reader."""
        if not frozen:
            raise TypeError("a value is frozen; use dataclass for what changes")
        return dataclass(slots=slots, kw_only=kw_only, unsafe_hash=True)


__all__ = ["value"]
