"""What the project asks for, and what it pins: read from pyproject.toml, requirements.lock and the readers' lists."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins() -> dict[str, list[Version]]:
    """Every version of a package in the lock: there may be one for each Python."""
    found: dict[str, list[Version]] = {}
    for name, version in re.findall(r"^([\w.\-\[\]]+)==([^\s;]+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE):
        found.setdefault(canonicalize_name(name.partition("[")[0]), []).append(Version(version))
    return found


def required(extra: str) -> Iterator[Requirement]:
    """What an extra asks for, with the extras that it takes in."""
    for line in PROJECT["optional-dependencies"][extra]:
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            for other in sorted(requirement.extras):
                yield from required(other)
        else:
            yield requirement


def listed(path: Path) -> list[Requirement]:
    """A list of requirements, without its comments."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [Requirement(line) for line in lines if line]


def disagreements(requirements: list[Requirement], locked: dict[str, list[Version]]) -> list[str]:
    """Where the lock pins something else than is asked for. What the lock does not hold, it does not contradict."""
    return [
        f"{requirement}: the lock pins {version}"
        for requirement in requirements
        for version in locked.get(canonicalize_name(requirement.name), [])
        if not requirement.specifier.contains(version, prereleases=True)
    ]
