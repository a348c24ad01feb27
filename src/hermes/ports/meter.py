"""Numbers about turns, model calls, webhooks and sends, for the operator's metrics."""

from __future__ import annotations

from typing import Protocol

from hermes.ports.model_calls import ModelCall


class CallMeter(Protocol):
    """Counts calls. Never on the message path: it neither raises nor waits."""

    def count(self, call: ModelCall) -> None:
        """Count a call that has ended, with its attempts, tokens and cost."""
        ...


class TurnMeter(Protocol):
    """Counts turns and times their steps. Never on the message path: it neither raises nor waits."""

    def count_step(self, step: str, seconds: float) -> None:
        """Note how long a step took."""
        ...

    def count_turn(self, outcome: str, intent: str) -> None:
        """Count a turn that has ended, by its outcome and the user's intent."""
        ...


class WebhookMeter(Protocol):
    """Counts webhook events that were ignored. Never on the message path: it neither raises nor waits."""

    def count_ignored(self, platform: str, reason: str) -> None:
        """Count an authentic event for which there was nothing to do, by its reason."""
        ...


class SendMeter(Protocol):
    """Counts sends to platforms. Never on the message path: it neither raises nor waits."""

    def count_send(self, platform: str, outcome: str) -> None:
        """Count a try to send, by its outcome."""
        ...

    def show_breaker(self, platform: str, account: str, open_s: float) -> None:
        """Show that a breaker is open for so long from now on; 0: it is closed."""
        ...
