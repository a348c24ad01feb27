"""What holds for all commands together: the table that loads them, their options, their JSON, tables in a pipe, completion in a shell."""

import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from hermes.cli import COMMAND_MODULES, build_app
from hermes.cli.command_table import typed_words
from hermes.cli.output import print_properties, print_table
from hermes.packs import SHIPPED_PACKS
from hermes.trajectories.formats import FORMATS

SOURCE = Path(__file__).parents[2] / "src" / "hermes"
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"
WITHOUT_DATA = {"demo", "health", "up", "serve", "worker", "keys new-master", "local install"}
"""Commands that show no data: a tour, a probe, processes that run until they are stopped, one key, and an installation."""
MAX_OPTIONS = 16
"""In one panel of --help: options about the store, a recipe or many turns stand in a panel of their own."""
OTHER_CONFIG = {"compress"}
"""Its --config is the file of the compression; --settings is that of Hermes."""

Run = Callable[..., Any]
TABLE_LINES = {name: line for part in (*COMMAND_MODULES, *SHIPPED_PACKS.values()) for name, line in part.commands.items()}
"""The line of each command in `hermes --help`."""


def all_commands() -> dict[str, Any]:
    """Every command by its words."""

    def below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "commands"):
            yield " ".join(words), command
            return
        for name, sub in command.commands.items():
            yield from below(sub, (*words, name))

    return dict(below(get_command(build_app()), ()))


def options_of(command: Any) -> dict[str, Any]:
    return {flag: each for each in command.params for flag in each.opts if flag.startswith("--") and flag != "--help"}


def documented() -> dict[str, str]:
    return dict(re.findall(r"^\| `hermes ([^`]+)` \| (.*) \|$", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE))


# --- the table of commands


def hermes_python(program: str, **variables: str) -> str:
    """What a program prints that runs beside Hermes in a process of its own."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "_HERMES"))}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60, env=environ | variables)
    return done.stdout + done.stderr


def test_the_table_says_of_each_command_what_the_command_says_of_itself() -> None:
    root = get_command(build_app())
    assert {name: (command.help or "").split("\n\n")[0] for name, command in root.commands.items()} == TABLE_LINES


def test_the_version_reads_no_settings() -> None:
    program = """import sys
from hermes.cli import build_app
build_app(["--version"])
print(sorted({"hermes.config", "pydantic"} & sys.modules.keys()))
"""
    assert hermes_python(program) == "[]\n"


def test_the_line_of_a_group_names_each_of_its_commands() -> None:
    groups = [words.split() for words in all_commands() if " " in words]
    assert [words for words in groups if not re.search(rf"\b{re.escape(words[1])}\b", TABLE_LINES[words[0]])] == []


def test_the_help_loads_no_command_and_no_package_of_an_extra_but_its_own() -> None:
    program = """
import sys
from hermes.cli import COMMAND_MODULES, build_app
build_app(["--help"])
loaded = {part.module for part in COMMAND_MODULES} | {"numpy", "pyarrow", "psycopg", "structlog", "hermes.app"}
print(sorted(loaded & sys.modules.keys()))
"""
    assert hermes_python(program) == "[]\n"


@pytest.mark.parametrize(
    "module", ["alerts", "channels", "chores", "costs", "dead_letters", "events", "fleet", "keys", "messages", "queues", "users", "workers"]
)
def test_a_command_that_reads_rows_loads_no_whole_hermes(module: str) -> None:
    program = f"""
import sys
import hermes.cli.{module}
heavy = {{"hermes.app.root", "hermes.app.adapters", "hermes.app.gateway", "aiohttp", "redis", "prometheus_client", "numpy"}}
heavy |= {{"pydantic", "structlog", "cryptography"}}
print(sorted(heavy & sys.modules.keys()))
"""
    assert hermes_python(program) == "[]\n"


def without_packages(*packages: str, words: str) -> str:
    lacking = "".join(f"sys.modules[{package!r}] = None; " for package in packages)
    return hermes_python(
        f"import sys; {lacking}sys.argv = {['hermes', *words.split()]!r}; from hermes.cli import main; main()", COLUMNS="200"
    )


def test_without_extras_the_help_has_every_command_and_says_what_to_install() -> None:
    shown = without_packages("psycopg", "pyarrow", words="--help")
    for part in COMMAND_MODULES:
        for name in part.commands:
            [line] = re.findall(rf"│ {name} +(.*?) +│", shown)
            advice = f"(needs the extra {part.extra}: pip install 'hermes-graph[{part.extra}]')"
            assert line == (part.commands[name] if part.extra == "cli" else advice)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("fleet list --json", "hermes: fleet needs psycopg; install it: pip install 'hermes-graph[serve]'\n"),
        ("fleet --help", "hermes: fleet needs psycopg; install it: pip install 'hermes-graph[serve]'\n"),
        ("venues list", "hermes: venues needs psycopg; install it: pip install 'hermes-graph[serve]'\n"),
        ("verify x", "hermes: verify needs pyarrow; install it: pip install 'hermes-graph[export]'\n"),
    ],
)
def test_a_command_without_its_extra_says_in_one_line_what_to_install(words: str, said: str) -> None:
    assert without_packages("psycopg", "pyarrow", words=words) == said


def test_a_command_of_a_pack_names_any_package_that_it_lacks() -> None:
    said = "hermes: venues needs structlog; install it: pip install 'hermes-graph[serve]'\n"
    assert without_packages("structlog", words="venues list") == said


def test_a_worker_that_is_to_trace_without_the_extra_says_what_to_install() -> None:
    lacking = "import sys; sys.modules['opentelemetry.util.genai.handler'] = None; sys.argv = ['hermes', 'worker']"
    said = hermes_python(f"{lacking}; from hermes.cli import main; main()", HERMES_TRACES_ENABLED="true")
    assert said.startswith("hermes: traces.enabled needs opentelemetry")
    assert said.endswith("; install it: pip install 'hermes-graph[otel]'\n")


def test_hermes_loads_nothing_of_opentelemetry_while_traces_are_off() -> None:
    program = """
import sys
from hermes.cli import build_app
build_app(["worker"])
print([name for name in sys.modules if name.startswith(("opentelemetry.util.genai", "opentelemetry.exporter", "hermes.ops.trace"))])
"""
    assert hermes_python(program) == "[]\n"


# --- options


def test_no_command_has_more_options_than_one_can_read() -> None:
    panels = Counter(
        (words, getattr(option, "rich_help_panel", None))
        for words, command in all_commands().items()
        for option in {id(option): option for option in options_of(command).values()}.values()
    )
    assert {panel: count for panel, count in panels.items() if count > MAX_OPTIONS} == {}


def test_every_command_that_shows_data_prints_it_as_json_too() -> None:
    assert {words for words, command in all_commands().items() if "--json" not in options_of(command)} == WITHOUT_DATA


def test_settings_are_named_by_the_same_option_everywhere() -> None:
    options = [options_of(command) for words, command in all_commands().items() if words not in OTHER_CONFIG]
    found = {each["--config"].help for each in options if "--config" in each}
    assert found == {"Read the settings from this file instead of ./hermes.toml."}


def test_the_reference_has_the_keys_of_every_command_with_json() -> None:
    assert documented().keys() == all_commands().keys() - WITHOUT_DATA


# --- JSON and tables, on real stores


@pytest.fixture
def run(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on stores of this test's own; return what it prints."""
    monkeypatch.chdir(tmp_path)
    environ = {"HERMES_HOME": str(tmp_path / "home"), "HERMES_DATABASE_URL": database_url, "HERMES_REDIS_URL": redis_url, "COLUMNS": "40"}

    def command(*words: str) -> str:
        result = CliRunner().invoke(build_app(list(words)), list(words), env=environ, catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    return command


def test_json_has_the_keys_of_the_reference(run: Run) -> None:
    whatsapp = ("channels", "add", "whatsapp", "--api-key", "k", "--wait", "0")
    user = json.loads(run("users", "create", "--json"))["id"]
    for words in (
        ("keys", "create", "shop"),
        ("keys", "list"),
        ("keys", "show", "shop"),
        ("keys", "set", "shop", "--rpm", "5"),
        ("keys", "revoke", "shop"),
        ("keys", "rewrap"),
        ("users", "list"),
        ("users", "show", user),
        ("users", "memory", user),
        whatsapp,
        ("channels", "list"),
        ("channels", "sent"),
        ("channels", "remove", "whatsapp", "whatsapp"),
        ("fleet", "list"),
        ("events",),
        ("kill-switch", "on", "a test"),
        ("kill-switch", "status"),
        ("dead-letters", "list"),
        ("queues",),
        ("queues", "buried"),
        ("messages", "revive", "--all"),
        ("workers",),
    ):
        [said] = (keys for name, keys in documented().items() if " ".join(words).startswith(name))
        required, _, also = said.partition("also")
        found = json.loads(run(*words, "--json"))
        assert isinstance(found, list) == required.startswith("list: ")
        for each in found if isinstance(found, list) else [found]:
            assert set(re.findall(r"`(\w+)`", required)) <= each.keys() <= set(re.findall(r"`(\w+)`", required + also)), words


def test_a_cell_is_shown_as_it_is_and_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("a", "b"), [("[bold]x[/] :smile:", "y\x1b[31m"), ("long " * 40 + "!", "")])
    print_properties([("name", "one\ntwo")], "a [title]")
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "a".ljust(203) + "b",
        "[bold]x[/] :smile:".ljust(203) + "y\N{REPLACEMENT CHARACTER}[31m",
        "long " * 40 + "!",
        "a [title]",
        "  name    one",
        "          two",
    ]


def test_standard_output_has_one_console() -> None:
    """Another console would cut tables at 80 columns in a pipe. The tour, the chat and the fakes are for people alone."""
    for file in sorted((SOURCE / "cli").glob("*.py")):
        made = [
            node.lineno
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Console" and "stderr" not in {each.arg for each in node.keywords}
        ]
        assert not made or file.stem in {"output", "graph", "platforms"}, f"{file.name}:{made[0]}"


# --- completion


def complete(line: str, shell: str = "bash", **variables: str) -> list[str]:
    """What a shell gets when the user presses Tab at the end of a line."""
    position = str(len(line.split(" ")) - 1)
    asked = {"COMP_WORDS": line, "COMP_CWORD": position} if shell == "bash" else {"_TYPER_COMPLETE_ARGS": line}
    environ = {"_HERMES_COMPLETE": f"complete_{shell}", **asked, **variables}
    result = CliRunner().invoke(build_app(typed_words([], environ)), [], env=environ, prog_name="hermes")
    return result.stdout.split() if shell == "bash" else re.findall(r'"([^":]+)"(?=\n|\)|:)', result.stdout)


def test_a_shell_that_asks_the_command_gets_an_answer() -> None:
    program = "import sys; sys.argv = ['hermes']; from hermes.cli import main; main()"
    assert hermes_python(program, _HERMES_COMPLETE="complete_bash", COMP_WORDS="hermes gra", COMP_CWORD="1") == "graph\n"


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_shell_completes_commands_and_names(shell: str, tmp_path: Path) -> None:
    settings = tmp_path / "hermes.toml"
    settings.write_text('[models.coral]\nbackend = "anthropic"\nid = "coral-1"\n\n[tiers.reef]\nchain = ["coral"]\n')
    assert complete("hermes ke", shell) == ["keys"]
    assert complete("hermes export --out x --format ", shell) == sorted(FORMATS)
    assert complete("hermes export --workers d", shell) == ["daft"]
    assert complete(f"hermes batch --config {settings} --model co", shell) == ["codex_local", "coral"]
    assert complete(f"hermes compress --settings {settings} --model co", shell) == ["codex_local", "coral"]
    assert complete("hermes compress --model n", shell) == ["none"]
    assert complete(f"hermes fleet swap hermes --config {settings} --to co", shell) == ["codex_local", "coral"]


def test_names_of_accounts_come_from_a_running_database(run: Run, database_url: str, tmp_path: Path) -> None:
    run("channels", "add", "whatsapp", "--api-key", "k", "--wait", "0", "--name", "bali")
    assert complete("hermes channels remove whatsapp b", HERMES_DATABASE_URL=database_url) == ["bali"]
    assert complete("hermes channels remove whatsapp b", HERMES_HOME=str(tmp_path / "new")) == []
    assert not (tmp_path / "new").exists()


def test_wrong_settings_complete_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "hermes.toml").write_text("nonsense = 1\n")
    assert complete(f"hermes users tier x --config {tmp_path / 'hermes.toml'} ") == []
