"""hermes export, verify, import, as a person runs them."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from hermes import CallRecord, MessageGraph
from hermes.cli import build_app
from hermes.cli.moments import parse_moment
from hermes.trajectories.formats import FORMATS


def save_graphs(folder: Path) -> Path:
    """Two sessions in one file: an edit, twins, a call without ids."""
    lines = []
    for name in ("a", "b"):
        chat = MessageGraph([{"role": "user", "content": f"question {name}"}], seed=name)
        turn = chat.prepare()
        for number in range(2):
            call = CallRecord(sample_id=f"{name}{number}", prompt_token_ids=[1, 2], token_ids=[3, 4], logprobs=[-0.5, -0.25])
            chat.commit(turn, {"role": "assistant", "content": "same"}, call=call)
        chat[0]["content"] = "edited"
        chat.append({"role": "assistant", "content": "no ids"}, call=CallRecord(sample_id=f"{name}-text"))
        lines.append(chat.to_json())
    folder.mkdir(exist_ok=True)
    (folder / "chats.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(build_app(), [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("format_", sorted(FORMATS))
def test_exports_every_format_and_verifies_it(tmp_path: Path, format_: str) -> None:
    graphs = save_graphs(tmp_path / "graphs")
    code, output, errors = run("export", graphs, "--out", tmp_path / "out", "--format", format_, "--json")
    assert (code, errors) == (0, "")
    summary = json.loads(output)
    assert (summary["sessions"], summary["samples"], summary["broken"]) == (2, 6, [])
    code, output, errors = run("verify", tmp_path / "out", "--against", graphs, "--json")
    assert (code, errors, json.loads(output)["problems"]) == (0, "", [])


def test_the_summary_for_people_says_what_was_excluded_and_how_to_check(tmp_path: Path) -> None:
    code, output, _ = run("export", save_graphs(tmp_path / "graphs"), "--out", tmp_path / "out")
    assert code == 0
    for part in ("sampled tokens", "8", "not trained", "no token ids", "0  (samples: 2)", "hermes verify"):
        assert part in output
    code, output, _ = run("verify", tmp_path / "out")
    assert (code, "holds" in output, "6 samples" in output) == (0, True, True)


def test_a_broken_line_is_named_the_rest_is_exported_and_the_exit_code_says_so(tmp_path: Path) -> None:
    graphs = save_graphs(tmp_path / "graphs")
    with (graphs / "chats.jsonl").open("a") as lines:
        lines.write("not a graph\n")
    code, output, errors = run("export", graphs, "--out", tmp_path / "out", "--json")
    assert (code, json.loads(output)["sessions"]) == (1, 2)
    (line,) = errors.splitlines()
    assert line.startswith(f"hermes: {graphs / 'chats.jsonl'}, line 3: not a message graph (document: not JSON")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("export", "{graphs}", "--out", "{tmp}/out", "--format", "csv"), "unknown format 'csv'; one of agentlightning"),
        (("export", "{tmp}/nowhere", "--out", "{tmp}/out"), "no such file or folder"),
        (("export", "{graphs}", "--out", "{graphs}"), "exists and is not an empty folder"),
        (("export", "{graphs}", "--out", "{tmp}/out", "--tokenizer", "{tmp}/nowhere"), "nowhere"),
        (("export", "--out", "{tmp}/out"), "which graphs? Name files or folders, or read the store with --conversation"),
        (("export", "{graphs}", "--since", "1h", "--out", "{tmp}/out"), "read graphs either from files or from the store"),
        (("export", "{graphs}", "--stored", "--out", "{tmp}/out"), "read graphs either from files or from the store"),
        (
            ("export", "{graphs}", "--save-graphs", "{tmp}/g.jsonl", "--out", "{tmp}/out"),
            "--save-graphs and --config need sessions from the store",
        ),
        (("export", "--stored", "--save-graphs", "{graphs}/chats.jsonl", "--out", "{tmp}/out"), "chats.jsonl exists"),
        (("export", "--stored", "--save-graphs", "{tmp}/out/g.jsonl", "--out", "{tmp}/out"), "that folder must hold only the export"),
        (("export", "--since", "yesterday", "--out", "{tmp}/out"), "--since 'yesterday' is not a time; expected 2026-11-15, "),
        (("export", "--stored", "--config", "{tmp}/nowhere.toml", "--out", "{tmp}/out"), "nowhere.toml"),
        (("export", "--conversation", "\udcff", "--out", "{tmp}/out"), "there is no conversation, session or account '\\udcff'"),
        (("verify", "{tmp}/nowhere"), "nowhere"),
        (("verify", "{graphs}"), "ledger.jsonl"),
        (("import", "{tmp}/nowhere", "--out", "{tmp}/out.jsonl"), "no such file"),
        (("import", "{graphs}/chats.jsonl", "--out", "{graphs}/chats.jsonl"), "exists"),
        (("import", "{graphs}/chats.jsonl", "--out", "{tmp}/out.jsonl", "--shape", "odd"), "unknown shape 'odd'"),
    ],
)
def test_bad_arguments_give_one_line_and_code_2(tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    graphs = save_graphs(tmp_path / "graphs")
    code, output, errors = run(*(argument.format(graphs=graphs, tmp=tmp_path) for argument in arguments))
    assert (code, output, len(errors.splitlines())) == (2, "", 1)
    assert complaint in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graphs"]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-15", datetime(2026, 11, 15, tzinfo=UTC)),
        ("2026-11-15T12:00", datetime(2026, 11, 15, 12, tzinfo=UTC)),
        (" 2026-11-15 12:00 ", datetime(2026, 11, 15, 12, tzinfo=UTC)),
        ("2026-11-15T12:00Z", datetime(2026, 11, 15, 12, tzinfo=UTC)),
        ("2026-11-15T12:00+02:00", datetime(2026, 11, 15, 10, tzinfo=UTC)),
    ],
)
def test_since_names_a_moment_in_utc_unless_it_says_otherwise(text: str, moment: datetime) -> None:
    assert parse_moment(text) == moment


@pytest.mark.parametrize(("text", "ago"), [("90m", {"minutes": 90}), ("24h", {"hours": 24}), ("7d", {"days": 7}), ("2 w", {"weeks": 2})])
def test_since_counts_back_from_now(text: str, ago: dict[str, int]) -> None:
    before = datetime.now(UTC)
    assert before <= parse_moment(text) + timedelta(**ago) <= datetime.now(UTC)


@pytest.mark.parametrize("text", ["", "h", "24", "-1h", "1.5h", "1y", "2026-13-01", "99999999999d", "0001-01-01T00:00+14:00"])
def test_what_is_no_time_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        parse_moment(text)
    assert capsys.readouterr().err.startswith(f"hermes: --since {text!r} is not a time; expected 2026-11-15, ")


def test_a_tampered_export_is_noticed(tmp_path: Path) -> None:
    run("export", save_graphs(tmp_path / "graphs"), "--out", tmp_path / "out")
    ledger = tmp_path / "out" / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"sampled":2', '"sampled":3', 1))
    code, _, errors = run("verify", tmp_path / "out")
    assert (code, errors.startswith("hermes: ")) == (1, True)


def test_an_export_for_llamafactory_says_how_to_train_with_it_and_a_bare_one_verifies(tmp_path: Path) -> None:
    graphs = save_graphs(tmp_path / "graphs")
    said = run("export", graphs, "--out", tmp_path / "lf", "--format", "llamafactory")[1]
    assert said.endswith(f"Train with dataset_dir: {tmp_path / 'lf'}, dataset: hermes, mask_history: true\n")
    assert "mask_history" not in run("export", graphs, "--out", tmp_path / "bare", "--format", "sharegpt", "--bare")[1]
    assert [run("verify", tmp_path / name, "--against", graphs)[0] for name in ("lf", "bare")] == [0, 0]
    refused = run("export", graphs, "--out", tmp_path / "no", "--format", "trl", "--bare")
    assert refused == (2, "", "hermes: only rows of sharegpt can be bare, not those of trl\n")


def test_what_was_exported_as_sharegpt_can_be_imported(tmp_path: Path) -> None:
    run("export", save_graphs(tmp_path / "graphs"), "--out", tmp_path / "out", "--format", "sharegpt")
    (lines,) = (path for path in (tmp_path / "out").iterdir() if path.name != "ledger.jsonl")
    code, output, errors = run("import", lines, "--out", tmp_path / "back.jsonl", "--json")
    assert (code, errors, json.loads(output)["broken"]) == (0, "", [])
    chats = [MessageGraph.from_json(line) for line in (tmp_path / "back.jsonl").read_text().splitlines()]
    assert {chat[0]["content"] for chat in chats} == {"question a", "question b", "edited"}


def test_without_the_extra_a_command_says_what_to_install(tmp_path: Path) -> None:
    """A Python that finds typer and rich but no pyarrow."""
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError(\"No module named 'pyarrow'\", name='pyarrow')")
    start = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['hermes', 'export', 'x', '--out', 'y']"
    code = f"{start}; from hermes.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "hermes: export needs pyarrow; install it: pip install 'hermes-graph[export]'\n"


def without(package: str, tmp_path: Path, *arguments: object) -> tuple[int, str, str]:
    """Run `hermes` in a Python that does not find a package."""
    (tmp_path / "lacking").mkdir()
    (tmp_path / "lacking" / f"{package}.py").write_text(f"raise ModuleNotFoundError('No module named {package}', name={package!r})")
    words = ["hermes", *map(str, arguments)]
    start = f"import sys; sys.path.insert(0, {str(tmp_path / 'lacking')!r}); sys.argv = {words!r}"
    result = subprocess.run(
        [sys.executable, "-c", f"{start}; from hermes.cli import main; main()"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    return result.returncode, result.stdout, result.stderr


def test_without_the_service_files_are_exported(tmp_path: Path) -> None:
    graphs = save_graphs(tmp_path / "graphs")
    code, _, errors = without("psycopg", tmp_path, "export", graphs, "--out", tmp_path / "out")
    assert (code, errors, (tmp_path / "out" / "ledger.jsonl").exists()) == (0, "", True)


def test_the_store_needs_an_extra_and_says_so(tmp_path: Path) -> None:
    asked = ("export", "--since", "1h", "--out", tmp_path / "out")
    assert without("psycopg", tmp_path, *asked) == (
        2,
        "",
        "hermes: export from the store needs psycopg; install it: pip install 'hermes-graph[serve]'\n",
    )
    assert not (tmp_path / "out").exists()


def test_an_altered_graph_is_not_exported_and_not_proved(tmp_path: Path) -> None:
    graphs = save_graphs(tmp_path / "graphs")
    run("export", graphs, "--out", tmp_path / "honest")
    text = (graphs / "chats.jsonl").read_text()
    (graphs / "chats.jsonl").write_text(text.replace("question a", "question X"))
    code, output, errors = run("export", graphs, "--out", tmp_path / "out", "--json")
    assert (code, json.loads(output)["sessions"]) == (1, 1)
    assert "line 1: the graph was altered after it was recorded" in errors
    code, _, errors = run("verify", tmp_path / "honest", "--against", graphs)
    assert (code, "the source itself was altered" in errors) == (1, True)


def test_an_export_without_anything_to_train_says_what_would_help(tmp_path: Path) -> None:
    chat = MessageGraph([{"role": "user", "content": "q"}])
    chat.append({"role": "assistant", "content": "a"})
    (tmp_path / "chat.json").write_text(chat.to_json())
    code, _, errors = run("export", tmp_path / "chat.json", "--out", tmp_path / "out")
    assert code == 0
    assert errors == (
        "hermes: nothing in this export is trained: 1 samples: no token ids; export them in a text format (--format sharegpt), "
        "or give them ids with --tokenizer DIR\n"
    )


def test_an_export_without_any_advantage_says_so_in_one_line_with_what_to_do(tmp_path: Path) -> None:
    graphs = save_graphs(tmp_path / "graphs")
    code, output, errors = run("export", graphs, "--out", tmp_path / "out")
    [line] = [line for line in output.splitlines() if "advantage" in line]
    assert (code, errors) == (0, "")
    assert line == (
        "Every advantage is 0, so a policy gradient would train nothing: no trained sample has one other than 0 (reward, rollout_reward "
        "and advantage). Annotate rewards (graph.annotate, hermes batch with a verifier), or name the annotation that is the reward: "
        "--reward NAME. Supervised training needs none."
    )
    _, output, _ = run("export", graphs, "--out", tmp_path / "text", "--format", "sharegpt")
    assert "advantage" not in output


def test_a_named_annotation_becomes_the_reward_and_groups_have_advantages(tmp_path: Path) -> None:
    chat = MessageGraph([{"role": "user", "content": "q"}])
    turn = chat.prepare()
    for number in range(2):
        call = CallRecord(prompt_token_ids=[1], token_ids=[number], logprobs=[-1.0], sample_id=str(number))
        chat.annotate(chat.commit(turn, {"role": "assistant", "content": "a"}, call), rollout=str(number), task=number)
    (tmp_path / "chat.json").write_text(chat.to_json())
    words = ("export", tmp_path / "chat.json", "--reward", "task:rollout", "--advantages", "group")
    code, output, _ = run(*words, "--out", tmp_path / "out")
    assert (code, "advantage" in output) == (0, False)
    assert [row["advantages"] for row in pq.read_table(tmp_path / "out" / "rows.parquet").to_pylist()] == [[0.0, -0.5], [0.0, 0.5]]
    code, _, errors = run(*words, "--reward", "a:rollout", "--out", tmp_path / "two")
    assert (code, errors) == (2, "hermes: only one annotation can be the reward of a rollout, not task and a\n")
    code, _, errors = run("export", tmp_path / "chat.json", "--reward", "task:turn", "--out", tmp_path / "two")
    assert (code, "expected NAME" in errors) == (2, True)


def test_the_summary_says_what_is_on_and_off_policy(tmp_path: Path) -> None:
    _, output, _ = run("export", save_graphs(tmp_path / "graphs"), "--out", tmp_path / "out", "--format", "sharegpt")
    assert [" ".join(line.split()) for line in output.splitlines() if "policy" in line] == [
        *("on policy 4", "off policy 2"),
        *("on policy 4", "off policy 2"),
        *("on policy 8", "off policy 0"),
    ]


def test_a_wrong_annotation_is_named_and_the_rest_is_exported(tmp_path: Path) -> None:
    graphs = save_graphs(tmp_path / "graphs")
    chat = MessageGraph.from_json((graphs / "chats.jsonl").read_text().splitlines()[0])
    chat.annotate(next(chat.responses()), reward="high")
    (graphs / "noted.json").write_text(chat.to_json())
    code, output, errors = run("export", graphs, "--out", tmp_path / "out", "--json")
    assert (code, json.loads(output)["sessions"], "annotation reward='high'" in errors) == (1, 2, True)


def test_exports_that_lie_among_the_graphs_are_not_taken_for_graphs(tmp_path: Path) -> None:
    graphs = save_graphs(tmp_path / "graphs")
    run("export", graphs, "--out", graphs / "old export", "--format", "openai")
    code, output, errors = run("export", graphs, "--out", tmp_path / "out", "--json")
    assert (code, errors, json.loads(output)["sessions"]) == (0, "", 2)


def test_one_graph_of_many_can_be_drawn(tmp_path: Path) -> None:
    lines = save_graphs(tmp_path / "graphs") / "chats.jsonl"
    assert run("graph", lines)[0] == 2
    assert "choose one, for instance --line 1" in run("graph", lines)[2]
    code, output, _ = run("graph", lines, "--line", 2)
    assert (code, "question b" in output, "question a" in output) == (0, True, False)
    assert "no line 9" in run("graph", lines, "--line", 9)[2]


@pytest.mark.parametrize("format_", ["parquet", "tree", "verifiers", "sharegpt", "openai"])
@pytest.mark.parametrize("change", ["consent", "exclude", "redact"])
@pytest.mark.parametrize("names", [("early", "late"), ("late", "early")])
def test_a_word_in_one_copy_is_heard_and_borne_out(tmp_path: Path, format_: str, change: str, names: tuple[str, str]) -> None:
    early = MessageGraph.from_json((save_graphs(tmp_path / "graphs") / "chats.jsonl").read_text().splitlines()[0])
    late = early.copy()
    first = next(late.responses())
    if change == "redact":
        late.redact(first.message)
    else:
        late.annotate(first, **{"consent": False} if change == "consent" else {"exclude": "looked wrong"})
    for name, chat in zip(names, (early, late) if names[0] == "early" else (late, early), strict=True):
        (tmp_path / f"{name}.json").write_text(chat.to_json())
    files = [tmp_path / f"{name}.json" for name in names]
    code, output, _ = run("export", *files, "--out", tmp_path / "out", "--format", format_, "--json")
    summary = json.loads(output)
    assert (code, summary["samples"], summary["duplicates"]) == (0, 3, 3)
    assert {"consent": "no consent", "exclude": "looked wrong", "redact": "redacted"}[change] in summary["excluded"]
    code, output, errors = run("verify", tmp_path / "out", *(f"--against={file}" for file in files))
    assert (code, errors) == (0, "")
