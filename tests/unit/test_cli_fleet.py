"""`hermes fleet` and `hermes kill-switch` on the real stores: what they do, what they say, and with which code they end."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
from click.testing import Result
from typer.testing import CliRunner

from hermes.cli import build_app

SETTINGS = """
[backends.blue]
kind = "scripted"
[backends.green]
kind = "scripted"
[backends.sick]
kind = "plain"
base_url = "http://127.0.0.1:1/v1"

[models.blue]
backend = "blue"
[models.green]
backend = "green"
[models.sick]
backend = "sick"
prices = [{input = 1.0, output = 1.0}]

[tiers.free]
chain = ["blue"]
[tiers.broke]
chain = ["blue"]
day_tokens = 0
"""

Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a command on stores of this test's own, as ada, with two adapters that answer and one that does not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hermes.toml").write_text(SETTINGS)

    def command(*words: str, **variables: str) -> Result:
        environ = {"HERMES_HOME": str(tmp_path / "home"), "HERMES_DATABASE_URL": database_url, "HERMES_REDIS_URL": redis_url, "USER": "ada"}
        return CliRunner().invoke(build_app(list(words)), list(words), env={**environ, **variables})

    handlers = logging.getLogger().handlers[:]
    yield command
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers  # the commands set up a log of their own


def read(result: Result) -> Any:
    return json.loads(result.stdout)


def agents(run: Run) -> dict[str, Any]:
    return {agent["name"]: agent for agent in read(run("fleet", "list", "--json"))}


def test_an_agent_is_pointed_to_another_adapter_and_tried(run: Run, database_url: str) -> None:
    assert agents(run)["hermes"]["adapter"] is None
    result = run("fleet", "swap", "hermes", "--to", "green")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "hermes uses green now; before, the chain of its tier.\n"
    assert agents(run)["hermes"]["adapter"] == "green"
    with psycopg.connect(database_url) as connection:
        calls = connection.execute("select source, backend, outcome, account_id from calls").fetchall()
    assert calls == [("canary", "green", "answered", "fleet")]
    again = run("fleet", "swap", "hermes", "--to", "green")
    assert (again.exit_code, again.stdout) == (0, "hermes uses green already; nothing changed.\n")
    back = read(run("fleet", "swap", "hermes", "--to", "tier", "--json"))
    assert back == {"agent": "hermes", "outcome": "swapped", "from": "green", "to": None, "reason": "", "checks": []}


def test_without_a_canary_no_model_is_called(run: Run, database_url: str) -> None:
    assert run("fleet", "swap", "hermes", "--to", "green", "--no-canary").exit_code == 0
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select count(*) from calls").fetchone() == (0,)


def test_a_sick_adapter_is_refused_with_code_1(run: Run) -> None:
    result = run("fleet", "swap", "hermes", "--to", "sick", "--json")
    told = read(result)
    assert (result.exit_code, told["outcome"], told["from"], told["to"]) == (1, "refused", None, "sick")
    assert told["reason"] == next(check["message"] for check in told["checks"] if check["level"] == "error")
    assert f"hermes: hermes was not pointed to sick: {told['reason']}" in result.stderr
    assert agents(run)["hermes"]["adapter"] is None
    [event] = read(run("fleet", "events", "--json"))
    assert (event["kind"], event["by"], event["reason"], event["checks"]) == ("adapter_refused", "ada", told["reason"], told["checks"])


def test_an_adapter_that_does_not_answer_the_canary_is_taken_back_with_code_1(run: Run) -> None:
    run("fleet", "add", "poor", "--tier", "broke", "--adapter", "blue", "--cwd", "/srv/poor")
    result = run("fleet", "swap", "poor", "--to", "green", "--fresh-cwd", "--by", "bob")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "hermes: poor is pointed back to blue: the month's budget is spent" in result.stderr
    assert (agents(run)["poor"]["adapter"], agents(run)["poor"]["cwd"], agents(run)["poor"]["epoch"]) == ("blue", "/srv/poor", 2)
    back, there = read(run("fleet", "events", "poor", "--json"))
    assert [(event["kind"], event["from"], event["to"], event["by"], event["epoch"]) for event in (there, back)] == [
        ("adapter_swapped", "blue", "green", "bob", 1),
        ("adapter_rolled_back", "green", "blue", "bob", 2),
    ]
    shown = run("fleet", "events").stdout
    assert "rolled back" in shown
    assert "the month's budget" in shown


def test_the_folder_goes_along_unless_a_fresh_start_is_wanted(run: Run) -> None:
    run("fleet", "add", "bali", "--adapter", "blue", "--cwd", "work")
    folder = str(Path.cwd() / "work")
    kept = run("fleet", "swap", "bali", "--to", "green")
    assert kept.stdout == f"bali uses green now, in {folder}; before, blue.\n"
    assert run("fleet", "swap", "bali", "--to", "blue", "--fresh-cwd").stdout == "bali uses blue now; before, green.\n"
    assert agents(run)["bali"]["cwd"] is None


def test_an_agent_is_made_and_listed(run: Run) -> None:
    words = ("--adapter", "green", "--tier", "pro", "--account", "villa", "--account", "shop", "--tone", "chill", "--role", "Finds bars.")
    result = run("fleet", "add", "bali", *words)
    assert (result.exit_code, result.stdout) == (0, "bali uses green and answers on shop, villa.\n")
    health = agents(run)["bali"].pop("health")
    assert all(check["level"] != "error" for check in health)
    made = {**agents(run)["bali"], "health": None}
    told = {"name": "bali", "tone": "chill", "role": "Finds bars.", "tier": "pro", "adapter": "green", "cwd": None, "epoch": 0}
    assert made == {**told, "daily_micro_usd": None, "accounts": ["shop", "villa"], "health": None}
    run("fleet", "add", "lost", "--adapter", "sick")
    shown = run("fleet", "list", COLUMNS="200").stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["agent", "bali", "hermes", "lost"]
    assert (shown[1].split()[-1], "every other account" in shown[2], "no account" in shown[3]) == ("ok", True, True)


def test_an_agents_spend_is_limited_and_the_limit_is_shown_and_removed(run: Run, database_url: str) -> None:
    assert run("fleet", "cap", "hermes").stdout == "hermes has no spend cap; it has spent $0.00 today.\n"
    result = run("fleet", "cap", "hermes", "0.25")
    assert (result.exit_code, result.stdout) == (0, "hermes may spend $0.25 a day; it has spent $0.00 today.\n")
    assert agents(run)["hermes"]["daily_micro_usd"] == 250_000
    assert "$0.25 a day" in run("fleet", "list", COLUMNS="200").stdout
    assert read(run("fleet", "cap", "hermes", "0", "--json")) == {"name": "hermes", "daily_micro_usd": 0, "spent_micro_usd": 0}
    refused = run("fleet", "swap", "hermes", "--to", "green")
    assert refused.exit_code == 1
    assert "paused by the agent's cap" in refused.stderr
    with psycopg.connect(database_url) as connection:
        calls = connection.execute("select purpose, agent, outcome, error, micro_usd from calls").fetchall()
    assert calls == [("canary", "hermes", "refused", "CallsPaused: agent's cap", 0)]
    assert read(run("fleet", "cap", "hermes", "none", "--json"))["daily_micro_usd"] is None


def test_costs_are_split_by_what_is_asked_for(run: Run) -> None:
    assert "No model was called since" in run("costs").stdout
    run("fleet", "swap", "hermes", "--to", "green")
    [row] = read(run("costs", "--by", "agent", "--since", "1d", "--json"))
    assert (row["agent"], row["calls"], row["micro_usd"], row["refused"]) == ("hermes", 1, 0, 0)
    shown = run("costs", "--by", "purpose", COLUMNS="200").stdout.splitlines()
    assert shown[1].split()[:2] == ["canary", "$0.00"]
    assert shown[-1] == "In all $0.00 for 1 call."
    assert [line.split(",")[0] for line in run("costs", "--by", "key", "--csv").stdout.splitlines()] == ["key", ""]
    [row] = read(run("costs", "--by", "platform", "--json"))  # the former name
    assert (row["channel"], row["values"], row["micro_usd_before"]) == ("", 1, 0)
    [row] = read(run("costs", "--by", "user", "--json"))
    assert (row["calls"], "tokens_in" in row) == (1, False)
    assert "no tool" in run("costs", "--by", "tool", COLUMNS="200").stdout
    for words, says in (
        (("--json", "--csv"), "--json and --csv are two formats; choose one"),
        (("--since", "soon"), "since 'soon' is not a time"),
        (("--by", "moon"), "costs are not split by 'moon'; expected agent, model"),
    ):
        result = run("costs", *words)
        assert (result.exit_code, says in result.stderr) == (2, True)


def test_an_adapter_that_left_the_settings_is_said_to_be_missing(run: Run, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("update agents set adapter = 'gone'")
    result = run("fleet", "list", COLUMNS="200")
    assert (result.exit_code, "not in the settings" in result.stdout) == (0, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("swap", "hermes", "--to", "gren"), "there is no adapter 'gren'; did you mean green?"),
        (("swap", "herms", "--to", "green"), "there is no agent 'herms'; did you mean hermes?"),
        (("events", "herms"), "there is no agent 'herms'; did you mean hermes?"),
        (("add", "bali", "--tier", "brok"), "there is no tier 'brok'; did you mean broke?"),
        (("add", "bali", "--adapter", "bleu"), "there is no adapter 'bleu'; did you mean blue?"),
        (("add", "hermes"), "there is an agent hermes already; change its adapter: hermes fleet swap hermes --to ADAPTER"),
        (("cap", "herms", "5"), "there is no agent 'herms'; did you mean hermes?"),
        (("cap", "hermes", "much"), "'much' is no amount in US dollars; expected a number such as 5 or 0.50, or `none`"),
        (("cap", "hermes", "0.0000001"), "'0.0000001' is no amount in US dollars; expected a number such as 5 or 0.50, or `none`"),
        (
            ("add", "two words"),
            "'two words' cannot be the name of an agent; expected up to 64 letters, digits, and . _ - between them, such as bali-2",
        ),
    ],
)
def test_bad_input_is_one_line_and_code_2(run: Run, words: tuple[str, ...], says: str) -> None:
    result = run("fleet", *words)
    assert (result.exit_code, result.stderr) == (2, f"hermes: {says}\n")


def test_an_empty_history_says_how_to_begin(run: Run) -> None:
    assert run("fleet", "events").stdout == "No adapter was changed yet; change one: hermes fleet swap AGENT --to ADAPTER\n"


def test_the_kill_switch_stops_all_calls_until_it_is_released(run: Run, database_url: str) -> None:
    assert run("kill-switch", "status").stdout == "The kill switch is off; model calls are allowed.\n"
    on = run("kill-switch", "on", "the bill explodes")
    assert on.exit_code == 0
    assert on.stdout.endswith(" UTC, by ada: the bill explodes\nAllow them again: hermes kill-switch off\n")
    second = read(run("kill-switch", "on", "another reason", "--by", "bob", "--json"))
    assert (second["engaged"], second["by"], second["reason"]) == (True, "ada", "the bill explodes")
    assert read(run("kill-switch", "status", "--json")) == second
    refused = run("fleet", "swap", "hermes", "--to", "green")
    assert refused.exit_code == 1
    assert "paused by the kill switch until the operator releases it" in refused.stderr
    off = run("kill-switch", "off", "--by", "bob", "--json")
    assert (off.exit_code, read(off)) == (0, {"engaged": False, "capped_until": None})
    assert run("kill-switch", "off").exit_code == 0
    assert run("fleet", "swap", "hermes", "--to", "green").exit_code == 0
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select by, reason, released_by from kill_latch").fetchall() == [("ada", "the bill explodes", "bob")]


def test_the_kill_switch_latches_without_redis(run: Run, tmp_path: Path) -> None:
    away = {"HERMES_REDIS_URL": f"unix://{tmp_path}/nowhere.sock"}
    on = run("kill-switch", "on", "Redis is away too", "--json", **away)
    assert (on.exit_code, read(on)["reason"]) == (0, "Redis is away too")
    assert read(run("kill-switch", "status", "--json"))["engaged"] is True
    off = run("kill-switch", "off", **away)
    assert off.exit_code == 1  # the counter in Redis may still say stop
    assert "it is not certain that calls are allowed again; repeat the command: Redis cannot be used" in off.stderr
    assert run("kill-switch", "off").exit_code == 0
    assert read(run("kill-switch", "status", "--json", **away)) == {"engaged": False, "capped_until": None}


def test_without_postgres_the_kill_switch_says_that_nothing_is_sure(run: Run) -> None:
    away = {"HERMES_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}
    for words, says in [
        (("on", "now"), "it is not certain that all calls are stopped; repeat the command: PostgreSQL cannot be used"),
        (("off",), "it is not certain that calls are allowed again; repeat the command: PostgreSQL cannot be used"),
        (("status",), "cannot tell whether calls are stopped: PostgreSQL cannot be used"),
    ]:
        result = run("kill-switch", *words, **away)
        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
        assert result.stderr.startswith(f"hermes: {says}")


def test_a_reason_is_needed_and_may_be_in_any_alphabet(run: Run) -> None:
    empty = run("kill-switch", "on", " ")
    assert (empty.exit_code, read(run("kill-switch", "status", "--json"))["engaged"]) == (2, False)
    odd = run("kill-switch", "on", "zu teuer: caf\udce9 \u65e5\u672c", "--json")
    assert (odd.exit_code, read(odd)["reason"]) == (0, "zu teuer: caf? \u65e5\u672c")


def test_the_status_says_when_the_daily_cap_is_reached(run: Run) -> None:
    result = run("kill-switch", "status", HERMES_LLM_GLOBAL_DAILY_BUDGET_USD="0")
    assert result.stdout.startswith("The kill switch is off. The daily cap is reached: calls are refused until ")
    assert run("kill-switch", "status").stdout == "The kill switch is off; model calls are allowed.\n"
