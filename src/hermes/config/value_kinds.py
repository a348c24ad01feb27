"""The kinds of values that a setting can have: their names, and how they are read from TOML and from a variable.

A kind only accepts or refuses a value. The caller knows which setting it is for, and whether a fault may show the value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import urlsplit

from hermes.config.secret import Secret

INTEGER_LIMIT = 2**63
"""TOML guarantees whole numbers of 64 bits with a sign, and so do the stores behind most settings."""

FLAGS: Mapping[str, bool] = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
"""The words for true and false in a variable, in upper or lower case."""


class WrongKind(ValueError):
    """The value is not of this kind."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers that a setting takes: `port: Annotated[int, Bounds(at_least=0, at_most=65_535)] = 8080`."""

    at_least: int | None = None
    above: int | None = None
    at_most: int | None = None

    def hold(self, number: float) -> bool:
        return (
            (self.at_least is None or number >= self.at_least)
            and (self.above is None or number > self.above)
            and (self.at_most is None or number <= self.at_most)
        )

    @property
    def words(self) -> str:
        if self.at_least is not None and self.at_most is not None:
            return f" from {self.at_least} to {self.at_most}"
        ends = {"of at least": self.at_least, "above": self.above, "of at most": self.at_most}
        return " and".join(f" {end} {number}" for end, number in ends.items() if number is not None)


Count = Annotated[int, Bounds(at_least=1)]
CountOrZero = Annotated[int, Bounds(at_least=0)]
WholeSeconds = Annotated[int, Bounds(at_least=1)]
Seconds = Annotated[float, Bounds(above=0)]
SecondsOrZero = Annotated[float, Bounds(at_least=0)]
Port = Annotated[int, Bounds(at_least=0, at_most=65_535)]
Usd = Annotated[float, Bounds(at_least=0)]


class Address(str):
    """The address of a server over HTTP, with neither a password nor a query in it."""

    __slots__ = ()


class Command(tuple[str, ...]):
    """A program and its arguments."""

    __slots__ = ()


def without_none(hint: Any) -> Any:
    """Return the annotation of an optional value without its None, which cannot be written in a file."""
    if get_origin(hint) in (Union, UnionType):
        [hint] = (part for part in get_args(hint) if part is not NoneType)
    return hint


def kind_of(hint: Any) -> ValueKind:
    """Return the kind of an annotation: `int`, `Annotated[float, Bounds(above=0)]`, `tuple[Secret, ...]`, `Path | None`."""
    hint = without_none(hint)
    if get_origin(hint) is Annotated:
        number, bounds = get_args(hint)
        return NumberKind(number, bounds)
    if get_origin(hint) is tuple:
        return ListKind(kind_of(get_args(hint)[0]))
    if issubclass(hint, StrEnum):
        return ChoiceKind(hint)
    plain: dict[type, ValueKind] = {
        bool: FlagKind(),
        int: NumberKind(int),
        float: NumberKind(float),
        str: TextKind(),
        date: DateKind(),
        Path: PathKind(),
        Address: AddressKind(),
        Command: CommandKind(),
        Secret: SecretKind(),
    }
    return plain[hint]


class ValueKind(ABC):
    """One kind of value. Both readers raise WrongKind for a value that is not of it."""

    @property
    def is_secret(self) -> bool:
        """Whether a fault must not show the value."""
        return False

    @property
    @abstractmethod
    def words(self) -> str:
        """The values of this kind, in words that can follow "expected"."""

    @property
    def words_in_a_file(self) -> str:
        """The same, for values that only a file can hold."""
        return self.words

    @abstractmethod
    def from_toml(self, value: object) -> object:
        """Read a value of TOML."""

    def from_text(self, text: str) -> object:
        """Read the text of a variable: without white space around it, and not empty."""
        return self.from_toml(text)


class FlagKind(ValueKind):
    """True or false."""

    words = "true or false"

    def from_toml(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise WrongKind
        return value

    def from_text(self, text: str) -> bool:
        if text.lower() not in FLAGS:
            raise WrongKind
        return FLAGS[text.lower()]


@dataclass(frozen=True)
class NumberKind(ValueKind):
    """A whole number, or any finite number. A whole number is also accepted where any number is expected, but not the other way round."""

    type: type[int | float]
    bounds: Bounds = Bounds()

    @property
    def words(self) -> str:
        return ("a whole number" if self.type is int else "a number") + self.bounds.words

    def from_toml(self, value: object) -> float:
        # To Python true is 1; to the operator who wrote it in a file it is not.
        if isinstance(value, bool) or not isinstance(value, int | self.type):
            raise WrongKind
        # Infinity and NaN are outside of these limits.
        if not -INTEGER_LIMIT <= value < INTEGER_LIMIT or not self.bounds.hold(value):
            raise WrongKind
        return self.type(value)

    def from_text(self, text: str) -> float:
        try:
            number = self.type(text)
        except ValueError as error:
            raise WrongKind from error
        return self.from_toml(number)


class TextKind(ValueKind):
    """Text that is not empty: with an empty host, for instance, the server would listen on every address of the machine."""

    words = "text"

    def from_toml(self, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise WrongKind
        return value


class SecretKind(ValueKind):
    """Text that is kept as a Secret."""

    words = "secret text"
    is_secret = True

    def from_toml(self, value: object) -> Secret:
        return Secret(TextKind().from_toml(value))


class DateKind(ValueKind):
    """A day of the calendar, as TOML writes it: without quotes."""

    words = "a date such as 2026-11-15, without quotes"

    def from_toml(self, value: object) -> date:
        if not isinstance(value, date) or isinstance(value, datetime):
            raise WrongKind
        return value


class AddressKind(ValueKind):
    """The address of a server. A fault does not show the value: it may hold a password, which does not belong there."""

    words = "an address such as http://host:8000/v1, without a password or a query"
    is_secret = True

    def from_toml(self, value: object) -> Address:
        text = TextKind().from_toml(value)
        try:
            parts = urlsplit(text)
            is_port_valid = parts.port is None or parts.port > 0
        except ValueError as error:  # a port that is no number, half an IPv6 address
            raise WrongKind from error
        is_plain = parts.username is None and not parts.query and not parts.fragment and text.isprintable() and " " not in text
        if parts.scheme not in ("http", "https") or not parts.hostname or not is_port_valid or not is_plain:
            raise WrongKind
        return Address(text)


class CommandKind(ValueKind):
    """A program with its arguments as a list, or a program without arguments as a text. No shell reads it, so it needs no quotes."""

    words = "a program, or a list of a program and its arguments"

    def from_toml(self, value: object) -> Command:
        words = [TextKind().from_toml(word) for word in value] if isinstance(value, list) else [TextKind().from_toml(value)]
        if not words or any("\0" in word for word in words):
            raise WrongKind
        return Command(words)


class PathKind(ValueKind):
    """A path, relative or not; `~` and `~user` stand for home folders."""

    words = "a path"

    def from_toml(self, value: object) -> Path:
        text = TextKind().from_toml(value)
        if "\0" in text:
            raise WrongKind
        try:
            return Path(text).expanduser()
        except RuntimeError as error:  # no such user
            raise WrongKind from error


@dataclass(frozen=True)
class ChoiceKind(ValueKind):
    """One of a few words, in upper or lower case."""

    choices: type[StrEnum]

    @property
    def words(self) -> str:
        *others, last = self.choices
        return f"{', '.join(others)} or {last}"

    def from_toml(self, value: object) -> StrEnum:
        try:
            return self.choices(TextKind().from_toml(value).lower())
        except ValueError as error:
            raise WrongKind from error


@dataclass(frozen=True)
class ListKind(ValueKind):
    """A list of values of one kind. In a variable they are separated by commas, and an empty item is ignored."""

    item: ValueKind

    @property
    def is_secret(self) -> bool:
        return self.item.is_secret

    @property
    def words(self) -> str:
        return f"{self.words_in_a_file} (in a variable: separated by commas)"

    @property
    def words_in_a_file(self) -> str:
        return f"a list of {self.item.words}"

    def from_toml(self, value: object) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise WrongKind
        return tuple(self.item.from_toml(item) for item in value)

    def from_text(self, text: str) -> tuple[object, ...]:
        return tuple(self.item.from_text(part) for item in text.split(",") if (part := item.strip()))
