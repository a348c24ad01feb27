"""The subcodes that decide at WhatsApp."""

from __future__ import annotations

from collections.abc import Mapping

from hermes.ports.channels import SendOutcome

OUTCOME_BY_SUBCODE: Mapping[int, SendOutcome] = {
    33: SendOutcome.UNAUTHORIZED,  # the number in the path is none of ours
}
