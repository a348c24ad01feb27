"""The page about monitoring lists every metric as the registry has it.

`python -m tests.unit.ops.test_monitor_page` writes its table anew."""

import re
from pathlib import Path

from hermes.ops.metrics import Metrics, metric_families
from hermes.ops.metrics_page import PROCESS
from hermes.ops.store_gauges import STORE_GAUGES

PAGE = Path(__file__).parents[3] / "docs/operate/monitor.md"
RULES = Path(__file__).parents[3] / "deploy/prometheus/rules.yml"
BEGIN, END = "<!-- metrics: written by python -m tests.unit.ops.test_monitor_page -->\n", "<!-- end of metrics -->"


def label_names() -> dict[str, tuple[str, ...]]:
    """The labels of each family, as they stand on the page of a web."""
    own = {
        family._name: (*family._labelnames, PROCESS)
        for family in vars(Metrics()).values()
        if getattr(family, "_name", "").startswith("hermes_")
    }
    return own | {gauge.name: gauge.labels for gauge in STORE_GAUGES.values()} | {"hermes_process_up": (PROCESS,)}


def table() -> str:
    labels = label_names()
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for family in metric_families():
        if family.name.startswith("hermes_"):
            shown = ", ".join(f"`{label}`" for label in labels[family.name])
            lines.append(f"| `{family.name}` | {family.type} | {shown} | {family.documentation} |")
    return "\n".join(lines) + "\n"


def test_the_page_lists_every_metric_with_its_labels_and_its_meaning() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.partition(BEGIN)[2].partition(END)[0] == table(), "write it anew: python -m tests.unit.ops.test_monitor_page"
    assert table().count("\n") > 30


def test_the_page_names_every_alert() -> None:
    page, rules = PAGE.read_text(encoding="utf-8"), RULES.read_text(encoding="utf-8")
    assert [name for name in re.findall(r"alert: (\w+)", rules) if f"`{name}`" not in page] == []


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2], encoding="utf-8")
