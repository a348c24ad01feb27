"""The chart of costs: bars that add up, a cap that is drawn where it can be read, and links to the turns behind a bar."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from hermes.console.amounts import quote_formula
from hermes.console.costs import CostReport, fill_bars, write_csv
from hermes.ports.costs import CostDimension, CostPart, CostRow, CostUnit, CostWindow
from hermes.web.console.cost_chart import HEIGHT, color_place, draw_chart, round_up, show_change, show_exact_usd, time_href

DAY = datetime(2026, 11, 16, tzinfo=UTC)
WINDOW = CostWindow(
    since=datetime(2026, 11, 15, tzinfo=UTC), until=datetime(2026, 11, 16, 16, tzinfo=UTC), before=datetime(2026, 11, 13, tzinfo=UTC)
)
PARTS = [CostPart(DAY, "bali", 60, 2), CostPart(DAY, None, 40, 1)]
SERIES = ("bali", None)
REPORT = CostReport(
    by=CostDimension.AGENT,
    window=WINDOW,
    unit=CostUnit.DAY,
    rows=[
        CostRow(value="bali", values=1, micro_usd=60, micro_usd_before=30, calls=2),
        CostRow(value=None, values=4, micro_usd=40, micro_usd_before=0),
    ],
    series=SERIES,
    bars=fill_bars(WINDOW, CostUnit.DAY, PARTS, SERIES),
    names={},
    micro_usd_before=30,
)


def test_a_bar_is_as_high_as_its_money_and_links_to_its_turns() -> None:
    chart = draw_chart(REPORT, None)
    empty, full = chart.bars
    assert (empty.parts, empty.micro_usd, full.micro_usd, chart.top) == ([], 0, 100, 100)
    assert [(part.y, part.height) for part in full.parts] == [(40.0, 60.0), (0.0, 40.0)]
    assert [part.href for part in full.parts] == [
        "/console/turns?agent=bali&purpose=any&since=2026-11-16T00:00Z&until=2026-11-17T00:00Z",
        "",
    ]
    assert [color_place(REPORT, value) for value in ("bali", "vera", None)] == [0, 6, 6]
    assert time_href("2026-11-16T15:00Z") == "/console/turns?purpose=any&since=2026-11-16T15:00Z&until=2026-11-16T16:00Z"


@pytest.mark.parametrize(("cap", "is_drawn"), [(None, False), (50, True), (300, True), (301, False), (0, False)])
def test_a_cap_is_drawn_unless_it_would_make_all_bars_flat(cap: int | None, *, is_drawn: bool) -> None:
    chart = draw_chart(REPORT, cap)
    assert (chart.cap_y is not None) == is_drawn
    assert all(0 <= y <= HEIGHT for y in (chart.cap_y, chart.warn_y) if y is not None)
    assert draw_chart(replace(REPORT, unit=CostUnit.HOUR), cap).cap_y is None


def test_amounts_and_changes_are_easy_to_read() -> None:
    assert [round_up(amount) for amount in (0, 1, 100, 101, 233_000, 10**12)] == [100, 100, 100, 120, 240_000, 10**12]
    changes = {(0, 0): "", (5, 0): "new", (112, 100): "+12 %", (1, 100): "\N{MINUS SIGN}99 %", (100, 100): "same"}
    assert {pair: show_change(*pair) for pair in changes} == changes
    assert show_exact_usd(1_234_567_000_010) == "$1,234,567.000010"


def test_csv_has_every_row_and_runs_no_formula() -> None:
    assert write_csv(REPORT).splitlines() == ["agent,micro_usd,micro_usd_before,calls", "bali,60,30,2", "(others),40,0,"]
    key = "00000000-0000-0000-0000-000000000007"
    of_key = replace(REPORT, by=CostDimension.KEY, rows=[replace(REPORT.rows[0], value=key)], names={key: "=cmd()"})
    assert write_csv(of_key).splitlines()[1] == f"{key},'=cmd(),60,30,2"
    assert [quote_formula(text) for text in ("=1", "+1", "-1", "@a", "a=1", "")] == ["'=1", "'+1", "'-1", "'@a", "a=1", ""]
