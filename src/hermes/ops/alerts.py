"""Alerts for the operator, as lines in the log. They are always on: an adapter for Slack or Discord comes in addition."""

from __future__ import annotations

import structlog

from hermes.ops.metrics import Metrics

log = structlog.get_logger()


class LogAlerts:
    """The port Alerts. May be called from any thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def alert(self, event: str, **facts: object) -> None:
        self._metrics.alerts.labels(event).inc()
        log.warning(event, **{**facts, "alert": True})
