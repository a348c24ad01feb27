"""Read values into the types that the settings declare: tables as TOML has them, and the texts of variables.

TOML has types, so there a number is not accepted as text or as true; the text of a variable is read as what it says. The reader goes
through the whole table and collects every fault with its place; faults.py puts them into words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import date
from enum import Enum, auto
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from hermes.config.declarations import is_table, without_none
from hermes.config.values import NamedTables, NumberRange, Secret, ValueKind, expand_path, require_text

T = TypeVar("T")

FLAG_WORDS = dict.fromkeys(("true", "1", "yes", "on", "t", "y"), True) | dict.fromkeys(("false", "0", "no", "off", "f", "n"), False)


class FaultKind(Enum):
    """What is wrong at a place."""

    UNKNOWN = auto()
    """No setting has this name."""
    MISSING = auto()
    """A table lacks a key that it needs."""
    WRONG = auto()
    """The value is not of its kind."""


@dataclass(frozen=True, slots=True)
class ValueFault:
    """One fault of a table: its place, and what stands there."""

    kind: FaultKind
    path: tuple[int | str, ...]
    given: object


class WrongValues(ValueError):
    """Values were refused; `faults` has all of them."""

    def __init__(self, faults: list[ValueFault]) -> None:
        super().__init__(f"{len(faults)} values are wrong")
        self.faults = faults


def read_declared(owner: type[T], table: object, folder: Path) -> T:
    """Return the object that a table describes; paths count from the folder. Raises WrongValues."""
    read: T = read_whole(owner, table, folder)
    return read


def read_text(hint: Any, text: str, folder: Path) -> Any:
    """Return the value that the text of a variable stands for. Items of a list are separated by commas, and an empty item is ignored.

    Raises WrongValues."""
    if get_origin(hint) is tuple:
        return tuple(read_text(get_args(hint)[0], part, folder) for item in text.split(",") if (part := item.strip()))
    return read_whole(hint, parse_text(hint, text), folder)


def parse_text(hint: Any, text: str) -> object:
    """Return what TOML would have for this text of a variable; the text itself if it is none of its type."""
    parse = TEXT_PARSERS.get(get_args(hint)[0] if get_origin(hint) is Annotated else hint)
    try:
        return parse(text) if parse is not None and text.isascii() else text
    except ValueError:
        return text


TEXT_PARSERS: Mapping[Any, Callable[[str], object]] = {
    int: int,
    float: float,
    bool: lambda text: FLAG_WORDS.get(text.lower(), text),
    date: date.fromisoformat,
}


def read_whole(hint: Any, given: object, folder: Path) -> Any:
    reading = Reading(folder)
    value = reading.read(hint, given, ())
    if reading.faults:
        raise WrongValues(reading.faults)
    return value


@dataclass(slots=True)
class Reading:
    """One reading: the folder that paths count from, and the faults found so far. What a faulty value becomes does not matter: with a
    fault nothing of the reading is used."""

    folder: Path
    faults: list[ValueFault] = field(default_factory=list)

    def read(self, hint: Any, given: object, path: tuple[int | str, ...]) -> Any:
        """Return the value of this type; note its faults."""
        if is_table(hint):
            return self.read_table(hint, given, path)
        origin = get_origin(hint)
        if origin is NamedTables:
            return NamedTables({name: self.read(get_args(hint)[0], table, (*path, name)) for name, table in self.items(given, path)})
        if origin is tuple:
            return self.read_list(get_args(hint)[0], given, path)
        try:
            return self.read_kind(hint, given, path) if origin is Annotated else read_plain(hint, given, self.folder)
        except ValueError:
            self.note(FaultKind.WRONG, path, given)

    def read_table(self, owner: type[T], given: object, path: tuple[int | str, ...]) -> T | None:
        hints = get_type_hints(owner, include_extras=True)
        values: dict[str, Any] = {}
        before = len(self.faults)
        for key, value in self.items(given, path):
            if key not in hints:
                self.note(FaultKind.UNKNOWN, (*path, key), value)
            elif value is None and is_optional(hints[key]):
                values[key] = None
            else:
                values[key] = self.read(without_none(hints[key]), value, (*path, key))
        if isinstance(given, Mapping):
            for needed in fields(owner):  # type: ignore[arg-type]  # is_table has said that it is a dataclass
                if needed.default is MISSING and needed.default_factory is MISSING and needed.name not in given:
                    self.note(FaultKind.MISSING, (*path, needed.name), given)
        return owner(**values) if len(self.faults) == before else None

    def read_list(self, inner: Any, given: object, path: tuple[int | str, ...]) -> tuple[Any, ...]:
        if not isinstance(given, (list, tuple)):
            self.note(FaultKind.WRONG, path, given)
            return ()
        return tuple(self.read(inner, item, (*path, number)) for number, item in enumerate(given))

    def read_kind(self, hint: Any, given: object, path: tuple[int | str, ...]) -> Any:
        """Raises ValueError for a value that the notes of the kind refuse."""
        inner, note = get_args(hint)
        if isinstance(note, NumberRange):
            return read_number(inner, given, note)
        kind: ValueKind = note
        before = len(self.faults)
        value = self.read(inner, kind.prepare(given) if kind.prepare is not None else given, path)
        return kind.check(value) if kind.check is not None and len(self.faults) == before else value

    def items(self, given: object, path: tuple[int | str, ...]) -> list[tuple[str, Any]]:
        if isinstance(given, Mapping):
            return list(given.items())
        self.note(FaultKind.WRONG, path, given)
        return []

    def note(self, kind: FaultKind, path: tuple[int | str, ...], given: object) -> None:
        self.faults.append(ValueFault(kind, path, given))


def is_optional(hint: Any) -> bool:
    return without_none(hint) is not hint


def read_number(number: type[int | float], given: object, allowed: NumberRange) -> float:
    """Return the number. Raises ValueError; for a whole number in place of any number it does not."""
    if type(given) not in (int, number):
        raise ValueError("not a number of this type")
    try:
        value: float = number(given)  # type: ignore[arg-type, call-overload]  # its type is known by now
    except OverflowError:
        raise ValueError("beyond every limit") from None
    if not allowed.allows(value):
        raise ValueError("out of range")
    return value


def read_plain(hint: Any, given: object, folder: Path) -> Any:
    """Return the value of a type without parts. Raises ValueError."""
    if hint is bool or hint is date:
        if type(given) is not hint:  # a time is a date too, and is refused
            raise ValueError("not of this type")
        return given
    if hint is Path:
        return given if isinstance(given, Path) else expand_path(require_text(given), folder)
    if hint is Secret:
        return given if isinstance(given, Secret) else Secret(require_text(given))
    text = require_text(given)
    return text if hint is str else hint(text)
