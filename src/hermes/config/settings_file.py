"""The settings file, as `hermes setup` changes it: which file that is, its table, and how a new one takes its place.

The file may hold keys, so only its owner can read it. The file before it stays beside it as `hermes.toml.bak`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes.config.load import FILE_NAME, FILE_VARIABLE, SettingsError, SettingsFile, combine_settings, read_file
from hermes.config.settings import Settings
from hermes.config.toml_text import toml_text
from hermes.config.values import expand_path

BACKUP_SUFFIX = ".bak"
HEADER = "# Made by `hermes setup`. Every setting: docs/reference/settings.md"


@dataclass(frozen=True, slots=True)
class EditableSettings:
    """A settings file that exists or will be made, and the table that it holds now."""

    path: Path
    table: Mapping[str, Any]
    exists: bool

    def settings_with(self, table: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
        """Return the settings of a process that reads this table from this file, with the variables. Raises SettingsError."""
        return combine_settings(environ, SettingsFile.checked(self.path, table), Path.cwd())

    def replace_with(self, table: Mapping[str, Any]) -> Path | None:
        """Write the table as the new file, whole or not at all. Return where the file before it is kept; None if there was none.

        If the file is a link, its target is replaced. Raises OSError, and ValueError for a value that TOML does not know."""
        target = self.path.resolve()
        text = f"{HEADER}\n\n{toml_text(table)}".rstrip("\n").encode() + b"\n"
        target.parent.mkdir(parents=True, exist_ok=True)
        backup = None
        if self.exists:
            backup = target.with_name(target.name + BACKUP_SUFFIX)
            put_whole(backup, target.read_bytes())
        put_whole(target, text)
        return backup


def has_comments(file: Path) -> bool:
    """Whether a person has written lines of comments into a file."""
    lines = (line.strip() for line in file.read_text(encoding="utf-8-sig", errors="replace").splitlines())
    return any(line.startswith("#") and line != HEADER for line in lines)


def find_settings_file(environ: Mapping[str, str], named: Path | None) -> EditableSettings:
    """Return the file that Hermes reads in this folder; if there is none, the one that is named, or else `hermes.toml` in this folder.

    Raises SettingsError if the file cannot be read, or is not valid."""
    here = Path.cwd()
    name = str(named) if named is not None else environ.get(FILE_VARIABLE, "").strip()
    try:
        wanted = expand_path(name, here) if name else here / FILE_NAME
    except ValueError:
        raise SettingsError(f"the settings file {name!r} is no path") from None
    if name and not wanted.exists():
        return EditableSettings(wanted, {}, exists=False)
    written = read_file(environ, named, here)
    if written.faults:
        raise SettingsError(*written.faults)
    return EditableSettings(written.path or wanted, written.table, exists=written.path is not None)


def put_whole(file: Path, content: bytes) -> None:
    """Write a file that only its owner can read; until it is whole, the file before it stays."""
    handle, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # readable for its owner only
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        Path(draft).replace(file)
    finally:
        with suppress(FileNotFoundError):
            Path(draft).unlink()
