"""The error subcodes that decide the outcome at WhatsApp."""

from __future__ import annotations

from collections.abc import Mapping

from hermes.ports.channels import SendOutcome

OUTCOME_BY_SUBCODE: Mapping[int, SendOutcome] = {
    33: SendOutcome.UNAUTHORIZED,  # the number in the path does not belong to the account
}
