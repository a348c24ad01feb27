"""The page for Prometheus: the families of several processes put together, each series with the process that it comes from.

A family travels between processes as JSON: its name, text, type and samples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

PROCESS = "process"
"""The label that names the process of a series: its role and a small number, `worker-1`. Not a pid: each restart would be a new series."""
CREATED = "_created"


def encode_families(families: Iterable[Metric]) -> bytes:
    """Write families for another process. The times at which counters were made are left out: they would double the series."""
    return json.dumps(
        [
            {
                "name": family.name,
                "documentation": family.documentation,
                "type": family.type,
                "samples": [[sample.name, sample.labels, sample.value] for sample in shown_samples(family)],
            }
            for family in families
        ]
    ).encode()


def decode_families(page: bytes) -> list[Metric]:
    """Read the families of another process. Raises ValueError, KeyError or TypeError if it wrote something else."""
    families = []
    for found in json.loads(page):
        family = Metric(found["name"], found["documentation"], found["type"])
        for name, labels, value in found["samples"]:
            family.add_sample(name, labels, value)
        families.append(family)
    return families


def merge_processes(pages: Mapping[str, Iterable[Metric]]) -> Iterator[Metric]:
    """Yield each family once, with the samples of all processes. An empty name stands for a process that needs none: it is the only one."""
    merged: dict[str, Metric] = {}
    for process, families in pages.items():
        for family in families:
            target = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in shown_samples(family):
                target.add_sample(sample.name, {**sample.labels, PROCESS: process} if process else sample.labels, sample.value)
    yield from merged.values()


def processes_up(states: Mapping[str, bool]) -> Metric:
    """The family that says which processes of this machine answered."""
    family = GaugeMetricFamily("hermes_process_up", "1 if the process answered this scrape, 0 if it is dead or stalled.", labels=[PROCESS])
    for process, is_up in sorted(states.items()):
        family.add_metric([process], float(is_up))
    return family


def write_page(families: Iterable[Metric], accept: str) -> tuple[bytes, str]:
    """Return the page in the format that the client accepts, and its content type."""
    registry = CollectorRegistry()
    registry.register(GivenFamilies(families))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def shown_samples(family: Metric) -> Iterator[Sample]:
    return (sample for sample in family.samples if sample.name != family.name + CREATED)


class GivenFamilies(Collector):
    """A collector of families that were made before."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry would collect the families to learn their names."""
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._families
