"""The commands of the packs that are switched on, such as `hermes venues` of the concierge."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import typer

from hermes.app import Hermes, StartRefused
from hermes.app.packs import packs_from
from hermes.cli.output import fail
from hermes.cli.packs import settings_for
from hermes.cli.runtime import run, with_hermes
from hermes.packs import GROUP, Pack, PackServices

T = TypeVar("T")


class CommandConsole:
    """The port PackConsole."""

    def run(self, config: Path | None, act: Callable[[PackServices], Coroutine[Any, Any, T]]) -> T:
        def call(hermes: Hermes) -> Coroutine[Any, Any, T]:
            return act(hermes.packs.services)

        return run(with_hermes(config, call))

    def fail(self, message: str) -> NoReturn:
        fail(message)


def add_pack_commands(app: typer.Typer, arguments: Sequence[str]) -> set[str]:
    """Add the commands of the packs to the command line, for the settings that these arguments choose; return their names."""
    commands = {name: place for pack in packs_for(arguments) for name, place in pack.commands.items()}
    for name in commands.keys() - {group.name for group in app.registered_groups}:
        app.add_typer(EntryPoint(name, commands[name], GROUP).load()(CommandConsole()), name=name)
    return set(commands)


def packs_for(arguments: Sequence[str]) -> Sequence[Pack]:
    """Return the packs that are on. With settings that are wrong there are none: the command itself says what is wrong with them."""
    settings = settings_for(arguments)
    try:
        return packs_from(settings) if settings is not None else ()
    except StartRefused:
        return ()
