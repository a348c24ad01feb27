"""Metrics whose labels cannot grow without end: each family has a bounded number of series, and what comes after that is counted together.

Most labels have few values by nature (steps, outcomes, routes). Others are named by users and operators (models, accounts, tiers), and each
new value would be a series that Prometheus keeps for weeks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from threading import Lock
from typing import Generic, Self, TypeVar

from prometheus_client import Counter, Gauge, Histogram

Series = TypeVar("Series")

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
        if not named and values in self._known:
            return values, {}
        names = sorted(named)
        shown = tuple(str(value)[:MAX_LABEL_CHARS] for value in (*values, *(named[name] for name in names)))
        if shown not in self._known:
            with self._lock:
                if len(self._known) < self._max_series:
                    self._known.add(shown)
                elif shown not in self._known:
                    shown = (OTHER,) * len(shown)
        return shown[: len(values)], dict(zip(names, shown[len(values) :], strict=True))


class BoundedCounter(Counter):
    """A counter with at most MAX_SERIES label sets, and one more for the rest."""

    @cached_property
    def known(self) -> KnownSeries[Self]:
        return KnownSeries(MAX_SERIES, super().labels)

    def labels(self, *values: object, **named: object) -> Self:
        return self.known.find(values, named)


class BoundedGauge(Gauge):
    """A gauge with at most MAX_SERIES label sets, and one more for the rest."""

    @cached_property
    def known(self) -> KnownSeries[Self]:
        return KnownSeries(MAX_SERIES, super().labels)

    def labels(self, *values: object, **named: object) -> Self:
        return self.known.find(values, named)


class BoundedHistogram(Histogram):
    """A histogram with at most MAX_HISTOGRAMS label sets, and one more for the rest."""

    @cached_property
    def known(self) -> KnownSeries[Self]:
        return KnownSeries(MAX_HISTOGRAMS, super().labels)

    def labels(self, *values: object, **named: object) -> Self:
        return self.known.find(values, named)


class KnownSeries(Generic[Series]):
    """Finds the series of a label set of one family. Holds those that have labels of their own: the library makes their key anew each
    time, and a turn counts twenty times."""

    def __init__(self, max_series: int, make: Callable[..., Series]) -> None:
        self._limit, self._make = LabelLimit(max_series), make
        self._held: dict[tuple[object, ...], Series] = {}

    def find(self, values: tuple[object, ...], named: Mapping[str, object]) -> Series:
        found = None if named else self._held.get(values)
        if found is not None:  # nearly every call
            return found
        shown, shown_by_name = self._limit.admit(values, named)
        found = self._make(*shown, **shown_by_name)
        if not named and shown == values:
            self._held[values] = found
        return found
