"""All declared settings, by name. Files, variables and the reference page are checked against this list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from hermes.config.models import SERVERS, BackendSettings, variable_name
from hermes.config.named_tables import NamedTables
from hermes.config.settings import Settings
from hermes.config.value_kinds import ValueKind, kind_of, without_none

BACKENDS_SECTION = "backends"


@dataclass(frozen=True, slots=True)
class DeclaredSetting:
    """One setting. `owner` is the class that declares it; the section is empty for a setting at the top of the file."""

    section: str
    key: str
    owner: type[Any]
    kind: ValueKind
    default: object

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}" if self.section else self.key

    @property
    def variable(self) -> str:
        return f"HERMES_{variable_name(self.name)}"


@dataclass(frozen=True, slots=True)
class TableKey:
    """One key of a table that the operator names: a value of a kind, or else one inner table, or a list of inner tables."""

    name: str
    owner: type[Any]
    default: object
    kind: ValueKind | None = None
    inner: type[Any] | None = None
    is_list: bool = False

    @property
    def is_required(self) -> bool:
        return self.default is MISSING


def known_settings() -> list[DeclaredSetting]:
    """Return every setting in the order of its declaration: the top level first, then section after section."""
    top = list(declared_settings("", Settings))
    return top + [setting for section, owner in sections().items() for setting in declared_settings(section, owner)]


def sections() -> dict[str, type[Any]]:
    """Return the sections of a file, each with the class that declares its settings."""
    return {name: hint for name, hint in get_type_hints(Settings).items() if is_dataclass(hint) and isinstance(hint, type)}


def tables() -> dict[str, type[Any]]:
    """Return the sections whose tables the operator names, `[models.NAME]`, each with the class that declares a table."""
    return {name: get_args(hint)[0] for name, hint in get_type_hints(Settings).items() if get_origin(hint) is NamedTables}


def keys_of(owner: type[Any]) -> dict[str, TableKey]:
    """Return the keys of a table, by name."""
    hints = get_type_hints(owner, include_extras=True)
    return {field.name: key_of(field.name, owner, field.default, without_none(hints[field.name])) for field in fields(owner)}


def key_of(name: str, owner: type[Any], default: object, hint: Any) -> TableKey:
    is_list = get_origin(hint) is tuple
    inner = get_args(hint)[0] if is_list else hint
    if isinstance(inner, type) and is_dataclass(inner):
        return TableKey(name, owner, default, inner=inner, is_list=is_list)
    return TableKey(name, owner, default, kind=kind_of(hint))


def backend_variables(names: Iterable[str]) -> list[DeclaredSetting]:
    """Return the settings of backends that have variables: the key, so that it need not be in a file, and the address. For the backends
    with these names, and for each kind of server under the name of its kind."""
    keys = [key for key in keys_of(BackendSettings).values() if key.name in ("api_key", "base_url")]
    return [
        DeclaredSetting(f"{BACKENDS_SECTION}.{name}", key.name, BackendSettings, key.kind, key.default)
        for name in dict.fromkeys([*sorted(SERVERS), *names])
        for key in keys
        if key.kind is not None
    ]


def declared_settings(section: str, owner: type[Any]) -> Iterator[DeclaredSetting]:
    hints = get_type_hints(owner, include_extras=True)
    for field in fields(owner):
        hint = hints[field.name]
        if not is_dataclass(hint) and get_origin(hint) is not NamedTables:
            yield DeclaredSetting(section, field.name, owner, kind_of(hint), field.default)
