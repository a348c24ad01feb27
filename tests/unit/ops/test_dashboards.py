"""The dashboards and rules in deploy/: whole, explained, and about metrics that exist. Prometheus' own checks run where it is installed."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hermes.ops.metrics import metric_families

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
PROMETHEUS = DEPLOY / "prometheus"
FROM_PROMETHEUS = {"up", "ALERTS"}
METRIC = re.compile(r"\b(?:hermes|process)_[a-z0-9_]+\b")
RECORDED = re.compile(r"\bhermes:[a-z0-9_:]+\b")


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load((PROMETHEUS / "rules.yml").read_text(encoding="utf-8"))["groups"]:
        yield from group["rules"]


def series_names() -> set[str]:
    """Every name that a page can show, as Prometheus stores it."""
    names = set()
    for family in metric_families():
        endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        names |= {family.name + ending for ending in endings}
    return names


def queries() -> list[str]:
    boards = [target["expr"] for path in DASHBOARDS for panel in load(path)["panels"] for target in panel["targets"]]
    return [*boards, *(rule["expr"] for rule in rules())]


def labels_of(expression: str) -> str:
    """An expression without its labels and texts, so that only names of metrics are left."""
    return re.sub(r"\b(?:by|on|without|ignoring) \([^)]*\)", "", re.sub(r"\{[^}]*\}", "", expression))


def test_there_are_five_dashboards() -> None:
    assert [path.stem for path in DASHBOARDS] == ["delivery", "fleet", "latency", "money", "traffic"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_can_be_loaded_by_any_grafana(path: Path) -> None:
    board = load(path)
    assert (board["uid"], board["schemaVersion"] >= 41) == (f"hermes-{path.stem}", True)
    assert [variable["type"] for variable in board["templating"]["list"]] == ["datasource"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in board["panels"]:
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]


def test_every_query_is_about_metrics_that_exist() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    known = series_names() | {"process_cpu_seconds_total", "process_resident_memory_bytes"}
    for query in queries():
        bare = labels_of(query)
        assert {name for name in METRIC.findall(bare) if name not in known} == set(), query
        assert set(RECORDED.findall(bare)) <= recorded, query


def test_every_metric_is_on_a_dashboard_or_in_a_rule() -> None:
    used = " ".join(queries())
    not_shown = {
        "hermes_breaker_open",  # of one process; the dashboards show the state that all processes share
    }
    names = {family.name for family in metric_families() if family.name.startswith("hermes_")}
    assert {name for name in names if not re.search(rf"\b{name}(_total|_bucket|_sum|_count)?\b", used)} == not_shown


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len(alerts) > 15
    for alert in alerts:
        assert alert["labels"]["severity"] in {"warning", "critical"}
        assert set(alert["annotations"]) == {"summary", "description"}
    tested = (PROMETHEUS / "rules_test.yml").read_text(encoding="utf-8")
    assert [alert["alert"] for alert in alerts if f'alertname="{alert["alert"]}"' not in tested] == []


@pytest.mark.parametrize(
    "words", [("check", "config", "prometheus.yml"), ("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml")]
)
def test_prometheus_accepts_the_configuration_and_the_rules(words: tuple[str, ...]) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed; Debian has it in the package prometheus")
    checked = subprocess.run([program, *words], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
