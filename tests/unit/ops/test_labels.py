"""Labels are bounded: hostile values make no series without end."""

from prometheus_client import CollectorRegistry

from hermes.ops.labels import MAX_HISTOGRAMS, MAX_LABEL_CHARS, MAX_SERIES, BoundedCounter, BoundedGauge, BoundedHistogram
from hermes.ops.metrics import Metrics
from hermes.ops.store_gauges import MAX_GAUGES, StoreGauges
from hermes.ports.figures import StoreFigure


def series(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value for family in registry.collect() for sample in family.samples if sample.name == name
    }


def test_a_counter_has_the_first_label_sets_and_one_for_the_rest() -> None:
    registry = CollectorRegistry()
    counter = BoundedCounter("calls", "Calls.", ["backend", "tier"], registry=registry)
    for number in range(MAX_SERIES + 50):
        counter.labels(f"model-{number}", "pro").inc()
    counter.labels("model-3", "pro").inc()
    found = series(registry, "calls_total")
    assert len(found) == MAX_SERIES + 1
    assert (found["model-3", "pro"], found["other", "other"]) == (2, 50)
    assert sum(found.values()) == MAX_SERIES + 51


def test_a_long_value_is_cut() -> None:
    registry = CollectorRegistry()
    BoundedGauge("slots", "Slots.", ["backend"], registry=registry).labels("x" * 10_000).set(1)
    assert list(series(registry, "slots")) == [("x" * MAX_LABEL_CHARS,)]


def test_names_may_be_given_in_any_order() -> None:
    registry = CollectorRegistry()
    counter = BoundedCounter("calls", "Calls.", ["backend", "tier"], registry=registry)
    counter.labels(tier="pro", backend="haiku").inc()
    counter.labels(backend="haiku", tier="pro").inc()
    assert series(registry, "calls_total") == {("haiku", "pro"): 2}


def test_a_histogram_has_fewer_because_each_is_many_series() -> None:
    registry = CollectorRegistry()
    histogram = BoundedHistogram("seconds", "Seconds.", ["route"], registry=registry)
    for number in range(MAX_HISTOGRAMS + 5):
        histogram.labels(f"/{number}").observe(1)
    found = series(registry, "seconds_count")
    assert (len(found), found["other",]) == (MAX_HISTOGRAMS + 1, 5)


def test_every_family_of_hermes_is_bounded() -> None:
    labelled = [family for family in vars(Metrics()).values() if getattr(family, "_labelnames", ())]
    assert len(labelled) > 10
    assert [family for family in labelled if not isinstance(family, (BoundedCounter, BoundedGauge, BoundedHistogram))] == []


async def test_the_stores_cannot_make_series_without_end() -> None:
    async def read() -> list[StoreFigure]:
        return [StoreFigure("breaker_state", ("telegram", f"account-{number:04}"), 0.0) for number in range(MAX_GAUGES + 10)]

    gauges = StoreGauges({"redis": read})
    await gauges.refresh()
    [family] = [family for family in gauges.collect() if family.name == "hermes_breaker_state"]
    assert len(family.samples) == MAX_GAUGES
