"""Whole files: in their order, whole or not at all, nothing lost, gone on with after an interruption."""

import json
import shutil
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from hermes.trajectories.compress.analysis import analyse
from hermes.trajectories.compress.output import OutputPaths
from hermes.trajectories.compress.run import CompressRun, compress_files
from hermes.trajectories.compress.worker import CompressWork
from hermes.trajectories.engines.local import LocalEngine
from hermes.trajectories.errors import TrajectorySettingsError
from tests.unit.trajectories.compress.job_files import agent_row, compressed, graph_line, job, openai_row, rows, turns, work, write


def many(count: int) -> list[str]:
    return [agent_row(number % 13, prompt_index=number) for number in range(count)]


class Falling:
    """An engine that fails at a chunk, as a process that is stopped there."""

    def __init__(self, at: int) -> None:
        self.at = at

    def map(self, work: Callable[[Any], Any], chunks: Iterable[Any]) -> Generator[Any]:
        for number, chunk in enumerate(chunks):
            if number == self.at:
                raise KeyboardInterrupt
            yield work(chunk)


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_order_of_the_output_is_that_of_the_input_on_any_number_of_processes(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", many(100))
    compressed(file)
    first = (tmp_path / "t_compressed.jsonl").read_bytes()
    (tmp_path / "t_compressed.jsonl").unlink()
    finished = compressed(file, workers=2)
    assert (tmp_path / "t_compressed.jsonl").read_bytes() == first
    assert [row["prompt_index"] for row in rows(tmp_path / "t_compressed.jsonl")] == list(range(100))
    assert finished.metrics["summary"]["total_trajectories"] == 100


def test_the_metrics_are_those_of_hermes_agent_in_total_and_of_each_trajectory(tmp_path: Path) -> None:
    finished = compressed(write(tmp_path / "t.jsonl", [agent_row(1), agent_row(12), "not a row"]))
    assert json.loads((tmp_path / "metrics.json").read_text()) == finished.metrics
    assert {section: list(values) for section, values in finished.metrics.items()} == {
        "summary": [
            "total_trajectories",
            "trajectories_compressed",
            "trajectories_skipped_under_target",
            "trajectories_still_over_limit",
            "trajectories_failed",
            "trajectories_rejected",
            "trajectories_not_sampled",
            "trajectories_off_policy",
            "compression_rate",
        ],
        "tokens": ["total_before", "total_after", "total_saved", "overall_compression_ratio", "estimated"],
        "turns": ["total_before", "total_after", "total_removed"],
        "averages": ["avg_compression_ratio", "avg_tokens_saved_per_compressed", "avg_turns_removed_per_compressed"],
        "summarization": ["total_api_calls", "total_errors", "success_rate", "fallbacks", "trimmed_results", "cost_usd"],
        "processing": ["start_time", "end_time", "duration_seconds"],
    }
    summary, tokens = finished.metrics["summary"], finished.metrics["tokens"]
    assert list(summary.values()) == [2, 1, 1, 0, 0, 1, 0, 1, 0.5]
    assert tokens["total_saved"] == tokens["total_before"] - tokens["total_after"]
    short, long, bad = rows(tmp_path / "metrics.jsonl")
    assert list(short.values()) == ["t.jsonl:1", tokens["total_before"] - long["original_tokens"], 5, True]
    assert (long["trajectory"], long["was_compressed"]) == ("t.jsonl:2", True)
    assert (bad["trajectory"], bad["rejected"].startswith("not JSON")) == ("t.jsonl:3", True)


def test_metrics_are_left_out_where_nobody_wants_them(tmp_path: Path) -> None:
    compressed(write(tmp_path / "t.jsonl", [agent_row(12)]), work(metrics={"enabled": False}))
    assert listed(tmp_path) == ["t.jsonl", "t_compressed.jsonl"]


def test_a_line_that_cannot_be_read_is_kept_beside_the_output_and_named(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(agent_row(1).encode() + b"\nnonsense \xff\n\n" + agent_row(2).encode() + b"\n{")
    finished = compressed(tmp_path / "t.jsonl")
    assert not finished.is_clean
    assert [problem.partition(": ")[0] for problem in finished.problems] == ["t.jsonl, line 2", "t.jsonl, line 5"]
    assert (tmp_path / "t_compressed.jsonl").read_text() == agent_row(1) + "\n\n" + agent_row(2) + "\n"
    assert (tmp_path / "t_compressed.rejected.jsonl").read_bytes() == b"nonsense \xff\n{\n"


def test_a_json_file_stays_one_whatever_is_taken_out_of_it(tmp_path: Path) -> None:
    elements = [3, json.loads(agent_row(12)), "x", json.loads(agent_row(1)), None]
    (tmp_path / "t.json").write_text(json.dumps(elements, indent=2) + "\n")
    finished = compressed(tmp_path / "t.json")
    written = json.loads((tmp_path / "t_compressed.json").read_text())
    assert ([row["conversations"][0] for row in written], written[1]) == ([turns(1)[0]] * 2, elements[3])
    assert (tmp_path / "t_compressed.json.rejected.jsonl").read_text() == '3\n"x"\nnull\n'
    assert finished.metrics["summary"]["trajectories_rejected"] == 3
    (tmp_path / "u.json").write_text("[1, 2 ]")
    compressed(tmp_path / "u.json")
    assert json.loads((tmp_path / "u_compressed.json").read_text()) == []


def test_a_json_file_in_which_all_is_short_keeps_its_bytes_and_one_that_breaks_off_loses_none(tmp_path: Path) -> None:
    whole = json.dumps([json.loads(agent_row(number)) for number in range(3)], indent=1)
    (tmp_path / "t.json").write_text(f"\n{whole} ")
    compressed(tmp_path / "t.json")
    assert (tmp_path / "t_compressed.json").read_text() == f"\n{whole} "
    (tmp_path / "u.json").write_text(whole[:-200])
    finished = compressed(tmp_path / "u.json")
    assert finished.problems == [
        f"u.json: its last {len(whole) - 200 - len(json.dumps(json.loads(whole)[:2], indent=1)) + 2:,} bytes are not JSON"
    ]
    assert json.loads((tmp_path / "u_compressed.json").read_text()) == json.loads(whole)[:2]
    kept = (tmp_path / "u_compressed.json").read_text().removesuffix("\n]\n") + (tmp_path / "u_compressed.json.rejected.jsonl").read_text()
    assert kept == whole[:-200] + "\n"


def test_a_folder_gives_a_folder_with_the_same_names(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    write(tmp_path / "in" / "a.jsonl", [agent_row(12), graph_line(1)])
    write(tmp_path / "in" / "deep" / "b.jsonl", [openai_row(12)])
    (tmp_path / "in" / "empty.jsonl").write_text("")
    (tmp_path / "in" / "one.json").write_text(agent_row(12))
    finished = compressed(tmp_path / "in")
    out = tmp_path / "in_compressed"
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.json*")) == ["a.jsonl", "deep/b.jsonl", "empty.jsonl", "one.json"]
    assert finished.metrics["summary"]["trajectories_compressed"] == 3
    assert json.loads((out / "one.json").read_text())["on_policy"] is False
    assert listed(tmp_path) == ["in", "in_compressed", "metrics.json", "metrics.jsonl"]


def test_what_is_still_too_long_is_flagged_and_goes_to_a_file_of_its_own_where_that_is_wanted(tmp_path: Path) -> None:
    hopeless = json.dumps({"conversations": [{"from": "human", "value": "x" * 3_000}, {"from": "gpt", "value": "y"}]})
    file = write(tmp_path / "t.jsonl", [agent_row(1), hopeless, agent_row(12)])
    finished = compressed(file)
    assert (finished.metrics["summary"]["trajectories_still_over_limit"], finished.is_clean) == (1, True)
    assert (tmp_path / "t_compressed.jsonl").read_text().splitlines()[1] == hopeless
    about = rows(tmp_path / "metrics.jsonl")[1]
    assert (about["still_over_limit"], "the target is 500" in about["over_limit_reason"]) == (True, True)
    shutil.move(tmp_path / "t_compressed.jsonl", tmp_path / "before.jsonl")
    compressed(file, work(processing={"save_over_limit": False}))
    first, _, last = (tmp_path / "before.jsonl").read_text().splitlines()
    assert (tmp_path / "t_compressed.jsonl").read_text().splitlines() == [first, last]
    assert (tmp_path / "t_compressed.over_limit.jsonl").read_text() == hopeless + "\n"


def test_a_sample_is_the_same_for_the_same_seed_and_another_for_another(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", many(300))

    def taken(**chosen: Any) -> list[int]:
        finished = compressed(file, work(processing=chosen))
        indices = [row["prompt_index"] for row in rows(tmp_path / "t_compressed.jsonl")]
        assert finished.metrics["summary"]["trajectories_not_sampled"] == 300 - len(indices)
        (tmp_path / "t_compressed.jsonl").unlink()
        return indices

    some = taken(sample_percent=30)
    assert 60 < len(some) < 120
    assert some == sorted(some) == taken(sample_percent=30)
    assert set(some) < set(taken(sample_percent=60)), "a larger sample has the smaller one in it"
    assert some != taken(sample_percent=30, seed=7)
    assert taken(sample_percent=0) == []


def test_a_run_that_was_stopped_goes_on_and_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.jsonl", [*many(40), "nonsense"])
    (tmp_path / "in" / "b.json").write_text(json.dumps([1, *(json.loads(line) for line in many(40)), 2], indent=1))
    write(tmp_path / "in" / "c.jsonl", many(10))
    whole = job(tmp_path / "in", out=tmp_path / "whole")
    compress_files(whole, LocalEngine(1))
    places = OutputPaths(tmp_path / "again", tmp_path / "again.json", is_folder=True)
    finished = job(tmp_path / "in")
    finished.places = places
    while not finished.metrics:
        try:
            compress_files(finished, Falling(3))
        except KeyboardInterrupt:
            assert not places.out.exists()
    assert finished.is_resumed
    for name in ("a.jsonl", "b.json", "c.jsonl"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert (tmp_path / "again.rejected.jsonl").read_bytes() == (tmp_path / "whole.rejected.jsonl").read_bytes() == b"nonsense\n1\n2\n"
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "metrics.jsonl").read_bytes()
    assert {**finished.metrics, "processing": 0} == {**whole.metrics, "processing": 0}
    assert finished.problems == whole.problems
    assert not places.folder.exists()


def test_an_unfinished_run_is_not_gone_on_with_other_settings_or_another_input(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", many(60))
    with pytest.raises(KeyboardInterrupt):
        compress_files(job(file), Falling(2))

    def refusal(wanted: CompressWork | None = None) -> str:
        with pytest.raises(TrajectorySettingsError) as raised:
            compressed(file, wanted)
        return str(raised.value)

    assert refusal(work(target=400)).startswith(
        "an unfinished run has compression.target_max_tokens 500, and now it is 400; resume it unchanged, start over with --restart"
    )
    assert "has seed 42, and now it is 7" in refusal(work(processing={"seed": 7}))
    write(file, many(61))
    assert refusal().startswith("the input of an unfinished run changed since: t.jsonl; ")
    write(file, many(60))
    compressed(file, work(processing={"num_workers": 1, "max_concurrent_requests": 3}))  # how it is done does not matter
    assert len(rows(tmp_path / "t_compressed.jsonl")) == 60


def test_a_restart_forgets_what_was_done(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", many(60))
    with pytest.raises(KeyboardInterrupt):
        compress_files(job(file), Falling(2))
    assert not compressed(file, work(target=400), restarts=True).is_resumed


def test_an_output_that_exists_is_not_written_over(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", [agent_row(12)])
    compressed(file)
    before = (tmp_path / "t_compressed.jsonl").read_bytes()
    with pytest.raises(TrajectorySettingsError, match=r"t_compressed\.jsonl exists; name another with --out, or remove it"):
        compressed(file)
    assert (tmp_path / "t_compressed.jsonl").read_bytes() == before


def test_two_runs_do_not_write_one_output(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", [agent_row(12)])

    class Meddling:
        def map(self, work: Callable[[Any], Any], chunks: Iterable[Any]) -> Generator[Any]:
            with pytest.raises(TrajectorySettingsError, match="another process works in"):
                compressed(file)
            yield from map(work, chunks)

    compress_files(job(file), Meddling())
    assert len(rows(tmp_path / "t_compressed.jsonl")) == 1


def test_a_restart_does_not_take_the_folder_of_a_run_that_is_at_work(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", many(60))

    class Meddling:
        def map(self, work: Callable[[Any], Any], chunks: Iterable[Any]) -> Generator[Any]:
            for number, chunk in enumerate(chunks):
                yield work(chunk)
                if number == 1:
                    with pytest.raises(TrajectorySettingsError, match="another process works in"):
                        compressed(file, restarts=True)

    compress_files(job(file), Meddling())
    assert [row["prompt_index"] for row in rows(tmp_path / "t_compressed.jsonl")] == list(range(60))


def test_a_restart_leaves_nothing_of_the_run_before_in_a_folder(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / "in").mkdir(exist_ok=True)
        write(tmp_path / "in" / name, [*many(40), "nonsense"])
    with pytest.raises(KeyboardInterrupt):
        compress_files(job(tmp_path / "in"), Falling(14))
    (tmp_path / "in" / "a.jsonl").unlink()
    write(tmp_path / "in" / "b.jsonl", many(3))
    assert not compressed(tmp_path / "in", restarts=True).is_resumed
    assert listed(tmp_path / "in_compressed") == ["b.jsonl"]
    assert listed(tmp_path) == ["in", "in_compressed", "metrics.json", "metrics.jsonl"]


def test_a_restart_does_not_forget_a_run_whose_output_is_there(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", many(60))
    with pytest.raises(KeyboardInterrupt):
        compress_files(job(file), Falling(2))
    (tmp_path / "t_compressed.jsonl").write_text("mine")
    with pytest.raises(TrajectorySettingsError, match=r"t_compressed\.jsonl exists"):
        compressed(file, restarts=True)
    (tmp_path / "t_compressed.jsonl").unlink()
    assert compressed(file).is_resumed


def test_files_whose_names_differ_in_their_suffix_have_different_files_beside_them(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[1]")
    write(tmp_path / "x.jsonl", ["2"])
    compressed(tmp_path / "x.json")
    compressed(tmp_path / "x.jsonl")
    assert (tmp_path / "x_compressed.json.rejected.jsonl").read_text() == "1\n"
    assert (tmp_path / "x_compressed.rejected.jsonl").read_text() == "2\n"


def test_a_document_on_many_lines_is_one_line_beside_the_output(tmp_path: Path) -> None:
    hopeless = {"conversations": [{"from": "human", "value": "x" * 3_000}, {"from": "gpt", "value": "y"}]}
    (tmp_path / "t.json").write_text(json.dumps(hopeless, indent=2))
    compressed(tmp_path / "t.json", work(processing={"save_over_limit": False}))
    assert rows(tmp_path / "t_compressed.json.over_limit.jsonl") == [hopeless]


def moving(times: int) -> Callable[[Path, Path], Path]:
    """Move so many files, and be stopped at the next."""
    left, really = [times], Path.replace

    def move(file: Path, target: Path) -> Path:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return really(file, target)

    return move


def test_killed_while_the_files_are_put_in_place_it_puts_the_rest_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "t.jsonl", [agent_row(12), "nonsense"])
    whole = compressed(file)
    texts = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for moves in range(4):
        for path in tmp_path.iterdir():
            if path != file:
                path.unlink()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", moving(moves))
            with pytest.raises(KeyboardInterrupt):
                compressed(file)
        again = compressed(file)
        assert {**again.metrics, "processing": 0} == {**whole.metrics, "processing": 0}
        found = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "metrics.json"}
        assert found == {name: text for name, text in texts.items() if name != "metrics.json"}


def test_every_step_says_how_far_the_run_came(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", many(30))
    steps: list[tuple[int, int, int, int]] = []

    def watch(run: CompressRun) -> None:
        steps.append((run.bytes_read, run.totals.trajectories, run.totals.tokens_saved, run.micro_usd))

    finished = compressed(file, on_step=watch)
    assert steps == sorted(steps)
    assert (len(steps) > 1, steps[-1]) == (True, (file.stat().st_size, 30, finished.metrics["tokens"]["total_saved"], 0))


@pytest.mark.parametrize("model", [None, "fake"])
def test_a_dry_run_finds_what_the_run_will_do_and_writes_nothing(tmp_path: Path, model: str | None) -> None:
    file = write(tmp_path / "t.jsonl", [*many(40), "nonsense", graph_line(12), openai_row(12)])
    found = analyse(job(file, work(model=model)), LocalEngine(1))
    assert listed(tmp_path) == ["t.jsonl"]
    values = found.to_dict(500)
    metrics = compressed(file).metrics
    assert values["trajectories"] == metrics["summary"]["total_trajectories"] == 42
    assert values["tokens"]["total"] == metrics["tokens"]["total_before"]
    assert values["over_target"] == values["brought_under"] == metrics["summary"]["trajectories_compressed"]
    assert (values["rejected"], values["still_over_limit"], found.problems[0].startswith("t.jsonl, line 41: ")) == (1, 0, True)
    assert sum(each["trajectories"] for each in values["histogram"]) == 42
    assert (
        values["tokens"]["min"] <= values["tokens"]["p10"] <= values["tokens"]["p50"] <= values["tokens"]["p99"] <= values["tokens"]["max"]
    )
    if model is None:
        assert values["tokens_after"]["total"] == metrics["tokens"]["total_after"]
        assert values["requests"] == 0
    else:
        assert values["requests"] == values["summaries"] == values["over_target"]
        assert values["prompt_tokens"] > values["tokens_to_summarise"] * 0.5
        assert 0 < values["answer_tokens"] <= 100 * values["requests"]
