"""`hermes console` and `hermes audit` on the real stores: what they do, what they say, and with which code they end."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import Result
from typer.testing import CliRunner

from hermes.cli import build_app

Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a command on stores of this test's own, as ada."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGNAME", "ada")

    def command(*words: str, **variables: str) -> Result:
        environ = {"HERMES_HOME": str(tmp_path / "home"), "HERMES_DATABASE_URL": database_url, "HERMES_REDIS_URL": redis_url}
        return CliRunner().invoke(build_app(list(words)), list(words), env={**environ, **variables})

    handlers = logging.getLogger().handlers[:]
    yield command
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers  # the commands set up a log of their own


def read(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refusal(result: Result) -> str:
    """What a command said that refused bad input."""
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return result.stderr.strip()


def test_the_first_link_makes_its_person_an_owner(run: Run) -> None:
    assert run("console", "operators").stdout == "There is no operator yet; this makes you one: hermes console link\n"
    made = run("console", "link", HERMES_WEB_PUBLIC_URL="https://hermes.example.com/")
    assert re.fullmatch(r"https://hermes\.example\.com/console/enter#[\w-]{43}\n", made.stdout)
    assert "For ada: it works once, within 15 minutes." in made.stderr
    assert [(each["name"], each["role"], each["accounts"]) for each in read(run("console", "operators", "--json"))] == [
        ("ada", "owner", None)
    ]
    again = read(run("console", "link", "--json"))
    assert (again["operator"], again["link"].startswith("http://127.0.0.1:8080/console/enter#")) == ("ada", True)
    assert refusal(run("console", "link", "--name", "grace")) == "hermes: there is no operator grace"
    entries = read(run("audit", "--json"))["data"]
    assert [(entry["operator"], entry["action"], entry["subject"]) for entry in entries] == [
        ("ada@cli", "operator.link", "grace"),
        ("ada@cli", "operator.link", "ada"),
        ("ada@cli", "operator.link", "ada"),
        ("ada", "operator.add", "ada"),
    ]


def test_operators_are_added_changed_and_kept_out(run: Run) -> None:
    added = read(run("console", "operators", "add", "grace@example.com", "--account", "shop", "--account", "bar", "--json"))
    assert (added["role"], added["accounts"], added["created_by"]) == ("viewer", ["bar", "shop"], "ada@cli")
    assert refusal(run("console", "operators", "add", "grace@example.com")) == "hermes: there is an operator grace@example.com already"
    assert "up to 100 letters" in refusal(run("console", "operators", "add", "a b"))
    assert "king" in refusal(run("console", "operators", "role", "grace@example.com", "king"))
    assert run("console", "operators", "role", "grace@example.com", "operator").stdout == "grace@example.com: operator of bar, shop.\n"
    assert run("console", "operators", "accounts", "grace@example.com").stdout == "grace@example.com: operator of all accounts.\n"
    assert refusal(run("console", "operators", "role", "lin", "viewer")) == "hermes: there is no operator lin"
    token = run("console", "token", "grace@example.com", "--for", "grafana", "--days", "30")
    assert re.fullmatch(r"ho_[\w-]{43}\n", token.stdout)
    [stored] = read(run("console", "tokens", "--json"))
    assert (stored["operator"], stored["for"], stored["kind"]) == ("grace@example.com", "grafana", "token")
    assert run("console", "revoke", stored["id"]).stdout == f"The token {stored['id']} of grace@example.com is revoked.\n"
    assert run("console", "tokens").stdout == "There is no token; make one: hermes console token NAME\n"
    assert run("console", "sessions").stdout == "No browser is signed in; make a link: hermes console link\n"
    assert refusal(run("console", "revoke", "ffff")) == "hermes: there is no link, session or token ffff"
    read(run("console", "token", "grace@example.com", "--json"))
    assert run("console", "operators", "disable", "grace@example.com").stdout == "grace@example.com: disabled.\n"
    assert read(run("console", "tokens", "--json")) == []
    assert "is disabled; enable them first" in refusal(run("console", "link", "--name", "grace@example.com"))
    assert run("console", "operators", "enable", "grace@example.com").stdout == "grace@example.com: operator of all accounts.\n"
    assert read(run("console", "tokens", "--json")) == [], "what was revoked stays so"


def test_the_audit_log_is_filtered_and_read_by_page(run: Run) -> None:
    for name in ("one", "two", "three"):
        run("console", "operators", "add", name)
    page = read(run("audit", "--action", "operator.add", "--limit", "2", "--json"))
    assert [entry["subject"] for entry in page["data"]] == ["three", "two"]
    last = read(run("audit", "--action", "operator.add", "--before", page["next"], "--json"))
    assert ([entry["subject"] for entry in last["data"]], last["next"]) == (["one"], None)
    assert run("audit", "--refused").stdout == "No entry matches.\n"
    assert run("audit", "--operator", "grace").stdout == "No entry matches.\n"
    assert run("audit", "--since", "2030-01-01").stdout == "No entry matches.\n"
    assert len(run("audit", "--subject", "two", "--since", "1h").stdout.splitlines()) == 2
    assert "expected a UUID" in refusal(run("audit", "--user", "ada"))
