"""What the extra `batch` brings along bounds what the lock may pin: a user who installed the lock adds `batch` without a change."""

from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.requirements import disagreements, pins, required

pytest.importorskip("daft", reason="needs daft and ray: pip install 'hermes-graph[batch]'")
pytestmark = pytest.mark.readers


def brought(requirement: Requirement, seen: set[str]) -> list[Requirement]:
    """Everything that a package asks for that is installed here and not locked, at any depth. What the lock holds, it pins in a version
    that may ask for something else than the one here."""
    if canonicalize_name(requirement.name) in pins():
        return []
    key = f"{canonicalize_name(requirement.name)}{sorted(requirement.extras)}"
    if key in seen:
        return []
    seen.add(key)
    try:
        wanted = [Requirement(line) for line in distribution(requirement.name).requires or ()]
    except PackageNotFoundError:
        return []
    held = [
        one for one in wanted if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras))
    ]
    return held + [below for one in held for below in brought(one, seen)]


def test_the_lock_pins_nothing_that_the_batch_engines_forbid() -> None:
    found = [below for requirement in required("batch") for below in brought(requirement, set())]
    assert {"pyarrow", "ray"} <= {canonicalize_name(requirement.name) for requirement in found}
    assert disagreements(found, pins()) == []
