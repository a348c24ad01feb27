"""The settings by name, as their declarations give them: the list that files, variables and the reference page are held against."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from hermes.config.kinds import Kind, kind_of
from hermes.config.settings import Settings


@dataclass(frozen=True, slots=True)
class Known:
    """One setting. `owner` is the class that declares it; the section is empty for what stands at the top."""

    section: str
    key: str
    owner: type[Any]
    kind: Kind
    default: object

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}" if self.section else self.key

    @property
    def variable(self) -> str:
        return f"HERMES_{self.name.replace('.', '_').upper()}"


def known_settings() -> list[Known]:
    """Every setting in the order of its declaration: the top level first, then section after section."""
    top = list(declared("", Settings))
    return top + [setting for section, owner in sections().items() for setting in declared(section, owner)]


def sections() -> dict[str, type[Any]]:
    """The sections of a file, each with the class that declares its settings."""
    return {name: hint for name, hint in get_type_hints(Settings).items() if is_dataclass(hint) and isinstance(hint, type)}


def declared(section: str, owner: type[Any]) -> Iterator[Known]:
    hints = get_type_hints(owner, include_extras=True)
    for field in fields(owner):
        if not is_dataclass(hints[field.name]):
            yield Known(section, field.name, owner, kind_of(hints[field.name]), field.default)
