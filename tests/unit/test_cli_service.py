"""The commands of the service: keys and doctor on the real stores, and what they say when something is wrong."""

import json
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from click.testing import Result
from typer.testing import CliRunner

from hermes.cli import build_app
from hermes.stores.seal import MasterKeys

Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on stores of this test's own, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def command(*words: str, **variables: str) -> Result:
        environ = {"HERMES_HOME": str(tmp_path / "home"), "HERMES_DATABASE_URL": database_url, "HERMES_REDIS_URL": redis_url}
        return CliRunner().invoke(build_app(), list(words), env={**environ, "HERMES_WEB_PORT": "0", **variables})

    return command


def test_a_key_is_made_shown_once_listed_and_revoked(run: Run) -> None:
    made = run("keys", "create", "shop", "--account", "bali")
    secret = made.stdout.strip()
    assert made.exit_code == 0
    assert secret.startswith("hk_")
    assert "not shown again: " not in made.stderr
    assert "not shown again. Limits: dollars a day $5.00." in made.stderr
    [listed] = json.loads(run("keys", "list", "--json").stdout)
    assert (listed["name"], listed["account"], listed["prefix"], listed["revoked_at"]) == ("shop", "bali", secret[:11], None)
    assert secret not in run("keys", "list").stdout
    assert run("keys", "revoke", "shop").stdout == f"shop ({secret[:11]}…) is revoked.\n"
    assert json.loads(run("keys", "list", "--json").stdout)[0]["revoked_at"] is not None


def test_the_limits_of_a_key_are_set_shown_with_what_is_used_and_changed(run: Run) -> None:
    limits = ["--usd-per-day", "12.5", "--rpm", "600", "--at-once", "8", "--users", "acme-*", "--channels", "support", "--expires", "30d"]
    made = json.loads(run("keys", "create", "acme", *limits, "--networks", "10.0.0.0/8,::1", "--models", "claude-haiku", "--json").stdout)
    assert made["channels"] == ["support"]
    assert {name: made["limits"][name] for name in ("usd_per_day", "usd_per_month", "rpm", "at_once", "models", "users", "networks")} == {
        "usd_per_day": 12.5,
        "usd_per_month": None,
        "rpm": 600,
        "at_once": 8,
        "models": ["claude-haiku"],
        "users": ["acme-*"],
        "networks": ["10.0.0.0/8", "::1"],
    }
    shown = {line.split("  ")[0]: line.split()[-1] for line in run("keys", "show", "acme").stdout.splitlines() if "  " in line}
    assert (shown["dollars a day"], shown["requests a minute"], shown["users"]) == ("$12.50", "600", "acme-*")
    changed = run("keys", "set", "acme", "--usd-per-day", "none", "--rpm", "5", "--channels", "none")
    assert changed.stdout.startswith(
        f"acme ({made['prefix']}…): requests a minute 5, calls at once 8, models claude-haiku, users acme-*, networks"
    )
    again = json.loads(run("keys", "show", "acme", "--json").stdout)
    assert (again["limits"]["usd_per_day"], again["channels"], again["used"]["rpm"], again["used"]["usd_per_day"]) == (None, None, 0, 0.0)
    assert run("keys", "show", "acme", HERMES_REDIS_URL="unix:///nowhere").exit_code == 0, "the limits are in PostgreSQL"
    for words, reason in (
        (("--usd-per-day", "-1"), "hermes: --usd-per-day: '-1' is no amount; expected US dollars such as 5 or 0.25, or none\n"),
        (("--models", "claude-hiaku"), "hermes: there is no model 'claude-hiaku'; did you mean claude-haiku?\n"),
        ((), "hermes: name what to change, such as --usd-per-day 10 or --rpm none; `hermes keys show` shows what is set\n"),
    ):
        refused = run("keys", "set", "acme", *words)
        assert (refused.exit_code, refused.stderr) == (2, reason)


def test_the_list_of_keys_has_one_cell_under_each_heading_and_is_not_cut_in_a_pipe(run: Run) -> None:
    name = "a-name-that-is-longer-than-the-names-of-most-keys"
    made = json.loads(run("keys", "create", name, "--trains", "--json").stdout)
    headings, row = (re.split(" {2,}", line.strip()) for line in run("keys", "list", COLUMNS="40").stdout.splitlines())
    assert len(row) == len(headings) == 11
    shown = dict(zip(headings, row, strict=True))
    assert (shown["name"], shown["id"], shown["trains"], shown["last used"], shown["state"]) == (name, made["id"], "yes", "never", "active")


def test_a_command_that_answers_no_message_starts_no_mcp_server(run: Run, tmp_path: Path) -> None:
    (tmp_path / "hermes.toml").write_text(f'[mcp.maps]\ncommand = ["touch", "{tmp_path / "started"}"]\n')
    assert run("keys", "list").exit_code == 0
    assert not (tmp_path / "started").exists()


def test_an_empty_list_says_how_to_begin(run: Run) -> None:
    assert run("keys", "list").stdout == "There is no API key yet; create one: hermes keys create NAME\n"


def test_a_key_that_is_not_there_is_one_line_and_code_2(run: Run) -> None:
    result = run("keys", "revoke", "ship")
    assert (result.exit_code, result.stderr) == (2, "hermes: there is no API key 'ship'; `hermes keys list` shows their ids\n")


def test_the_master_key_is_made_in_the_home_for_its_owner_alone(run: Run, tmp_path: Path) -> None:
    run("users", "list")
    file = tmp_path / "home" / "master.key"
    first = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    run("users", "list")
    assert file.read_text() == first
    assert [path.name for path in file.parent.iterdir() if path.name.startswith("master")] == ["master.key"]


def test_production_refuses_to_start_without_a_master_key(run: Run, tmp_path: Path) -> None:
    result = run("users", "list", HERMES_ENVIRONMENT="production")
    assert result.exit_code == 2
    assert "hermes keys new-master" in result.stderr
    assert not (tmp_path / "home").exists()
    key = run("keys", "new-master").stdout.strip()
    assert run("users", "list", HERMES_ENVIRONMENT="production", HERMES_MASTER_KEYS=key).exit_code == 0


def test_a_malformed_master_key_is_refused_and_not_echoed(run: Run) -> None:
    result = run("users", "list", HERMES_MASTER_KEYS="hunter2")
    assert result.exit_code == 2
    assert "hunter2" not in result.output


def test_master_keys_are_rotated(run: Run, database_url: str) -> None:
    old, new = (run("keys", "new-master").stdout.strip() for _ in range(2))
    assert run("keys", "rewrap", HERMES_MASTER_KEYS=old).stdout == "0 data keys are wrapped by the first master key now.\n"
    with psycopg.connect(database_url) as connection:
        connection.execute("insert into users (state, referral_code) values ('active', 'x')")
    assert run("keys", "rewrap", HERMES_MASTER_KEYS=f"{new},{old}").exit_code == 0


def test_every_fault_of_the_settings_is_a_line_and_code_2(run: Run, tmp_path: Path) -> None:
    (tmp_path / "hermes.toml").write_text("[web]\nprot = 1\n")
    result = run("up", HERMES_WEB_HOTS="x")
    assert result.exit_code == 2
    assert "did you mean HERMES_WEB_HOSTS?" in result.stderr
    assert "did you mean web.port?" in result.stderr
    assert all(line.startswith("hermes: ") for line in result.stderr.splitlines())


def test_a_database_that_is_not_there_is_one_line_and_code_1(run: Run) -> None:
    result = run("keys", "list", HERMES_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert result.exit_code == 1
    assert result.stderr.startswith("hermes: PostgreSQL cannot be used")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HERMES_DATABASE_URL", "postgres//u:s3cret@db/x"),
        ("HERMES_DATABASE_URL", "postgresql://u:s3cret@db:port/x?sslmode"),
        ("HERMES_REDIS_URL", "localhost:6379"),
        ("HERMES_REDIS_URL", "redis://:s3cret/ss@cache"),
    ],
)
@pytest.mark.parametrize("command", [("users", "show", "ann"), ("doctor",)], ids=" ".join)
def test_what_is_no_address_is_one_line_without_its_password(run: Run, variable: str, value: str, command: tuple[str, ...]) -> None:
    result = run(*command, **{variable: value})
    assert result.exit_code in {1, 2}
    assert f"{variable} is no" in result.output
    assert "s3cret" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_data_under_another_master_key_is_not_started_on(run: Run, database_url: str) -> None:
    ours, other = (run("keys", "new-master").stdout.strip() for _ in range(2))
    name = MasterKeys.parse([other]).current
    with psycopg.connect(database_url) as connection:
        connection.execute("insert into users (id, state, referral_code) values (gen_random_uuid(), 'active', 'x')")
        connection.execute("insert into data_keys select id, 1, %s, '' from users", [name])
    result = run("users", "show", "ann", HERMES_MASTER_KEYS=ours)
    assert result.exit_code == 2
    assert f"sealed under master keys that are not set ({name})" in result.stderr
    findings = {finding["part"]: finding for finding in json.loads(run("doctor", "--json", HERMES_MASTER_KEYS=ours).stdout)}
    assert findings["sealed data"]["health"] == "bad"
    assert run("fleet", "list", HERMES_MASTER_KEYS=f"{ours},{other}").exit_code == 0


def test_a_role_that_may_make_nothing_is_told_what_it_lacks(run: Run, empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("drop role if exists poor")
        connection.execute("create role poor login")
    result = run("keys", "list", HERMES_DATABASE_URL=f"{empty_database_url} user=poor")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "grant create on schema public" in result.stderr


def test_the_doctor_finds_everything_well(run: Run) -> None:
    findings = json.loads(run("doctor", "--json").stdout)
    assert {finding["part"]: finding["health"] for finding in findings} == {
        "python": "good",
        "home": "good",
        "master key": "good",
        "web": "good",
        "postgres": "good",
        "schema": "good",
        "vault": "good",
        "credits": "good",
        "workers": "warning",
        "redis": "good",
        "models": "good",
    }
    shown = run("doctor")
    assert shown.exit_code == 0
    assert "none is running; 0 messages wait, 0 were given up" in shown.stdout
    assert "start one: hermes up, or hermes worker" in shown.stdout
    said = [finding["says"] for finding in findings if finding["part"] == "models"]
    assert said[0] == "anthropic: no key; scripted answers instead; its answers are not training data"
    assert said[-1] == "scripted answers"


def test_the_doctor_says_which_tier_nobody_answers_for(run: Run) -> None:
    result = run("doctor", "--json", HERMES_ENVIRONMENT="production", HERMES_MASTER_KEYS=run("keys", "new-master").stdout.strip())
    bad = [finding["says"] for finding in json.loads(result.stdout) if finding["health"] == "bad"]
    assert (result.exit_code, bad[0]) == (1, "tier free has no model that can be asked")


def test_the_doctor_reports_an_unknown_pack_once_and_blames_no_other_part(run: Run) -> None:
    result = run("doctor", "--json", HERMES_PACKS_ENABLED="conciergerie")
    bad = [(finding["part"], finding["says"]) for finding in json.loads(result.stdout) if finding["health"] == "bad"]
    assert (result.exit_code, bad) == (1, [("packs", "packs.enabled: there is no pack 'conciergerie'; did you mean 'concierge'?")])


def test_the_doctor_says_what_to_do(run: Run, database_url: str, tmp_path: Path) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("insert into schema_migrations (name, digest) values ('9999_wings', '')")
    environ = {"HERMES_REDIS_URL": f"unix://{tmp_path}/nowhere.sock", "HERMES_MASTER_KEYS": "hunter2"}
    result = run("doctor", "--json", **environ)
    findings = {finding["part"]: finding for finding in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert (findings["postgres"]["health"], findings["postgres"]["says"]) == (
        "bad",
        "the database was made by a newer Hermes (9999_wings); upgrade this Hermes",
    )
    assert findings["redis"]["health"] == "warning"
    assert findings["master key"]["health"] == "bad"
    assert all(finding["advice"] for finding in findings.values() if finding["health"] != "good")
    assert "hunter2" not in result.output


STANDS_BACK = """
import os
from pathlib import Path
from hermes.cli.service import lower_priority

before = os.getpriority(os.PRIO_PROCESS, 0)
lower_priority(5)
print(os.getpriority(os.PRIO_PROCESS, 0) - before)
group = Path("/proc/self/autogroup")  # there is none outside Linux, and it is empty where sessions are not weighed
print([5, *group.read_text().split()][-1] if group.exists() else 5)
"""


def test_a_worker_stands_back_also_where_sessions_are_weighed_against_each_other() -> None:
    command = [sys.executable, "-c", STANDS_BACK]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, start_new_session=True)
    assert done.stdout.split() == ["5", "5"]
