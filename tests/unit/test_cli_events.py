"""`hermes events` on the real stores: what it shows, and what it says to bad input."""

import json

import psycopg
import pytest

from tests.unit.test_cli_fleet import Run, run

__all__ = ["run"]


@pytest.fixture(autouse=True)
def swaps(run: Run) -> None:
    for adapter in ("green", "blue"):
        assert run("fleet", "swap", "hermes", "--to", adapter, "--no-canary").exit_code == 0


def test_events_are_shown_with_the_cursor_to_read_on(run: Run) -> None:
    shown = run("events", "--limit", "1")
    [line] = shown.stdout.splitlines()
    cursor = line.split()[0]
    assert "adapter.swapped hermes" in line
    assert "by=ada to=green" in line
    assert shown.stderr.strip() == f"Read on: hermes events --after {cursor}"
    page = json.loads(run("events", "--after", cursor, "--json").stdout)
    assert [(event["event"], event["facts"]["to"]) for event in page["data"]] == [("adapter.swapped", "blue")]
    assert json.loads(run("events", "--after", page["next"], "--json").stdout)["data"] == []


def test_events_can_be_chosen(run: Run, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("insert into process_events (type, facts) values ('process_started', '{\"pid\": 7}')")
    [line] = run("events", "--type", "process.started").stdout.splitlines()
    assert line.endswith("pid=7")
    assert run("events", "--agent", "bali").stdout == ""
    assert len(run("events", "--agent", "hermes").stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--after", "yesterday"), "hermes: 'yesterday' is not a cursor; expected two numbers, such as 742-1803"),
        (("--turn", "7"), "hermes: '7' is not the id of a turn; expected a UUID"),
    ],
)
def test_bad_input_is_refused_in_one_line(run: Run, words: tuple[str, str], fault: str) -> None:
    refused = run("events", *words)
    assert (refused.exit_code, refused.stderr.strip()) == (2, fault)
