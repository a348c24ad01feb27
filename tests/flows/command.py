"""The command `hermes` in a process of its own, on the stores of a running service, as its operator would start it."""

import asyncio
import os
from pathlib import Path
from typing import NamedTuple

from tests.flows.service import Service
from tests.preloaded import preloaded_hermes

PATIENCE_S = 60


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    output: str
    complaints: str


def environ_of(service: Service, folder: Path) -> dict[str, str]:
    """The variables of a command that works on the stores of a service."""
    settings = service.hermes.settings
    assert settings.database_url is not None
    assert settings.redis_url is not None
    assert settings.home is not None
    own = ",".join(key.reveal() for key in settings.master_keys)
    master_keys = own or (settings.home / "master.key").read_text(encoding="ascii")
    return {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")} | {
        "HERMES_DATABASE_URL": settings.database_url.reveal(),
        "HERMES_REDIS_URL": settings.redis_url.reveal(),
        "HERMES_MASTER_KEYS": master_keys,
        "HERMES_HOME": str(folder / "elsewhere"),
        "COLUMNS": "200",
    }


async def hermes(service: Service, folder: Path, *words: object) -> Ended:
    """Run a command in a folder, beside the service; its settings are variables."""
    process = await asyncio.create_subprocess_exec(
        *(*preloaded_hermes(), *map(str, words)),
        env=environ_of(service, folder),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        output, complaints = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, output.decode(), complaints.decode())
