"""Which commands the packs of the settings bring, for `hermes --help`: without loading a pack that comes with Hermes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from hermes.config import Settings, SettingsError, load
from hermes.packs import SHIPPED_PACKS, PackNotFound, find_pack


def describe_pack_commands(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the commands of the packs that are on, each with its line in `hermes --help`, and what is wrong with the settings."""
    lines, faults = dict[str, str](), list[str]()
    try:
        for name in settings_for(arguments).pack_names:
            try:
                lines |= lines_of(name)
            except PackNotFound as error:
                faults.append(f"packs.enabled: {error}")
    except SettingsError as error:
        faults.extend(error.faults)
    return lines, faults


def settings_for(arguments: Sequence[str]) -> Settings:
    """Return the settings that these arguments choose. Raises SettingsError."""
    words = [part for word in arguments for part in word.split("=", 1)]
    return load(os.environ, file=next((Path(after) for word, after in pairwise(words) if word == "--config"), None))


def lines_of(name: str) -> dict[str, str]:
    """Return the commands of a pack, each with its line. Raises PackNotFound."""
    if name in SHIPPED_PACKS:
        return dict(SHIPPED_PACKS[name].commands)
    return dict.fromkeys(find_pack(name).commands, f"A command of the pack {name}.")
