"""Check the files of an export: they are those that the manifest lists, with the size and the SHA-256 it states, and no others."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hermes.trajectories.verify.ledger import FILE_NAME, LedgerIndex
from hermes.trajectories.verify.report import ProblemList


def check_files(folder: Path, ledger: LedgerIndex, problems: ProblemList) -> None:
    """Note each file that is missing, altered, listed twice or not listed."""
    listed: set[str] = set()
    for entry in ledger.manifest["files"]:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or Path(name).name != name or name == FILE_NAME:
            problems.add(f"the manifest lists {entry!r}, which is not a file of an export", file=FILE_NAME)
            continue
        if name in listed:
            problems.add("the manifest lists it twice", file=name)
        listed.add(name)
        path = folder / name
        if not path.is_file():
            problems.add("missing", file=name)
            continue
        size = path.stat().st_size
        if size != entry.get("bytes"):
            problems.add(f"{size} bytes long, the manifest says {entry.get('bytes')}", file=name)
        elif _sha256(path) != entry.get("sha256"):
            problems.add("altered: its SHA-256 is not the manifest's", file=name)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in listed and name != FILE_NAME:
            problems.add("not listed in the manifest", file=name)


def _sha256(path: Path) -> str:
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
