"""The commands of the packs that are switched on, such as `hermes venues` of the concierge."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import typer

from hermes.app.root import Hermes
from hermes.cli.output import fail, print_json, print_table
from hermes.cli.packs import settings_for
from hermes.cli.runtime import run, with_hermes
from hermes.packs import GROUP, PackServices, find_pack

T = TypeVar("T")


class CommandConsole:
    """The port PackConsole."""

    def run(self, config: Path | None, act: Callable[[PackServices], Coroutine[Any, Any, T]]) -> T:
        def call(hermes: Hermes) -> Coroutine[Any, Any, T]:
            return act(hermes.packs.services)

        return run(with_hermes(config, call))

    def fail(self, message: str) -> NoReturn:
        fail(message)

    def print_table(self, names: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        print_table(names, rows)

    def print_json(self, value: object) -> None:
        print_json(value)


def add_pack_commands(app: typer.Typer, arguments: Sequence[str]) -> None:
    """Add the commands of the packs to the command line, for the settings that these arguments choose.

    Raises PackNotFound and SettingsError."""
    commands = {name: place for pack in map(find_pack, settings_for(arguments).pack_names) for name, place in pack.commands.items()}
    for name in commands.keys() - {group.name for group in app.registered_groups}:
        app.add_typer(EntryPoint(name, commands[name], GROUP).load()(CommandConsole()), name=name)
