"""Gauges about all of Hermes, which the stores hold: queues, processes, chores, alerts, money. Read when a page is asked for, once for all
that ask at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hermes.ops.labels import MAX_LABEL_CHARS
from hermes.ports.figures import FigureReader, StoreFigure

log = structlog.get_logger()

MAX_GAUGES = 200
"""Series of one store gauge; further figures are left out, the last by their labels."""


@dataclass(frozen=True, slots=True)
class GaugeName:
    """How a figure is shown."""

    name: str
    description: str
    labels: tuple[str, ...] = ()


STORE_GAUGES = {
    "queue_length": GaugeName("hermes_queue_length", "Entries in a queue; absent while the database cannot be read.", ("queue",)),
    "queue_oldest": GaugeName(
        "hermes_queue_oldest_seconds", "How long the oldest entry of a queue has waited, for jobs since they are due.", ("queue",)
    ),
    "processes": GaugeName(
        "hermes_processes",
        "Processes that have not stopped: `alive`; `stalled`, without a heartbeat for up to five minutes, after which a process counts"
        " as gone; `silent`, in which no turn ends while turns wait.",
        ("role", "state"),
    ),
    "beat_age": GaugeName("hermes_process_beat_age_seconds", "The oldest heartbeat among the processes of a role.", ("role",)),
    "chore_held": GaugeName(
        "hermes_chore_held",
        "1 while a process does the chore; the holder is the role and host of the process that took it last.",
        ("chore", "holder"),
    ),
    "chore_epoch": GaugeName("hermes_chore_epoch", "How often the chore was taken.", ("chore",)),
    "chore_failed": GaugeName("hermes_chore_failed", "1 if the chore failed the last time.", ("chore",)),
    "chore_done_age": GaugeName("hermes_chore_done_age_seconds", "How long ago the chore was done.", ("chore",)),
    "alerts_open": GaugeName("hermes_alerts_open", "Alerts that have not ended.", ("event", "level")),
    "newest_event": GaugeName("hermes_newest_event", "The number of the newest event in the stream of events."),
    "kill_switch": GaugeName("hermes_kill_switch", "1 while the kill switch stops all model calls."),
    "spend": GaugeName(
        "hermes_spend_today_usd",
        "What was spent today (UTC), in dollars, as the caps count it: `all`, the `fleet`, and `agent:NAME`.",
        ("scope",),
    ),
    "spend_cap": GaugeName("hermes_spend_cap_usd", "The most that may be spent in a day, in dollars; absent without a cap.", ("scope",)),
    "breaker_state": GaugeName(
        "hermes_breaker_state",
        "The breaker of a channel account, as all processes share it: 0 closed, 1 half open, 2 open.",
        ("platform", "account"),
    ),
    "model_breaker_state": GaugeName(
        "hermes_model_breaker_state",
        "The breaker of a model that a tier uses, as all processes share it: 0 closed, 1 half open, 2 open.",
        ("backend", "model"),
    ),
}


@dataclass(slots=True)
class StoreGauges(Collector):
    """The gauges, with the figures that were read last. Without readers it has no figures, and only names its gauges."""

    readers: Mapping[str, FigureReader] = field(default_factory=dict)
    """By the name of the store. One that fails, or is slower than `timeout_s`, hides its own figures and no others."""
    fresh_s: float = 2.0
    timeout_s: float = 1.0
    _figures: Sequence[StoreFigure] = ()
    _read_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def refresh(self) -> None:
        """Read the figures, unless they are younger than `fresh_s`. Does not raise."""
        async with self._lock:
            if time.monotonic() - self._read_at < self.fresh_s:
                return
            found = await asyncio.gather(*(self._read(store, reader) for store, reader in self.readers.items()))
            # An old figure would look like a healthy queue, so a figure that could not be read is not shown.
            self._figures = [figure for figures in found for figure in figures]
            self._read_at = time.monotonic()

    async def _read(self, store: str, reader: FigureReader) -> Sequence[StoreFigure]:
        try:
            async with asyncio.timeout(self.timeout_s):
                return await reader()
        except Exception as error:  # noqa: BLE001  # when a store cannot be read, the operator needs the other metrics most
            log.warning("figures_unread", store=store, error=type(error).__name__)
            return ()

    def collect(self) -> Iterable[Metric]:
        for figure, gauge in STORE_GAUGES.items():
            family = GaugeMetricFamily(gauge.name, gauge.description, labels=gauge.labels)
            for each in sorted((each for each in self._figures if each.name == figure), key=lambda each: each.labels)[:MAX_GAUGES]:
                family.add_metric([label[:MAX_LABEL_CHARS] for label in each.labels], each.value)
            yield family
