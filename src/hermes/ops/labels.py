"""Metrics whose labels cannot grow without end: each family has a bounded number of series, and what comes after that is counted together.

Most labels have few values by nature (steps, outcomes, routes). Others are named by users and operators (models, accounts, tiers), and each
new value would be a series that Prometheus keeps for weeks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from threading import Lock
from typing import Self

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

MAX_SERIES = 300
"""Label sets in one family of counters or gauges."""
MAX_HISTOGRAMS = 100
"""Label sets in one family of histograms: each of them has a series for each bucket."""
MAX_LABEL_CHARS = 120
"""Characters of a label's value; a longer one is cut."""
OTHER = "other"
"""The value of every label in the series that takes what is too much."""


class LabelLimit:
    """Decides which label sets of one family have a series of their own: the first ones, up to a number. May be used from any thread."""

    def __init__(self, max_series: int) -> None:
        self._max_series, self._known, self._lock = max_series, set[tuple[str, ...]](), Lock()

    def admit(self, values: tuple[object, ...], named: Mapping[str, object]) -> tuple[tuple[object, ...], dict[str, str]]:
        """Return the labels as they are shown, by place and by name: their own values, or OTHER for each of them."""
        names = sorted(named)
        shown = tuple(str(value)[:MAX_LABEL_CHARS] for value in (*values, *(named[name] for name in names)))
        if shown not in self._known:
            with self._lock:
                if len(self._known) < self._max_series:
                    self._known.add(shown)
                elif shown not in self._known:
                    shown = (OTHER,) * len(shown)
        return shown[: len(values)], dict(zip(names, shown[len(values) :], strict=True))


class BoundedSeries(MetricWrapperBase):
    """A family with at most `max_series` label sets, and one more for the rest. It finds the series of a label set that came before in one
    look: the library makes texts of the labels and takes a lock each time."""

    max_series = MAX_SERIES

    @cached_property
    def limit(self) -> LabelLimit:
        return LabelLimit(self.max_series)

    @cached_property
    def known(self) -> dict[tuple[object, ...], Self]:
        return {}

    def labels(self, *values: object, **named: object) -> Self:
        if not named and (series := self.known.get(values)) is not None:  # nearly every call
            return series
        shown, shown_by_name = self.limit.admit(values, named)
        series = super().labels(*shown, **shown_by_name)
        if shown == values and not named:
            self.known[values] = series
        return series


class BoundedCounter(BoundedSeries, Counter):
    """A counter with a bounded number of series."""


class BoundedGauge(BoundedSeries, Gauge):
    """A gauge with a bounded number of series."""


class BoundedHistogram(BoundedSeries, Histogram):
    """A histogram with a bounded number of series."""

    max_series = MAX_HISTOGRAMS
