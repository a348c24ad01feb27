"""`hermes alerts` on the real database and a receiver of this test's own; and production without a model."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from click.testing import Result
from typer.testing import CliRunner

from hermes.cli import build_app
from hermes.ops.alert_events import ALERT_KINDS
from hermes.stores.seal import new_master_key
from tests.fakes.alert_receivers import SECRET, SECRETS, SLACK_PATH, AlertReceivers, Fault, open_receivers

Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def command(*words: str, **variables: str) -> Result:
        environ = {"HERMES_HOME": str(tmp_path / "home"), "HERMES_DATABASE_URL": database_url, "HERMES_REDIS_URL": redis_url}
        return CliRunner().invoke(build_app(), list(words), env={**environ, "HERMES_WEB_PORT": "0", **variables})

    return command


@pytest.fixture
def receivers() -> Iterator[AlertReceivers]:
    """The receivers, on an event loop of their own: the command under test has its own."""
    loop, found, is_up, closing = asyncio.new_event_loop(), list[AlertReceivers](), threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with open_receivers() as receivers:
            found.append(receivers)
            is_up.set()
            await closing.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert is_up.wait(20)
    yield found[0]
    loop.call_soon_threadsafe(closing.set)
    thread.join()
    loop.close()
    assert found[0].refused == []


def add_alerts(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            """insert into alerts (event, subject, level, facts, times, last_at, ended_at, ended_by) values
            ('breaker_opened', 'telegram bali', 'warning', '{"failures": 10}', 3, now(), null, null),
            ('disk_nearly_full', E'a\\nb', 'critical', '{}', 1, now() - interval '2 days', now(), 'quiet')"""
        )


def test_a_test_says_for_each_destination_whether_it_arrived(run: Run, receivers: AlertReceivers, tmp_path: Path) -> None:
    (tmp_path / "hermes.toml").write_text(f'[alerts.ops]\nkind = "webhook"\nurl = "{receivers.url}/hook"\n')
    variables = {"HERMES_ALERTS_SLACK_URL": receivers.url + SLACK_PATH, "HERMES_ALERTS_OPS_SECRET": SECRET}
    nowhere = {"HERMES_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}
    result = run("alerts", "test", **variables, **nowhere)
    assert (result.exit_code, sorted(result.stdout.splitlines())) == (0, ["ops: it arrived", "slack: it arrived"])
    assert receivers.arrived["webhook"][0]["type"] == "hermes.alert.test"
    receivers.faults["slack"].append(Fault(404, "no_service"))
    result = run("alerts", "test", "slack", "--json", **variables)
    assert result.exit_code == 1
    assert json.loads(result.stdout) == [
        {"destination": "slack", "arrived": False, "failed": "it did not arrive: it answered 404 (no_service)"}
    ]
    result = run("alerts", "test", "slak", **variables)
    assert (result.exit_code, result.stderr) == (2, "hermes: there is no destination 'slak'; did you mean slack?\n")
    assert not [secret for secret in SECRETS if secret in result.output]


def test_without_a_destination_a_test_says_what_to_set(run: Run) -> None:
    result = run("alerts", "test")
    assert result.exit_code == 2
    assert "HERMES_ALERTS_SLACK_URL" in result.stderr


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('[alerts.ops]\nurl = "https://x/secret-part"', "alerts.ops.kind is missing; expected slack, discord, telegram or webhook"),
        ('[alerts.slack]\nurl = "secret-part"', "alerts.slack.url is no address; expected one such as https://host/path"),
        ('[alerts.ops]\nkind = "telegram"\ntoken = "secret-part"', "alerts.ops.chat is missing; a destination of kind telegram needs it"),
        ('[alerts.ops]\nkind = "telegram"\ntoken = "secret-part"\nchat = "1"', "alerts.ops: this is not the token of a bot"),
        ('[alerts.slack]\nurl = "https://x/"\nsecret = "secret-part"', "alerts.slack.secret is set; a destination of kind slack has none"),
        ('[alerts.slack]\nurl = "https://x/"\nevents = ["breaker_open"]', "there is no alert breaker_open; did you mean breaker_opened?"),
        ('[alerts.webhook]\nurl = "https://x/"\nsecret = "whsec_secret-part!"', "alerts.webhook: a secret that begins with whsec_"),
    ],
)
def test_a_destination_that_cannot_work_is_one_line_without_its_secret(run: Run, tmp_path: Path, table: str, says: str) -> None:
    (tmp_path / "hermes.toml").write_text(f"{table}\n")
    result = run("alerts", "test")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert says in result.stderr
    assert "secret-part" not in result.output


def test_alerts_are_listed_open_ones_first(run: Run, database_url: str) -> None:
    assert run("alerts", "list").stdout == "There is no open alert.\n"
    add_alerts(database_url)
    [alert] = json.loads(run("alerts", "list", "--json").stdout)
    assert (alert["event"], alert["subject"], alert["times"], alert["facts"], alert["ended_at"]) == (
        *("breaker_opened", "telegram bali", 3, {"failures": 10}),
        None,
    )
    assert [each["event"] for each in json.loads(run("alerts", "list", "--all", "--json").stdout)] == ["breaker_opened", "disk_nearly_full"]
    assert [each["event"] for each in json.loads(run("alerts", "list", "--since", "24h", "--json").stdout)] == ["breaker_opened"]
    table = run("alerts", "list", "--all").stdout
    assert len(table.splitlines()) == 3, "a subject stays on its line"
    assert "by quiet" in table
    assert run("alerts", "list", "--all", "--open").exit_code == 2
    assert run("alerts", "list", "--since", "soon").exit_code == 2


def test_an_alert_is_muted_unmuted_and_ended(run: Run, database_url: str) -> None:
    add_alerts(database_url)
    result = run("alerts", "mute", "breaker_opened", "telegram bali", "--for", "2h", "--by", "ada")
    assert result.stdout.startswith("breaker_opened (telegram bali) is muted until ")
    [mute] = json.loads(run("alerts", "mutes", "--json").stdout)
    assert (mute["event"], mute["subject"], mute["by"]) == ("breaker_opened", "telegram bali", "ada")
    assert run("alerts", "unmute", "breaker_opened").exit_code == 2, "every subject is not muted, one is"
    assert run("alerts", "unmute", "breaker_opened", "telegram bali").exit_code == 0
    assert run("alerts", "mutes").stdout == "Nothing is muted.\n"
    assert run("alerts", "mute", "breaker_open").stderr == "hermes: there is no alert 'breaker_open'; did you mean breaker_opened?\n"
    assert run("alerts", "mute", "breaker_opened", "--for", "0h").exit_code == 2
    number = json.loads(run("alerts", "list", "--json").stdout)[0]["id"]
    assert run("alerts", "end", str(number), "--by", "ada").stdout == "breaker_opened has ended: 3 times.\n"
    assert run("alerts", "end", "999").stderr == "hermes: there is no alert 999; `hermes alerts list --all` shows them\n"
    assert run("alerts", "end", "soon").stderr == "hermes: 'soon' is not the number of an alert; `hermes alerts list` shows them\n"
    assert run("alerts", "list").stdout == "There is no open alert.\n"


def test_a_database_of_an_older_version_is_brought_up_to_date(run: Run, empty_database_url: str) -> None:
    result = run("alerts", "list", HERMES_DATABASE_URL=empty_database_url)
    assert (result.exit_code, result.stdout) == (0, "There is no open alert.\n")


def test_a_database_that_cannot_be_reached_is_said_in_one_line(run: Run) -> None:
    result = run("alerts", "list", HERMES_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)


def test_every_event_is_listed_without_a_database(run: Run) -> None:
    listed = json.loads(run("alerts", "events", "--json", HERMES_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none").stdout)
    assert [each["event"] for each in listed] == sorted(ALERT_KINDS)
    assert "breaker_opened (warning)" in run("alerts", "events").stdout


# --- production without a model


@pytest.mark.parametrize("command", ["up", "serve", "worker"])
def test_production_without_a_model_refuses_to_start(run: Run, tmp_path: Path, command: str) -> None:
    result = run(command, HERMES_ENVIRONMENT="production", HERMES_MASTER_KEYS=new_master_key())
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "set ANTHROPIC_API_KEY" in result.stderr
    assert not (tmp_path / "home" / "stores").exists()


def test_commands_that_ask_no_model_need_none_in_production(run: Run) -> None:
    production = {"HERMES_ENVIRONMENT": "production", "HERMES_MASTER_KEYS": new_master_key()}
    assert run("kill-switch", "status", **production).exit_code == 0
