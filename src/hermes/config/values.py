"""The kinds of values that a setting can have. pydantic reads them from TOML and from the text of a variable.

TOML has types, so there a number is not accepted as text or as true; the text of a variable is read as what it says. A kind only accepts
or refuses a value: load.py knows which setting it is for, and whether a fault may show the value."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, Self, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, PlainValidator, Strict, ValidationInfo
from pydantic_core import CoreSchema, core_schema

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

    @classmethod
    def read(cls, value: object) -> Secret:
        """Raises ValueError if the value is not a text, or empty."""
        return value if isinstance(value, Secret) else Secret(require_text(value))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(cls.read)


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

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        [table] = get_args(source)
        return core_schema.no_info_after_validator_function(cls, core_schema.dict_schema(values_schema=handler.generate_schema(table)))


class Choice(StrEnum):
    """One of a few words, in upper or lower case."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return next((choice for choice in cls if isinstance(value, str) and choice.value == value.lower()), None)


@dataclass(frozen=True, slots=True)
class KindWords:
    """The values of a kind in words that can follow "expected", and whether a fault must not show a value of this kind."""

    words: str
    is_secret: bool = False


def require_text(value: object) -> str:
    """Empty text is refused: with an empty host, for instance, the server would listen on every address of the machine."""
    if not isinstance(value, str) or not value:
        raise ValueError("not a text")
    return value


def read_path(value: object, info: ValidationInfo[Path]) -> Path:
    """Return a path that counts from the folder in the context of the validation."""
    return value if isinstance(value, Path) else expand_path(require_text(value), info.context)


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


def list_command(value: object) -> object:
    """Return the list that a single program without arguments stands for. No shell reads a command, so it needs no quotes. An empty text
    stays what it is: the fault is about the command, and not about an item of a list that the operator did not write."""
    return [value] if isinstance(value, str) and value else value


def check_command(words: tuple[str, ...]) -> tuple[str, ...]:
    if any("\0" in word for word in words):
        raise ValueError("a zero byte in a command")
    return words


Count = Annotated[int, Field(strict=True, ge=1, lt=INTEGER_LIMIT)]
CountOrZero = Annotated[int, Field(strict=True, ge=0, lt=INTEGER_LIMIT)]
WholeSeconds = Count
Port = Annotated[int, Field(strict=True, ge=0, le=65_535)]
Percent = Annotated[int, Field(strict=True, ge=1, le=99)]
MessagesPerMinute = Annotated[int, Field(strict=True, ge=1, le=99)]
# Below the limit there is neither infinity nor NaN.
Seconds = Annotated[float, Field(strict=True, gt=0, lt=INTEGER_LIMIT)]
SecondsOrZero = Annotated[float, Field(strict=True, ge=0, lt=INTEGER_LIMIT)]
Usd = SecondsOrZero
Flag = Annotated[bool, Strict(), KindWords("true or false")]
Day = Annotated[date, Strict(), KindWords("a date such as 2026-11-15, without quotes")]
LocalPath = Annotated[Path, PlainValidator(read_path), KindWords("a path")]
# Secret, because it may hold a password, which does not belong there.
Address = Annotated[
    str, AfterValidator(check_address), KindWords("an address such as http://host:8000/v1, without a password or a query", is_secret=True)
]
Command = Annotated[
    tuple[str, ...],
    BeforeValidator(list_command),
    Field(min_length=1),
    AfterValidator(check_command),
    KindWords("a program, or a list of a program and its arguments"),
]
