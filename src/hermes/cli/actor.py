"""The operator at the command line: a person with the database and the master key. So an owner; the audit log has their Unix name."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from uuid import NAMESPACE_OID, uuid5

from hermes.ports.operators import Actor, Face, Operator, Role


def command_actor() -> Actor:
    """Return the person who typed the command."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        name = "unknown"
    operator = Operator(
        id=uuid5(NAMESPACE_OID, f"cli/{name}"), name=f"{name}@cli", role=Role.OWNER, created_at=datetime.now(UTC), created_by="cli"
    )
    return Actor(operator, Face.CLI)
