"""Identifiers of people, so that an operator can tell two apart and can call neither: `+62•••431`."""

from __future__ import annotations

from hermes.ports.operators import Operator, Role

SHOWN_START, SHOWN_END = 3, 3
MASK = "•••"


def mask_identifier(identifier: str) -> str:
    """Return the identifier with its middle hidden; a short one is hidden but for its first character."""
    if len(identifier) < SHOWN_START + SHOWN_END + 2:
        return identifier[:1] + MASK
    return identifier[:SHOWN_START] + MASK + identifier[-SHOWN_END:]


def show_identifier(identifier: str, operator: Operator) -> str:
    """Return the identifier as this operator may see it: masked for a viewer."""
    return identifier if operator.role.covers(Role.OPERATOR) else mask_identifier(identifier)
