"""Alerts: facts that the operator should look at now."""

from __future__ import annotations

from typing import Protocol


class Alerts(Protocol):
    """Alerts the operator. Never on the message path: it neither raises nor waits."""

    def alert(self, event: str, **facts: object) -> None:
        """Report a fact in the past tense with its numbers; no message text, no secrets."""
        ...
