"""Which commands the packs of the settings bring, for `hermes --help`: without loading a pack that comes with Hermes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from hermes.config import Settings, SettingsError, load
from hermes.packs import SHIPPED_PACKS, PackNotFound, find_pack


def describe_pack_commands(arguments: Sequence[str]) -> dict[str, str]:
    """Return the commands of the packs that are on, each with its line in `hermes --help`."""
    settings = settings_for(arguments)
    return {command: line for name in settings.pack_names for command, line in lines_of(name).items()} if settings is not None else {}


def settings_for(arguments: Sequence[str]) -> Settings | None:
    """Return the settings that these arguments choose; None if they are wrong: the command itself says what is wrong with them."""
    words = [part for word in arguments for part in word.split("=", 1)]
    config = next((Path(after) for word, after in pairwise(words) if word == "--config"), None)
    try:
        return load(os.environ, file=config)
    except SettingsError:
        return None


def lines_of(name: str) -> dict[str, str]:
    if name in SHIPPED_PACKS:
        return dict(SHIPPED_PACKS[name].commands)
    try:
        return dict.fromkeys(find_pack(name).commands, f"A command of the pack {name}.")
    except PackNotFound:
        return {}
