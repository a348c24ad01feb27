"""Files that only their owner can read: they hold what users said.

Only a new file gets this mode: a file that its owner has opened to others stays open."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Literal, TextIO

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


def open_private(path: Path, mode: Literal["ab", "wb"]) -> BinaryIO:
    """Open a file to write bytes. The caller closes it."""
    return open(path, mode, opener=make_file)  # Path.open knows no opener


def open_private_text(path: Path, mode: Literal["a", "w"] = "w") -> TextIO:
    """Open a file to write text. The caller closes it."""
    return open(path, mode, encoding="utf-8", opener=make_file)


def write_private(path: Path, text: str) -> None:
    with open_private_text(path) as file:
        file.write(text)


def make_file(name: str, flags: int) -> int:
    return os.open(name, flags, PRIVATE_FILE)


def make_private_folder(path: Path) -> None:
    """Make a folder, if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def make_private(folder: Path) -> None:
    """Close a folder and its files to all but their owner."""
    for file in folder.iterdir():
        file.chmod(PRIVATE_FILE)
    folder.chmod(PRIVATE_FOLDER)
