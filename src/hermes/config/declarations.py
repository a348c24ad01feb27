"""All declared settings, by name, and the values that they take in words. Files, variables and the reference page are checked against this
list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeGuard, Union, get_args, get_origin, get_type_hints

from hermes.config.models import SERVERS, AlertKindSetting, AlertSettings, BackendSettings, variable_name
from hermes.config.settings import Settings
from hermes.config.values import NamedTables, Secret, ValueKind

BACKENDS_SECTION, ALERTS_SECTION = "backends", "alerts"


@dataclass(frozen=True, slots=True)
class DeclaredSetting:
    """One setting. `owner` is the class that declares it, `place` the section or table of a file that holds it: empty at the top. `hint` is
    its type without None, which cannot be written in a file."""

    place: tuple[str, ...]
    key: str
    owner: type[Any]
    hint: Any
    default: object

    @property
    def path(self) -> tuple[str, ...]:
        return (*self.place, self.key)

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        return f"HERMES_{variable_name(self.name)}"


@cache
def known_settings() -> tuple[DeclaredSetting, ...]:
    """Return every setting in the order of its declaration, the top level first, then section after section; without those of the tables
    that the operator names."""
    top = [setting for setting in keys_of(Settings).values() if table_of(setting.hint) is None]
    return (*top, *(setting for section, owner in sections().items() for setting in keys_of(owner, section).values()))


@cache
def sections() -> Mapping[str, type[Any]]:
    """Return the sections of a file, each with the class that declares its settings."""
    return {name: key.hint for name, key in keys_of(Settings).items() if is_table(key.hint)}


@cache
def tables() -> Mapping[str, type[Any]]:
    """Return the sections whose tables the operator names, `[models.NAME]`, each with the class that declares a table."""
    return {name: get_args(key.hint)[0] for name, key in keys_of(Settings).items() if get_origin(key.hint) is NamedTables}


def keys_of(owner: type[Any], *place: str) -> Mapping[str, DeclaredSetting]:
    """Return the keys of a section or table, by name."""
    hints = get_type_hints(owner, include_extras=True)
    return {
        field.name: DeclaredSetting(place, field.name, owner, without_none(hints[field.name]), field.default) for field in fields(owner)
    }


def backend_variables(names: Iterable[str]) -> list[DeclaredSetting]:
    """Return the settings of backends that have variables: the key, so that it need not be in a file, and the address. For the backends
    with these names, and for each kind of server under the name of its kind."""
    return [
        keys_of(BackendSettings, BACKENDS_SECTION, name)[key]
        for name in dict.fromkeys([*sorted(kind.value for kind in SERVERS), *names])
        for key in ("base_url", "api_key")
    ]


def alert_variables(names: Iterable[str]) -> list[DeclaredSetting]:
    """Return the settings of destinations of alerts that have variables: the secrets, so that they need not be in a file, and the chat. For
    the destinations with these names, and for each kind under the name of its kind."""
    return [
        keys_of(AlertSettings, ALERTS_SECTION, name)[key]
        for name in dict.fromkeys([*sorted(kind.value for kind in AlertKindSetting), *names])
        for key in ("url", "token", "chat", "secret")
    ]


# --- types


def type_at(path: Iterable[int | str]) -> Any:
    """Return the type that is declared at a place in a file: ("models", "claude-haiku", "prices", 0, "input")."""
    hint: Any = Settings
    for part in path:
        hint = keys_of(hint)[str(part)].hint if is_table(hint) else get_args(without_notes(hint))[0]
    return hint


def is_table(hint: Any) -> TypeGuard[type[Any]]:
    """Whether this is a class that declares a section or a table."""
    return isinstance(hint, type) and is_dataclass(hint)


def table_of(hint: Any) -> type[Any] | None:
    """Return the class that declares a table, or each table of a list or section of them; None for a plain value."""
    inner = get_args(hint)[0] if get_origin(hint) in (tuple, NamedTables) else hint
    return inner if is_table(inner) else None


def words_of(hint: Any, *, has_variable: bool = False) -> str:
    """Return the values of a type, in words that can follow "expected"."""
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        words = f"a list of {'tables' if is_table(inner) else words_of(inner)}"
        return f"{words} (in a variable: separated by commas)" if has_variable else words
    if is_table(hint):
        return "a table"
    if get_origin(hint) is Annotated:
        return next((note.words for note in get_args(hint) if isinstance(note, ValueKind)), None) or words_of_number(hint)
    if issubclass(hint, StrEnum):
        *others, last = hint
        return f"{', '.join(others)} or {last}"
    return "secret text" if hint is Secret else "text"


def words_of_number(hint: Any) -> str:
    number, allowed = get_args(hint)
    words = "a whole number" if number is int else "a number"
    if allowed.maximum is not None:
        return f"{words} from {allowed.minimum} to {allowed.maximum}"
    return f"{words} above {allowed.minimum}" if allowed.is_above else f"{words} of at least {allowed.minimum}"


def is_secret(hint: Any) -> bool:
    """Whether a fault must not show a value of this type."""
    if get_origin(hint) is Annotated:
        return any(isinstance(note, ValueKind) and note.is_secret for note in get_args(hint))
    return is_secret(get_args(hint)[0]) if get_origin(hint) is tuple else hint is Secret


def without_none(hint: Any) -> Any:
    """Return the type of an optional value without its None."""
    if get_origin(hint) in (Union, UnionType):
        [hint] = (part for part in get_args(hint) if part is not NoneType)
    return hint


def without_notes(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint
