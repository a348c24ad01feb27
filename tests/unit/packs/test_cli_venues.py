"""`hermes venues` on the real stores: what it brings in, what it says, and with which code it ends."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from click.testing import Result
from typer.testing import CliRunner

from hermes.cli import build_app

Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a command on stores of this test's own."""
    monkeypatch.chdir(tmp_path)

    for name, value in (("HOME", str(tmp_path / "home")), ("DATABASE_URL", database_url), ("REDIS_URL", redis_url)):
        monkeypatch.setenv(f"HERMES_{name}", value)

    def command(*words: str) -> Result:
        return CliRunner().invoke(build_app(list(words)), list(words))

    handlers = logging.getLogger().handlers[:]
    yield command
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers  # the commands set up a log of their own


def test_the_sample_set_is_brought_in_and_listed(run: Run) -> None:
    first = run("venues", "sample")
    assert (first.exit_code, first.stderr) == (0, "")
    assert first.stdout == "New: 62 places, 60 products, 152 foods. Try it: hermes venues list Canggu\n"
    assert json.loads(run("venues", "sample", "--json").stdout) == {"venues": 0, "products": 0, "foods": 0}
    found = json.loads(run("venues", "list", "canggu", "--json").stdout)
    assert len(found) == 15
    assert found[0]["name"] == "Driftwood Deck"


def test_a_file_is_brought_in_whole_or_not_at_all(run: Run, tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text("name,latitude,longitude,area\nPho,-8.65,115.13,Canggu\nBun,-8.66,115.14,Canggu\n")
    assert run("venues", "import", "good.csv").stdout == "2 places: 2 new, 0 updated.\n"
    assert json.loads(run("venues", "import", "good.csv", "--json").stdout) == {"read": 2, "new": 0, "updated": 2}
    (tmp_path / "bad.csv").write_text("name,latitude,longitude\nTea,1,2\nHot,here,2\n")
    bad = run("venues", "import", "bad.csv")
    assert (bad.exit_code, bad.stderr) == (2, "hermes: bad.csv: line 3: latitude must be a number from -90 to 90, not 'here'\n")
    assert run("venues", "import", "none.csv").stderr == "hermes: cannot read none.csv: No such file or directory\n"
    assert [venue["name"] for venue in json.loads(run("venues", "list", "--json").stdout)] == ["Bun", "Pho"]


def test_geojson_is_brought_in_too(run: Run, tmp_path: Path) -> None:
    feature = {"properties": {"name": "Kafe", "amenity": "cafe"}, "geometry": {"type": "Point", "coordinates": [115.1, -8.6]}}
    (tmp_path / "map.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    assert run("venues", "import", "map.geojson").exit_code == 0
    [venue] = json.loads(run("venues", "list", "--json").stdout)
    assert (venue["category"], venue["timezone"], venue["at"]) == ("cafe", "Asia/Makassar", {"latitude": -8.6, "longitude": 115.1})


def test_the_sample_shows_the_columns(run: Run) -> None:
    printed = run("venues", "sample", "--print").stdout
    assert printed.startswith("id,name,category,area,city,latitude,longitude,timezone,hours,price_level,tags,about,address,phone,url\n")
    assert run("venues", "list").stdout == "There are no places here; import some: hermes venues import FILE, or hermes venues sample\n"


def test_a_table_of_places_is_whole_in_a_pipe_and_cannot_control_the_terminal(run: Run, tmp_path: Path) -> None:
    name, area = "The [b]House[/b] of a Hundred Lanterns and One Very Long Name", "\x1b[31mCanggu"
    (tmp_path / "one.csv").write_text(f"id,name,latitude,longitude,area,tags\nlanterns-by-the-long-beach,{name},-8.65,115.13,{area},bar\n")
    assert run("venues", "import", "one.csv").exit_code == 0
    [_, row] = run("venues", "list").stdout.splitlines()
    assert row.startswith(name)
    assert row.rstrip().endswith("lanterns-by-the-long-beach")
    assert "\x1b" not in row


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("HERMES_PACKS_ENABLED", "none", "venues is a command of the pack concierge, which is off; add it to packs.enabled"),
        ("HERMES_ENVIRONMENT", "production", "venues is a command of the pack concierge, which is off; add it to packs.enabled"),
        ("HERMES_PACKS_ENABLED", "conciege", "packs.enabled: there is no pack 'conciege'; did you mean 'concierge'?"),
        ("HERMES_PACKS_ENABLED", "concierge,no:PACK", "packs.enabled: the pack 'no:PACK' cannot be loaded: No module named 'no'"),
        ("HERMES_PACKS_ENABLED", "concierge,concierge", "packs.enabled: two packs have the name 'concierge'; name each pack once"),
        ("HERMES_WEB_PORT", "abc", "HERMES_WEB_PORT is 'abc'; expected a whole number from 0 to 65535"),
    ],
)
def test_a_command_of_a_pack_that_is_not_on_says_why(
    run: Run, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, complaint: str
) -> None:
    monkeypatch.setenv(variable, value)
    refused = run("venues", "list")
    assert (refused.exit_code in {1, 2}, refused.stdout, refused.stderr) == (True, "", f"hermes: {complaint}\n")
