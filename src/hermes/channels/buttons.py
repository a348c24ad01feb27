"""Buttons in the bodies of messages, as the outbox keeps them: the same on every platform, and each channel encodes them in its own way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes.ports.channels import Button

BUTTONS = "buttons"
"""The key of a body's buttons, each with its `id` and its `label`."""


def buttons_on_last(bodies: Sequence[Mapping[str, Any]], buttons: Sequence[Button]) -> list[Mapping[str, Any]]:
    """Return the bodies with the buttons below the last of them."""
    *before, last = bodies
    return [*before, {**last, BUTTONS: [{"id": each.id, "label": each.label} for each in buttons]}]
