"""The kinds of values that a setting can have, in words and in numbers. value_reader.py reads them from TOML and from variables.

A kind only accepts or refuses a value: load.py knows which setting it is for, and whether a fault may show the value. pydantic would read
them too, but to load it takes as long as the whole work of a short command."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, NoReturn, Self, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")

INTEGER_LIMIT = 2**63
"""TOML guarantees whole numbers of 64 bits with a sign, and so do the stores behind most settings."""

HIDDEN = "***"
"""Shown instead of a secret."""


class Secret:
    """A text that only `reveal()` returns: no log line, traceback, error message or dump shows it by accident.

    Not a dataclass: dataclasses.asdict would open it. Pickling and copying raise TypeError, and JSON does not know it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself. Call it where the text is used, and pass the Secret everywhere else."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __eq__(self, other: object) -> bool:
        """Takes the same time wherever two texts of one length differ, so that the time does not tell an attacker how much was right."""
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._as_bytes(), other._as_bytes())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is neither pickled nor copied; pass the Secret itself, or reveal() it where it is used")

    def _as_bytes(self) -> bytes:
        # A variable may hold bytes that are no text; Python keeps those as lone surrogates.
        return self._text.encode("utf-8", "surrogatepass")


class NamedTables(Mapping[str, T]):
    """Tables whose names the operator chooses, `[models.claude-haiku]`, in the order of the file. Immutable, so it can be a default and a
    key."""

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


class Choice(StrEnum):
    """One of a few words, in upper or lower case."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return next((choice for choice in cls if isinstance(value, str) and choice.value == value.lower()), None)


@dataclass(frozen=True, slots=True)
class ValueKind:
    """The values of a kind in words that can follow "expected", and what a type alone does not say of them."""

    words: str
    is_secret: bool = False
    """Whether a fault must not show a value of this kind."""
    prepare: Callable[[object], object] | None = None
    """Returns what the value stands for, before it is read."""
    check: Callable[[Any], object] | None = None
    """Returns the value that was read, as it is kept. Raises ValueError to refuse it."""


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The numbers of a kind: from `minimum`, or only above it, to `maximum`; without one, below what 64 bits hold."""

    minimum: int
    maximum: int | None = None
    is_above: bool = False

    def allows(self, number: float) -> bool:
        """Of infinity and of what is not a number too it says no."""
        is_high = number > self.minimum if self.is_above else number >= self.minimum
        return is_high and (number < INTEGER_LIMIT if self.maximum is None else number <= self.maximum)


def require_text(value: object) -> str:
    """Empty text is refused: with an empty host, for instance, the server would listen on every address of the machine."""
    if not isinstance(value, str) or not value:
        raise ValueError("not a text")
    return value


def expand_path(text: str, folder: Path) -> Path:
    """Return a path that counts from a folder; `~` and `~user` stand for home folders. Raises ValueError for a path that cannot exist."""
    if "\0" in text:
        raise ValueError("a zero byte in a path")
    try:
        return folder / Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError("no such user") from error


def check_address(text: str) -> str:
    parts = urlsplit(text)
    is_plain = parts.username is None and not parts.query and not parts.fragment and text.isprintable() and " " not in text
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain or parts.port == 0:
        raise ValueError("not a plain address")
    return text


def check_network(text: str) -> str:
    ip_network(text, strict=False)
    return text


def check_host_name(text: str) -> str:
    name = text.removeprefix("*.")  # all names below one
    if not name or any(char in "/:@*, " or not char.isprintable() for char in name):
        raise ValueError("not a host's name")
    return text.lower()


def list_command(value: object) -> object:
    """Return the list that a single program without arguments stands for. No shell reads a command, so it needs no quotes. An empty text
    stays what it is: the fault is about the command, and not about an item of a list that the operator did not write."""
    return [value] if isinstance(value, str) and value else value


def check_command(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words or any("\0" in word for word in words):
        raise ValueError("no program, or a zero byte in a command")
    return words


Count = Annotated[int, NumberRange(1)]
CountOrZero = Annotated[int, NumberRange(0)]
WholeSeconds = Count
Port = Annotated[int, NumberRange(0, 65_535)]
Percent = Annotated[int, NumberRange(1, 99)]
MessagesPerMinute = Annotated[int, NumberRange(1, 99)]
Seconds = Annotated[float, NumberRange(0, is_above=True)]
SecondsOrZero = Annotated[float, NumberRange(0)]
Usd = SecondsOrZero
Flag = Annotated[bool, ValueKind("true or false")]
Day = Annotated[date, ValueKind("a date such as 2026-11-15, without quotes")]
LocalPath = Annotated[Path, ValueKind("a path")]
# Secret, because it may hold a password, which does not belong there.
Address = Annotated[
    str, ValueKind("an address such as http://host:8000/v1, without a password or a query", is_secret=True, check=check_address)
]
Network = Annotated[str, ValueKind("an IP address or a network such as 10.0.0.0/24", check=check_network)]
HostName = Annotated[str, ValueKind("a host's name such as hermes.internal or *.cluster.local, without a port", check=check_host_name)]
Command = Annotated[
    tuple[str, ...], ValueKind("a program, or a list of a program and its arguments", prepare=list_command, check=check_command)
]
