"""Reads the tables that the operator names, `[models.claude-haiku]`, and the tables within them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes.config.declarations import TableKey, keys_of
from hermes.config.faults import nearest, one_line, shown_value, wrong_kind_fault
from hermes.config.value_kinds import WrongKind


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The file that is read: its title in faults, the folder that its paths count from, and its faults so far."""

    title: str
    folder: Path
    faults: list[str]

    def refuse(self, fault: str) -> None:
        self.faults.append(f"{self.title}: {fault}")


def read_tables(section: str, owner: type[Any], given: object, source: SettingsFile) -> dict[str, dict[str, Any]]:
    """Return the values of each table of a section, by table and key. A table with faults is included, with its valid values."""
    if not isinstance(given, dict):
        # Its value is not shown: it may hold an API key.
        source.refuse(f"{section} is a section; write [{section}.NAME] above its settings, with a name of your own")
        return {}
    return {
        name: dict(read_keys(owner, table, f"{section}.{one_line(name)}", source))
        for name, table in given.items()
        if is_table(table, f"{section}.{one_line(name)}", source)
    }


def is_table(given: object, place: str, source: SettingsFile) -> bool:
    if not isinstance(given, dict):
        source.refuse(f"{place} is a table; write [{place}] above its settings")
    return isinstance(given, dict)


def read_keys(owner: type[Any], table: dict[str, Any], place: str, source: SettingsFile) -> Iterator[tuple[str, Any]]:
    """Yield the valid keys of one table, with their values."""
    known = keys_of(owner)
    for name, given in table.items():
        if (key := known.get(name)) is None:
            source.refuse(f"unknown setting {place}.{one_line(name)}; did you mean {place}.{nearest(name, known)}?")
            continue
        try:
            yield name, read_value(key, given, f"{place}.{name}", source)
        except WrongKind:
            continue  # read_value has noted the fault
    for key in known.values():
        if key.is_required and key.name not in table:
            expected = key.kind.words_in_a_file if key.kind is not None else "a table"
            source.refuse(f"{place}.{key.name} is missing; expected {expected}")


def read_value(key: TableKey, given: object, place: str, source: SettingsFile) -> object:
    """Return the value of one key. Raises WrongKind after it has noted the fault."""
    if key.kind is not None:
        try:
            value = key.kind.from_toml(given)
        except WrongKind:
            source.refuse(wrong_kind_fault(place, given, key.kind, key.kind.words_in_a_file))
            raise
        return source.folder / value if isinstance(value, Path) else value
    if not key.is_list:
        return read_inner(key, given, place, source)
    if not isinstance(given, list):
        source.refuse(f"{place} is {shown_value(given)}; expected a list of tables, each as [[{place}]]")
        raise WrongKind
    before = len(source.faults)
    items = [read_inner(key, item, f"{place}[{at}]", source) for at, item in enumerate(given, start=1)]
    if len(source.faults) > before:
        raise WrongKind
    return tuple(items)


def read_inner(key: TableKey, given: object, place: str, source: SettingsFile) -> object:
    """Return a whole inner table, or None if anything in it is wrong: half a price is useless."""
    if not isinstance(given, dict) or key.inner is None:
        source.refuse(f"{place} is {shown_value(given)}; expected a table")
        return None
    before = len(source.faults)
    values = dict(read_keys(key.inner, given, place, source))
    return key.inner(**values) if len(source.faults) == before else None
