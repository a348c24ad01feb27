"""What `hermes doctor` checks first, because it takes no time to load: Python, the home, the master key, the port.

`doctor.py` checks the rest: stores, packs, models, MCP servers."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hermes.app.home import home_of, local_url
from hermes.app.master_keys import MASTER_KEY_FILE, master_keys
from hermes.app.web_port import PortUse, find_port_use
from hermes.config import Environment, Settings
from hermes.ports.errors import StartRefused
from hermes.stores.seal import MasterKeyInvalid, MasterKeys


class Health(StrEnum):
    """How well a part works."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """The state of one part, and advice if something is wrong."""

    part: str
    health: Health
    says: str
    advice: str = ""


async def examine_basics(settings: Settings) -> AsyncIterator[HealthFinding]:
    """Yield a finding for each part, as soon as it is known. Starts and makes nothing."""
    home = home_of(settings)
    yield check_python()
    yield check_home(home)
    yield check_master_key(settings, home)
    yield await check_web_port(settings)


def check_python() -> HealthFinding:
    return HealthFinding("python", Health.GOOD, ".".join(map(str, sys.version_info[:3])))


def check_home(home: Path) -> HealthFinding:
    existing = next(path for path in (home, *home.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return HealthFinding("home", Health.BAD, f"{existing} cannot be written", "choose another folder with HERMES_HOME")
    return HealthFinding("home", Health.GOOD, str(home) if existing == home else f"{home} (not made yet)")


def check_master_key(settings: Settings, home: Path) -> HealthFinding:
    part = "master key"
    try:
        if not settings.master_keys and settings.environment is Environment.DEVELOPMENT and not (home / MASTER_KEY_FILE).exists():
            return HealthFinding(part, Health.GOOD, f"will be made in {home} at the first start")
        keys = MasterKeys.parse(master_keys(settings, home))
    except (StartRefused, MasterKeyInvalid) as error:
        return HealthFinding(part, Health.BAD, str(error), "hermes keys new-master makes one; set it as HERMES_MASTER_KEYS")
    if settings.master_keys:
        return HealthFinding(part, Health.GOOD, f"{keys.current} of {len(settings.master_keys)}, from the settings")
    return HealthFinding(
        part,
        Health.WARNING,
        f"{keys.current} in {home / MASTER_KEY_FILE}",
        "fine for development; back it up: without it nothing can be read",
    )


async def check_web_port(settings: Settings) -> HealthFinding:
    """The port is good if it is free, or if this Hermes listens there."""
    use, place = await find_port_use(settings), f"{settings.web.host}:{settings.web.port}"
    match use:
        case PortUse.FREE:
            return HealthFinding("web", Health.GOOD, f"{place} is free")
        case PortUse.OURS:
            return HealthFinding("web", Health.GOOD, f"this Hermes runs at {local_url(settings.web)}/")
        case PortUse.OTHER_HERMES:
            return HealthFinding("web", Health.WARNING, f"{place}: a Hermes with other settings runs there", "set HERMES_WEB_PORT")
        case PortUse.TAKEN:
            return HealthFinding("web", Health.WARNING, f"{place}: another program listens there", "stop it, or set HERMES_WEB_PORT")
    return HealthFinding("web", Health.WARNING, f"{place}: this user may not listen there", "set HERMES_WEB_PORT and HERMES_WEB_HOST")
