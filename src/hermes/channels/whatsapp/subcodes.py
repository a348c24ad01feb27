"""The subcodes that decide at WhatsApp."""

from __future__ import annotations

from collections.abc import Mapping

from hermes.ports.channels import Outcome

SUBCODES: Mapping[int, Outcome] = {
    33: Outcome.UNAUTHORIZED,  # the number in the path is none of ours
}
