"""`hermes compress` on files, as a person runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hermes import MessageGraph
from hermes.cli import build_app
from hermes.trajectories.compress.output import OutputPaths
from hermes.trajectories.compress.run import lock_run_folder
from hermes.trajectories.source import find_files
from tests.unit.trajectories.compress.job_files import agent_row, graph_line, rows, write

SHIPPED = Path(__file__).parents[2] / "configs" / "trajectory_compression.yaml"
PEERS = """\
tokenizer: {name: estimate, trust_remote_code: true}
compression: {target_max_tokens: 600, summary_target_tokens: 120}
protected_turns: {first_system: true, first_human: true, first_gpt: true, first_tool: true, last_n_turns: 4}
summarization: {model: google/gemini-3-flash-preview, base_url: "https://openrouter.ai/api/v1", api_key_env: NO_SUCH_KEY, temperature: 0.3}
output: {add_summary_notice: true, summary_notice_text: "Some earlier turns were summarised.", output_suffix: _short}
processing: {num_workers: 4, max_concurrent_requests: 50, skip_under_target: true, save_over_limit: true}
metrics: {enabled: true, per_trajectory: false, output_file: numbers.json}
"""


def run(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(build_app(["compress"]), ["compress", *map(str, words)], env={"COLUMNS": "200"})
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with four trajectories, two of them long."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.jsonl", [agent_row(1), agent_row(12), graph_line(12), agent_row(0)])
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_becomes_a_file_beside_it_and_a_table_says_what_was_done(folder: Path) -> None:
    code, output, errors = run("t.jsonl", "--target-tokens", 500)
    assert (code, errors) == (0, "")
    assert names(folder) == ["compression_metrics.json", "compression_metrics.jsonl", "t.jsonl", "t_compressed.jsonl"]
    for part in ("t_compressed.jsonl", "trajectories", "4", "short enough", "compressed", "2", "off-policy", "tokens, estimated", "took"):
        assert part in output
    first, second, third, fourth = (folder / "t_compressed.jsonl").read_text().splitlines()
    assert (first, fourth) == (agent_row(1), agent_row(0))
    assert json.loads(second)["on_policy"] is False
    assert MessageGraph.from_json(third).previous == list(MessageGraph.from_json(graph_line(12)))


def test_the_numbers_as_json_and_where_everything_is(folder: Path) -> None:
    code, output, errors = run("t.jsonl", "-t", 500, "-o", "x.jsonl", "--json")
    found = json.loads(output)
    assert (code, errors, found["resumed"], found["problems"]) == (0, "", False, [])
    assert found["files"] == {"output": "x.jsonl", "metrics": "compression_metrics.json", "trajectories": "compression_metrics.jsonl"}
    metrics = json.loads(Path("compression_metrics.json").read_text())
    assert {key: found[key] for key in metrics} == metrics


def test_metrics_of_another_run_are_not_written_over(folder: Path) -> None:
    run("t.jsonl", "-t", 500)
    before = Path("compression_metrics.json").read_bytes()
    code, output, _ = run("t.jsonl", "-t", 400, "-o", "other.jsonl", "--json")
    assert (code, json.loads(output)["files"]["metrics"]) == (0, "other.compression_metrics.json")
    assert Path("compression_metrics.json").read_bytes() == before


def test_a_broken_line_is_named_the_rest_is_compressed_and_the_exit_code_says_so(folder: Path) -> None:
    write(folder / "bad.jsonl", ["nonsense", agent_row(12)])
    code, _, errors = run("bad.jsonl", "-t", 500)
    assert (code, errors) == (1, "hermes: bad.jsonl, line 1: not JSON (Expecting value: line 1 column 1 (char 0))\n")
    assert Path("bad_compressed.rejected.jsonl").read_text() == "nonsense\n"
    assert len(rows(folder / "bad_compressed.jsonl")) == 1


def test_a_folder_becomes_a_folder_and_several_files_do_too(folder: Path) -> None:
    (folder / "in").mkdir()
    write(folder / "in" / "a.jsonl", [agent_row(12)])
    write(folder / "in" / "b.jsonl", [agent_row(12)])
    assert run("in", "-t", 500)[0] == 0
    assert names(folder / "in_compressed") == ["a.jsonl", "b.jsonl"]
    assert run("in/a.jsonl", "in/b.jsonl", "-t", 500, "-o", "both")[0] == 0
    assert (folder / "both" / "b.jsonl").read_bytes() == (folder / "in_compressed" / "b.jsonl").read_bytes()


def test_a_file_in_a_folder_is_left_out_by_its_whole_name(folder: Path) -> None:
    (folder / "in").mkdir()
    for name in (
        "ledger.jsonl",
        "general-ledger.jsonl",
        "compression_metrics.json",
        "x.compression_metrics.jsonl",
        "my_compression_metrics.json",
    ):
        write(folder / "in" / name, [agent_row(1)])
    assert run("in", "-t", 500)[0] == 0
    assert names(folder / "in_compressed") == ["general-ledger.jsonl", "my_compression_metrics.json"]


def test_an_export_of_a_folder_passes_over_what_is_hidden_in_it(folder: Path) -> None:
    (folder / "in" / ".t.unfinished").mkdir(parents=True)
    for name in ("g.jsonl", ".hidden.jsonl", ".t.unfinished/stored.jsonl"):
        write(folder / "in" / name, [graph_line(1)])
    assert find_files([folder / "in"]) == [folder / "in" / "g.jsonl"]
    assert find_files([folder / "in" / ".t.unfinished"]) == [folder / "in" / ".t.unfinished" / "stored.jsonl"]


def test_a_restart_out_of_the_store_leaves_a_run_that_is_at_work_alone(folder: Path) -> None:
    places = OutputPaths(Path("x.jsonl"), Path("metrics.json"), is_folder=False)
    with lock_run_folder(places) as journal:
        journal.append("run", {})
        spooled = write(folder / ".x.jsonl.unfinished" / "stored.jsonl", [graph_line(12)])
        before = {path.name: path.read_bytes() for path in spooled.parent.iterdir()}
        code, _, errors = run("--stored", "--out", "x.jsonl", "--restart")
        assert (code, errors.startswith("hermes: another process works in .x.jsonl.unfinished")) == (2, True)
        assert {path.name: path.read_bytes() for path in spooled.parent.iterdir()} == before


def test_a_dry_run_says_what_would_come_and_writes_nothing(folder: Path) -> None:
    code, output, errors = run("t.jsonl", "-t", 500, "--dry-run")
    assert (code, errors, names(folder)) == (0, "", ["t.jsonl"])
    for part in (
        "nothing was written",
        "over the target of 500",
        "can be shortened to it",
        "tokens to be summarised",
        "(summaries: 2)",
        "█",
    ):
        assert part in output
    found = json.loads(run("t.jsonl", "-t", 500, "--dry-run", "--json")[1])
    assert (found["trajectories"], found["over_target"], found["brought_under"]) == (4, 2, 2)
    assert found["tokens"]["total"] > found["tokens_after"]["total"]


def test_the_settings_are_printed_and_read_from_where_they_are_expected(folder: Path) -> None:
    code, output, _ = run("--print-config")
    assert (code, output) == (0, SHIPPED.read_text())
    (folder / "configs").mkdir()
    (folder / "configs" / "trajectory_compression.yaml").write_text(output.replace("target_max_tokens: 15250", "target_max_tokens: 500"))
    assert json.loads(run("t.jsonl", "--json")[1])["summary"]["trajectories_compressed"] == 2


def test_hermes_agents_own_settings_are_honoured(folder: Path) -> None:
    (folder / "peer.yaml").write_text(PEERS)
    code, _, errors = run("t.jsonl", "--config", "peer.yaml")
    assert (code, names(folder)) == (2, ["peer.yaml", "t.jsonl"])
    assert errors.startswith(
        "hermes: NO_SUCH_KEY is not set; it holds the key for https://openrouter.ai/api/v1: set it, or summarise without a model"
    )
    assert run("t.jsonl", "--config", "peer.yaml", "--model", "none")[0] == 0
    assert names(folder) == ["numbers.json", "peer.yaml", "t.jsonl", "t_short.jsonl"]
    [row] = [row for row in rows(folder / "t_short.jsonl") if "on_policy" in row]
    assert "compression_metrics" not in row
    assert "Some earlier turns were summarised." in json.dumps(row)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "which trajectories? Name a file or a folder, or read the store with --conversation"),
        (("nowhere.jsonl",), "nowhere.jsonl: no such file or folder"),
        (("t.jsonl", "--stored"), "read trajectories either from files or from the store"),
        (("--stored",), "name the output file for the graphs from the store"),
        (("t.jsonl", "t.jsonl"), "several inputs need an output folder: --out FOLDER"),
        (("t.jsonl", "t.jsonl", "-o", "x"), "there are two inputs with the name t.jsonl"),
        ((".", "-o", "x"), "x lies inside the input folder"),
        (("t.jsonl", "-o", "t.jsonl"), "t.jsonl exists; name another with --out, or remove it"),
        (("t.jsonl", "--config", "no.yaml"), "no.yaml: No such file or directory"),
        (
            ("t.jsonl", "--config", "bad.yaml"),
            "bad.yaml: unknown key compression.target_tokens; did you mean compression.target_max_tokens?",
        ),
        (("t.jsonl", "--tokenizer", "moonshotai/Kimi-K2-Thinking"), "tokenizer moonshotai/Kimi-K2-Thinking is not in"),
        (("t.jsonl", "--seed"), "--seed needs a value"),
        (("t.jsonl", "--set", "processing.seed"), "--set 'processing.seed': expected KEY=VALUE"),
        (("t.jsonl", "--set", "processing.seeds=1"), "unknown key processing.seeds; did you mean processing.seed?"),
        (("t.jsonl", "--set", "processing.seed=soon"), "processing.seed is 'soon'; expected a whole number"),
        (("t.jsonl", "--set", "processing.engine=spark"), "unknown engine 'spark'; one of local, daft, ray://HOST:PORT"),
        (("t.jsonl", "--model", "claude-hiku"), "there is no model claude-hiku; did you mean claude-haiku?"),
        (("t.jsonl", "--budget-usd", "1"), "--budget-usd needs a model that costs money; name one with --model"),
        (("t.jsonl", "--model", "claude-haiku", "--budget-usd", "inf"), "--budget-usd is an amount in US dollars, not inf"),
    ],
)
def test_bad_arguments_are_one_line_code_2_and_nothing_is_written(folder: Path, words: tuple[object, ...], complaint: str) -> None:
    (folder / "bad.yaml").write_text("compression: {target_tokens: 5}\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    code, output, errors = run(*words)
    assert (code, output, len(errors.splitlines())) == (2, "", 1)
    assert errors.startswith("hermes: ")
    assert complaint in errors
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("former", "key"),
    [
        (("--workers", 1), "processing.num_workers=1"),
        (("-w1",), "processing.num_workers=1"),
        (("--seed=7",), "processing.seed=7"),
        (("--sample-percent", 50), "processing.sample_percent=50"),
        (("--engine", "local"), "processing.engine=local"),
    ],
)
def test_a_former_option_still_works_and_names_its_key(folder: Path, former: tuple[object, ...], key: str) -> None:
    code, _, errors = run("t.jsonl", "-o", "former.jsonl", *former)
    assert code == 0
    assert errors.splitlines()[0].endswith(f" is a former option; write --set {key}")
    assert run("t.jsonl", "-o", "now.jsonl", "--set", key)[0] == 0
    assert (folder / "former.jsonl").read_bytes() == (folder / "now.jsonl").read_bytes()


def test_an_engine_that_is_not_installed_says_what_to_install(folder: Path) -> None:
    try:
        import daft  # type: ignore[import-not-found]  # noqa: F401, PLC0415  # only whether it is there
    except ModuleNotFoundError:
        code, _, errors = run("t.jsonl", "--set", "processing.engine=daft")
        assert (code, errors) == (2, "hermes: the engine daft needs daft; install it: pip install 'hermes-graph[batch]'\n")


def start(folder: Path, *words: object) -> subprocess.Popen[str]:
    environ = {**os.environ, "COLUMNS": "200"}
    return subprocess.Popen(
        [sys.executable, "-m", "hermes", "compress", *map(str, words)],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(file: Path, process: subprocess.Popen[Any]) -> None:
    """Return when the journal says that something is done."""
    give_up = time.monotonic() + 60
    while not file.exists() or b'"done"' not in file.read_bytes():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < give_up
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_killed_or_stopped_the_same_command_goes_on_and_other_settings_do_not(folder: Path, number: signal.Signals) -> None:
    write(folder / "long.jsonl", [agent_row(index % 14, size=200, prompt_index=index) for index in range(800)])
    words = ("long.jsonl", "-t", 900, "--json", "--set", "processing.num_workers=1")
    with start(folder, *words) as process:
        wait_for(folder / ".long_compressed.jsonl.unfinished" / "checkpoint.jsonl", process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    if number is signal.SIGINT:
        assert (process.returncode, errors) == (130, "hermes: stopped; the same command continues the run\n")
    assert not (folder / "long_compressed.jsonl").exists()
    code, _, errors = run("long.jsonl", "-t", 800, "--json", "--set", "processing.num_workers=1")
    assert (
        code,
        "has compression.target_max_tokens 900, and now it is 800; resume it unchanged, start over with --restart" in errors,
    ) == (
        2,
        True,
    )
    code, output, errors = run(*words)
    assert (code, errors, json.loads(output)["resumed"]) == (0, "", True)
    assert json.loads(run(*words, "-o", "whole.jsonl")[1])["resumed"] is False
    assert (folder / "long_compressed.jsonl").read_bytes() == (folder / "whole.jsonl").read_bytes()
