"""The verifier finds nothing in an honest export, and every forgery in a dishonest one.

A forger here also writes hashes, counts and root anew; where only the source can tell, the test shows that too."""

import ast
import hashlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hermes import CallRecord, MessageGraph
from hermes.trajectories import verify as package
from hermes.trajectories.calls import SamplePolicies
from hermes.trajectories.errors import TrajectoryError
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.verify import verify
from hermes.trajectories.verify.expected_formats import EXPECTATIONS
from hermes.trajectories.verify.folder import READERS
from tests.unit.trajectories.forgery import Forged, Row, make
from tests.unit.trajectories.programs import OPS, program_graphs

# --- honest exports


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_an_honest_export_holds(name: str, tmp_path: Path) -> None:
    out, source = make(tmp_path, name)
    assert verify(out).problems == ()
    assert verify(out, [source]).problems == ()


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_an_honest_export_of_everything_that_happens_to_a_session_holds(name: str, tmp_path: Path) -> None:
    graphs = program_graphs([(op, number) for number, op in enumerate((*OPS, *OPS))])
    out, source = make(tmp_path, name, graphs)
    report = verify(out, [source])
    assert (report.ok, report.problems) == (True, ())
    assert report.counts["samples"] > 40


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("graphs", [[], [MessageGraph([{"role": "user", "content": "nobody answers"}], seed="s")]])
def test_an_empty_export_holds(name: str, graphs: list[MessageGraph], tmp_path: Path) -> None:
    out, source = make(tmp_path, name, graphs)
    assert verify(out, [source]).problems == ()


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_an_export_in_which_everything_is_excluded_holds(name: str, tmp_path: Path) -> None:
    out, source = make(tmp_path, name, policies=SamplePolicies(policy_versions=frozenset({"never"})))
    report = verify(out, [source])
    assert (report.problems, report.counts["trained"], report.counts["rows"]) == ((), 0, 0)


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("policies", [SamplePolicies(keep="accepted"), SamplePolicies(retries="last"), SamplePolicies(derived="include")])
def test_an_honest_export_holds_whatever_the_policies(name: str, policies: SamplePolicies, tmp_path: Path) -> None:
    graphs = program_graphs([("talk", 1), ("retry", 1), ("edit", 1), ("attempt", 1), ("twins", 3), ("fork", 1), ("talk", 2)])
    out, source = make(tmp_path, name, graphs, policies)
    assert verify(out, [source]).problems == ()


def test_counts_are_made_anew_and_progress_is_told(tmp_path: Path) -> None:
    out, source = make(tmp_path, "parquet")
    heard: list[tuple[str, int]] = []
    report = verify(out, [source], lambda what, done: heard.append((what, done)))
    assert report.counts == {"rows": 5, "sessions": 2, "samples": 10, "sampled": 22, "trained": 17, "excluded": 5}
    assert [heard.count((what, done)) for what, done in (("samples", 10), ("rows", 5), ("graphs", 2))] == [1, 1, 1]


# --- what is no export


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "no ledger.jsonl in it"),
        ("", "the first line is not JSON"),
        ("{}\n", "not a manifest"),
        ('{"ledger": "hermes.trajectories", "version": 2}\n', "version 2 of the ledger"),
        ('{"ledger": "hermes.trajectories", "version": 1, "settings": []}\n', "`settings` should be dict"),
    ],
)
def test_a_folder_that_is_no_export_is_refused_in_one_line(text: str | None, complaint: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "ledger.jsonl").write_text(text)
    with pytest.raises(TrajectoryError, match=re.escape(complaint)) as caught:
        verify(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrajectoryError, match="no such folder"):
        verify(tmp_path / "nowhere")


def test_an_unknown_format_is_a_problem_and_not_silence(tmp_path: Path) -> None:
    out, _ = make(tmp_path, "parquet")
    forged = Forged(out)
    forged.manifest["settings"]["format"] = "tomorrow"
    forged.seal()
    assert any("cannot read the format 'tomorrow'" in problem for problem in verify(out).problems)


def test_a_source_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    out, source = make(tmp_path, "parquet")
    (tmp_path / "broken.json").write_text("{")
    assert any("broken.json: cannot be read" in problem for problem in verify(out, [source, tmp_path / "broken.json"]).problems)


def test_two_responses_under_one_sample_id_are_one_trained_and_one_said(tmp_path: Path) -> None:
    graphs = [MessageGraph([{"role": "user", "content": "q"}], seed=seed) for seed in ("a", "b")]
    for graph, token in zip(graphs, (5, 6), strict=True):
        call = CallRecord(prompt_token_ids=[1], token_ids=[token], logprobs=[-0.5], sample_id="same", tokenizer="t")
        graph.append({"role": "assistant", "content": str(token)}, call=call)
    out, source = make(tmp_path, "parquet", graphs)
    report = verify(out, [source])
    assert (report.problems, report.counts["samples"], report.counts["trained"]) == ((), 2, 1)


# --- forgeries


@dataclass(frozen=True)
class Forgery:
    """One way to break an export, and the problem that says so."""

    name: str
    format: str
    forge: Callable[[Forged], object]
    problem: str
    """A pattern of the problem, which names the place."""
    needs_source: bool = False
    """Whether the files alone cannot tell: then they must not complain either."""


def edit(row: Row, column: str, at: int, value: Any) -> None:
    row[column][at] = value


def shift_mask(rows: list[Row]) -> None:
    """Train one token later, in every column."""
    row = rows[2]
    for column, empty in (("loss_mask", False), ("weight", 0.0), ("logprobs", 0.0)):
        row[column] = [empty, *row[column][:-1]]
    row["labels"] = [token if trained else -100 for token, trained in zip(row["input_ids"], row["loss_mask"], strict=True)]
    row["policy_spans"] = []


def move_span(forged: Forged) -> None:
    """Move one sample by one token, in the rows and in the ledger."""
    forged.rows(shift_mask)
    [where] = forged.line("four")["trained"]
    where |= {"start": where["start"] + 1, "end": where["end"] + 1}


def drop_row(rows: list[Row], number: int) -> None:
    del rows[number]
    for place, row in enumerate(rows):
        row["row"] = place


def swap_rows(rows: list[Row]) -> None:
    rows[2], rows[3] = rows[3], rows[2]
    for place, row in enumerate(rows):
        row["row"] = place


def rescale(rows: list[Row], forged: Forged) -> None:
    """Give the first session the loss scale that its ledger lines ask for."""
    tokens = sum(part["end"] - part["start"] for line in forged.lines if line["session"] == "session 0" for part in line["trained"])
    for row in rows:
        if row["session"] == "session 0":
            row["loss_scale"] = 1 / tokens


def drop_row_and_line(forged: Forged) -> None:
    """Remove a whole session, rows and lines; everything that is left agrees."""
    forged.rows(lambda rows: drop_row(rows, 4))
    forged.drop_line("last")
    forged.manifest["sessions"] = 1


def merge_twins(forged: Forged) -> None:
    """Count two samples with equal tokens as one."""
    twin = forged.line("two")["response"]
    forged.drop_line("two")

    def merge(rows: list[Row]) -> None:
        rows[0]["weight"] = [min(weight, 1.0) for weight in rows[0]["weight"]]
        for row in rows:
            row["path"] = [response for response in row["path"] if response != twin]
        rescale(rows, forged)

    forged.rows(merge)


def train_without_consent(forged: Forged) -> None:
    """Train a sample that the source forbids, in the row of a session of its own making."""
    line = forged.line("kept")
    line |= {"trained": [{"row": 5, "start": 1, "end": 2}], "excluded": []}

    def add(rows: list[Row]) -> None:
        row = json.loads(json.dumps(rows[3]))
        row |= {"row": 5, "input_ids": [30, 31], "loss_mask": [False, True], "labels": [-100, 31], "logprobs": [0.0, -0.5]}
        row |= {"weight": [0.0, 1.0], "advantages": [0.0, 0.0], "position_ids": [0, 1], "path": [line["response"]]}
        row |= {"policy_spans": [{"version": "", "start": 1, "end": 2}]}
        rows.insert(4, row)
        drop_row(rows, 6) if len(rows) > 6 else None
        for place, other in enumerate(rows):
            other["row"] = place
        rescale(rows, forged)

    line["trained"][0]["row"] = 4
    forged.line("last")["trained"][0]["row"] = 5
    forged.rows(add)


def train_less(forged: Forged) -> None:
    """Leave out a token that could be trained, for a reason that holds for others."""
    line = forged.line("last")
    line["trained"][0]["end"] = 3
    line["excluded"] = [{"start": 1, "end": 2, "reason": "no logprobs"}]

    def cut(rows: list[Row]) -> None:
        for column in ("input_ids", "loss_mask", "labels", "logprobs", "weight", "advantages", "position_ids"):
            rows[4][column].pop()
        rows[4] |= {"loss_scale": 1.0, "policy_spans": []}

    forged.rows(cut)


def drop_tree_and_lines(forged: Forged) -> None:
    forged.trees(lambda trees: trees.pop())
    forged.drop_line("last")
    forged.manifest["sessions"] = 1


def split_tree(trees: list[Row]) -> None:
    """Let a branch begin as its sibling does: the same prefix twice."""
    edit(trees[0], "input_ids", 10, 6)


def add_branch(trees: list[Row]) -> None:
    """Add a branch in which nothing is trained."""
    for column, value in (("input_ids", 99), ("position_ids", 0), ("subtree_end", 0), ("parents", -1)):
        trees[1][column].append(value)
    trees[1]["subtree_end"][-1] = len(trees[1]["input_ids"])


def drop_entry(trees: list[Row]) -> None:
    for column in ("token_index", "logprob", "advantage", "weight", "sample"):
        trees[0][column].pop()


def double_entry(trees: list[Row]) -> None:
    for column in ("token_index", "logprob", "advantage", "weight", "sample"):
        trees[0][column].append(trees[0][column][-1])


def set_turn(forged: Forged, file: str, key: str, field: str) -> None:
    """Put other words into a trained turn, and its new hash into the ledger."""

    def say(lines: list[Any]) -> None:
        [where] = forged.line("last")["trained"]
        turn = lines[where["row"]][key][where["turn"]]
        turn[field] = "words nobody said"
        text = json.dumps(turn, sort_keys=True, separators=(",", ":"))
        where["sha256"] = hashlib.sha256(text.encode("ascii")).hexdigest()

    forged.text(file, say)


def last_turn(forged: Forged, lines: list[Any], key: str) -> Any:
    [where] = forged.line("last")["trained"]
    return lines[where["row"]][key][where["turn"]]


def atif(forged: Forged, change: Callable[[Any], object]) -> None:
    """Edit the document of the sample `last`."""
    path = forged.folder / f"trajectory-{forged.line('last')['trained'][0]['row']:05d}.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def unpickle_more(forged: Forged) -> None:
    """Smuggle a call of a function into slime's file."""
    forged.torch(lambda value: value.update(more=Path("/")))


def truncate(forged: Forged, name: str) -> None:
    data = (forged.folder / name).read_bytes()
    (forged.folder / name).write_bytes(data[: len(data) // 2])


def rename(forged: Forged) -> None:
    forged.line("one")["sample"] = "somebody else"


def change_reason(forged: Forged) -> None:
    [part] = forged.line("kept")["excluded"]
    part["reason"] = "no token ids"


ROWS = "rows.parquet, row"
FORGERIES = [
    # Rows
    Forgery("shift a mask", "parquet", lambda f: f.rows(shift_mask), rf"{ROWS} 2: token 3 is not trained, but a sample is there"),
    Forgery("flip a mask", "parquet", lambda f: f.rows(lambda r: edit(r[0], "loss_mask", 7, True)), rf"{ROWS} 0: token 7 is trained, but"),
    Forgery("move a span", "parquet", move_span, rf"{ROWS} 2, sample 'four': the ledger trains \[4, 6\)"),
    Forgery("drop the last row", "parquet", lambda f: f.rows(lambda r: drop_row(r, 4)), r"ledger.jsonl, line 11, sample 'last': .*row 4"),
    Forgery("drop a row", "parquet", lambda f: f.rows(lambda r: drop_row(r, 1)), rf"{ROWS} 1, sample 'three': the ledger trains \[3, 6\)"),
    Forgery("double a row", "parquet", lambda f: f.rows(lambda r: r.append(r[2])), rf"{ROWS} 5: token 3 is trained, but no sample"),
    Forgery(
        "double a row under its own number",
        "parquet",
        lambda f: f.rows(lambda r: r.append({**r[2], "row": 5})),
        rf"{ROWS} 5: token 3 is trained, but no sample accounts for it",
    ),
    Forgery("swap two rows", "parquet", lambda f: f.rows(swap_rows), rf"{ROWS} 2, sample 'four': the ledger trains"),
    Forgery("swap two rows and their numbers", "parquet", lambda f: f.rows(lambda r: r.reverse()), rf"{ROWS} 0: says that it is row 4"),
    Forgery(
        "an id in a prompt",
        "parquet",
        lambda f: f.rows(lambda r: edit(r[4], "input_ids", 0, 7)),
        rf"{ROWS} 4, sample 'last': .*not its pro",
    ),
    Forgery(
        "an id in a completion",
        "parquet",
        lambda f: f.rows(lambda r: (edit(r[4], "input_ids", 2, 7), edit(r[4], "labels", 2, 7))),
        rf"{ROWS} 4, sample 'last': the tokens trained are not its completion",
    ),
    Forgery(
        "an id in half a completion",
        "parquet",
        lambda f: f.rows(lambda r: (edit(r[0], "input_ids", 9, 7), edit(r[0], "labels", 9, 7))),
        rf"{ROWS} 0: input_ids\[9\] is 7, the source gives 11",
        needs_source=True,
    ),
    Forgery(
        "a logprob",
        "parquet",
        lambda f: f.rows(lambda r: edit(r[2], "logprobs", 4, -1.0000001)),
        rf"{ROWS} 2: logprobs\[4\] is -1.0000001192092896, the source gives -1.0",
        needs_source=True,
    ),
    Forgery(
        "a logprob of context", "parquet", lambda f: f.rows(lambda r: edit(r[2], "logprobs", 0, -1.0)), rf"{ROWS} 2: token 0: logprobs"
    ),
    Forgery(
        "an advantage of context",
        "parquet",
        lambda f: f.rows(lambda r: edit(r[2], "advantages", 0, 1.0)),
        rf"{ROWS} 2: token 0: advantages",
    ),
    Forgery(
        "less weight",
        "parquet",
        lambda f: f.rows(lambda r: edit(r[0], "weight", 4, 1.0)),
        rf"{ROWS} 0: token 4 has weight 1, but 2 samples",
    ),
    Forgery(
        "more weight",
        "parquet",
        lambda f: f.rows(lambda r: edit(r[2], "weight", 4, 2.0)),
        rf"{ROWS} 2: token 4 has weight 2, but 1 samples",
    ),
    Forgery(
        "no weight",
        "parquet",
        lambda f: f.rows(lambda r: edit(r[2], "weight", 4, 0.0)),
        rf"{ROWS} 2: token 4: weight and loss_mask disagree",
    ),
    Forgery("a label off", "parquet", lambda f: f.rows(lambda r: edit(r[2], "labels", 4, -100)), rf"{ROWS} 2: token 4: labels"),
    Forgery("a label on", "parquet", lambda f: f.rows(lambda r: edit(r[2], "labels", 0, 1)), rf"{ROWS} 2: token 0: labels"),
    Forgery("a position", "parquet", lambda f: f.rows(lambda r: edit(r[1], "position_ids", 2, 5)), rf"{ROWS} 1: token 2: position_ids"),
    Forgery(
        "a shared prefix",
        "parquet",
        lambda f: f.rows(lambda r: r[2].update(shared_prefix=3)),
        rf"{ROWS} 2: says that it shares 3 .* shares 4",
    ),
    Forgery(
        "a parent row", "parquet", lambda f: f.rows(lambda r: r[2].update(parent_row=1)), rf"{ROWS} 2: says that it shares 4 .* with row 0"
    ),
    Forgery(
        "a loss scale", "parquet", lambda f: f.rows(lambda r: r[1].update(loss_scale=0.5)), rf"{ROWS} 1: loss_scale is 0.5, but 15 tokens"
    ),
    Forgery("on_policy denied", "parquet", lambda f: f.rows(lambda r: r[1].update(on_policy=False)), rf"{ROWS} 1: says on_policy: false"),
    Forgery(
        "on_policy not stated", "parquet", lambda f: f.rows(lambda r: r[1].update(on_policy=None)), rf"{ROWS} 1: does not state on_policy"
    ),
    Forgery("a session", "parquet", lambda f: f.rows(lambda r: r[4].update(session="x")), rf"{ROWS} 4, sample 'last': is of session 'x'"),
    Forgery(
        "a tokenizer", "parquet", lambda f: f.rows(lambda r: r[4].update(tokenizer="x")), rf"{ROWS} 4, sample 'last': is of tokenizer 'x'"
    ),
    Forgery(
        "a path cut", "parquet", lambda f: f.rows(lambda r: r[0]["path"].pop()), rf"{ROWS} 0, sample 'part': is trained here, but `path`"
    ),
    Forgery(
        "a foreign path",
        "parquet",
        lambda f: f.rows(lambda r: r[4].update(path=[*r[4]["path"], *r[3]["path"]])),
        rf"{ROWS} 4, sample 'agent'",
    ),
    Forgery(
        "a path to nowhere",
        "parquet",
        lambda f: f.rows(lambda r: r[4]["path"].append("f" * 64)),
        rf"{ROWS} 4: `path` names the response ff",
    ),
    Forgery(
        "a policy span", "parquet", lambda f: f.rows(lambda r: r[4]["policy_spans"][0].update(start=1)), rf"{ROWS} 4: policy_spans \[1, 4\)"
    ),
    Forgery("a column cut", "parquet", lambda f: f.rows(lambda r: r[4]["logprobs"].pop()), rf"{ROWS} 4: 4 input_ids, but 3 logprobs"),
    Forgery("a gap", "parquet", lambda f: f.rows(lambda r: edit(r[4], "weight", 0, None)), rf"{ROWS} 4: weight has gaps"),
    Forgery("a truncated file", "parquet", lambda f: truncate(f, "rows.parquet"), "rows.parquet: cannot be read"),
    # The ledger
    Forgery("drop a line", "parquet", lambda f: f.drop_line("four"), rf"{ROWS} 2: token 3 is trained, but no sample accounts for it"),
    Forgery(
        "double a line", "parquet", lambda f: f.lines.append(f.line("four")), r"ledger.jsonl, line 12, sample 'four': counted twice: line 5"
    ),
    Forgery(
        "double a span",
        "parquet",
        lambda f: f.line("four")["trained"].append({"row": 0, "start": 3, "end": 5}),
        r"ledger.jsonl, line 5: sample 'four' is trained 2 times",
    ),
    Forgery(
        "shift a line",
        "parquet",
        lambda f: f.line("four")["trained"][0].update(start=4, end=6),
        rf"{ROWS} 2, sample 'four': the ledger trains",
    ),
    Forgery(
        "shorten a line",
        "parquet",
        lambda f: f.line("four")["trained"][0].update(end=4),
        rf"{ROWS} 2, sample 'four': the ledger trains \[3, 4\)",
    ),
    Forgery("another row", "parquet", lambda f: f.line("four")["trained"][0].update(row=9), r"line 5, sample 'four': trained in row 9"),
    Forgery(
        "a prompt's hash",
        "parquet",
        lambda f: f.line("four")["prompt"].update(sha256="0" * 64),
        rf"{ROWS} 2, sample 'four': .* not its prompt",
    ),
    Forgery(
        "a prompt's length",
        "parquet",
        lambda f: f.line("four")["prompt"].update(length=2),
        rf"{ROWS} 2, sample 'four': 3 tokens stand before",
    ),
    Forgery(
        "exclude and train",
        "parquet",
        lambda f: f.line("four")["excluded"].append({"start": 0, "end": 2, "reason": "x"}),
        "sample 'four': the led",
    ),
    Forgery(
        "an overlap",
        "parquet",
        lambda f: f.line("part")["excluded"][0].update(start=1),
        r"rows.parquet, row 0, sample 'part': the ledger trains \[8, 10\), which is not 1 of",
    ),
    Forgery(
        "a gap between", "parquet", lambda f: f.line("part")["excluded"][1].update(start=4), r"line \d, sample 'part': .* gap or an overlap"
    ),
    Forgery("silence", "parquet", lambda f: f.line("bare").update(excluded=[]), r"line \d, sample 'bare': neither trained nor excluded"),
    Forgery("no reason", "parquet", lambda f: f.line("bare")["excluded"][0].update(reason=""), r"line \d: an exclusion needs"),
    Forgery(
        "another reason",
        "parquet",
        change_reason,
        "line 8, sample 'kept': .*reason is 'no token ids', the source gives 'no consent'",
        needs_source=True,
    ),
    Forgery(
        "an invented reason",
        "parquet",
        lambda f: f.line("kept")["excluded"][0].update(reason="because"),
        "line 8, sample 'kept': .*reason is 'because', the source gives 'no consent'",
        needs_source=True,
    ),
    Forgery("a renamed sample", "parquet", rename, "sample is 'somebody else', the source gives 'one'", needs_source=True),
    Forgery("another response", "tree", lambda f: f.line("last").update(response="0" * 64), "'last': response is '0000", needs_source=True),
    Forgery("more sampled", "parquet", lambda f: f.line("part").update(sampled=6), r"line \d, sample 'part': .* gap or an overlap"),
    Forgery(
        "more sampled and excluded",
        "parquet",
        lambda f: (f.line("part").update(sampled=6), f.line("part")["excluded"][1].update(end=6)),
        "sample 'part': sampled is 6, the source gives 5",
        needs_source=True,
    ),
    Forgery("a field more", "parquet", lambda f: f.line("one").update(note="x"), "ledger.jsonl, line 2: not a sample"),
    Forgery("a row and its line", "parquet", drop_row_and_line, "sample 'last': in the source, but not in the ledger", needs_source=True),
    Forgery("merged twins", "parquet", merge_twins, "sample 'two': in the source, but not in the ledger", needs_source=True),
    Forgery("no consent", "parquet", train_without_consent, "'kept': trained has 1 values, the source gives 0", needs_source=True),
    Forgery(
        "trained and said to have no logprobs",
        "parquet",
        train_less,
        "sample 'last': trained\\[0\\].end is 3, the source gives 4",
        needs_source=True,
    ),
    Forgery(
        "duplicates", "parquet", lambda f: f.manifest.update(duplicates=3), "says duplicates is 3, the source gives 0", needs_source=True
    ),
    Forgery(
        "sessions", "parquet", lambda f: f.manifest.update(sessions=1), "ledger.jsonl: the manifest says sessions is 1, the lines give 2"
    ),
    # Trees
    Forgery(
        "a subtree end",
        "tree",
        lambda f: f.trees(lambda t: edit(t[0], "subtree_end", 4, 11)),
        "tree.parquet, row 0: token 4: subtree_end is 11",
    ),
    Forgery(
        "a depth",
        "tree",
        lambda f: f.trees(lambda t: edit(t[0], "position_ids", 10, 5)),
        "tree.parquet, row 0: token 10: position_ids is 5",
    ),
    Forgery("a parent", "tree", lambda f: f.trees(lambda t: edit(t[0], "parents", 10, 2)), "tree.parquet, row 0"),
    Forgery(
        "a parent behind",
        "tree",
        lambda f: f.trees(lambda t: edit(t[0], "parents", 3, 9)),
        "tree.parquet, row 0: .* points outside the tree",
    ),
    Forgery(
        "a parent whose branch ended",
        "tree",
        lambda f: f.trees(lambda t: edit(t[0], "parents", 12, 5)),
        "row 0: .* whose subtree has ended",
    ),
    Forgery("a prefix twice", "tree", lambda f: f.trees(split_tree), "row 0: tokens 4 and 10 are the same token after the same prefix"),
    Forgery("an idle branch", "tree", lambda f: f.trees(add_branch), "row 1: token 4 ends a branch, but is not trained"),
    Forgery(
        "a token of a prompt", "tree", lambda f: f.trees(lambda t: edit(t[0], "input_ids", 1, 9)), "row 0, sample 'one': .* not its prompt"
    ),
    Forgery(
        "a token of a completion",
        "tree",
        lambda f: f.trees(lambda t: edit(t[1], "input_ids", 2, 9)),
        "row 1, sample 'last': .* not its compl",
    ),
    Forgery(
        "an entry moved", "tree", lambda f: f.trees(lambda t: edit(t[0], "token_index", 0, 4)), "row 0, sample 'one': the entries are not"
    ),
    Forgery("an entry dropped", "tree", lambda f: f.trees(drop_entry), "row 0, sample '.*': the entries are not the segments"),
    Forgery("an entry twice", "tree", lambda f: f.trees(double_entry), "row 0, sample '.*': the entries are not the segments"),
    Forgery("an entry's weight", "tree", lambda f: f.trees(lambda t: edit(t[0], "weight", 3, 2.0)), "row 0: entry 3: weight is not 1"),
    Forgery("an entry's sample", "tree", lambda f: f.trees(lambda t: edit(t[0], "samples", 0, "x")), "row 0: trains sample 'x'"),
    Forgery(
        "an entry's logprob",
        "tree",
        lambda f: f.trees(lambda t: edit(t[1], "logprob", 0, -3.0)),
        "row 1: logprob\\[0\\] is -3.0, the source gives -0.5",
        True,
    ),
    Forgery("a tree renamed", "tree", rename, "row 0: trains sample 'one', which the ledger does not have there"),
    Forgery(
        "a segment", "tree", lambda f: f.line("last")["trained"][0].update(segments=[[1, 3]]), "row 1, sample 'last': the entries are not"
    ),
    Forgery("a tree's loss scale", "tree", lambda f: f.trees(lambda t: t[0].update(loss_scale=1.0)), "row 0: loss_scale is 1"),
    Forgery("a tree's on_policy", "tree", lambda f: f.trees(lambda t: t[0].update(on_policy=False)), "row 0: says on_policy: false"),
    Forgery("a tree and its line", "tree", drop_tree_and_lines, "sample 'last': in the source, but not in the ledger", True),
    # Files of trainers
    Forgery("trl: a label", "trl", lambda f: f.rows(lambda r: edit(r[0], "labels", 3, -100)), rf"{ROWS} 0: token 3"),
    Forgery("trl: other samples", "trl", lambda f: f.rows(lambda r: r[0].update(samples=["x"])), rf"{ROWS} 0: names other samples"),
    Forgery(
        "verl: a mask",
        "verl",
        lambda f: f.text("rows.jsonl", lambda t: edit(t[0], "response_mask", 3, 1)),
        "rows.jsonl, row 0: token 6 is tr",
    ),
    Forgery(
        "verl: an id",
        "verl",
        lambda f: f.text("rows.jsonl", lambda t: edit(t[0], "prompt_ids", 0, 9)),
        "rows.jsonl, row 0, sample .* not its prompt",
    ),
    Forgery(
        "verl: no list", "verl", lambda f: f.text("rows.jsonl", lambda t: t[0].update(response_ids=1)), "rows.jsonl, row 0: is malformed"
    ),
    Forgery("verl: a cut line", "verl", lambda f: truncate(f, "rows.jsonl"), "rows.jsonl: line . is not JSON"),
    Forgery(
        "verl: a logprob",
        "verl",
        lambda f: f.text("rows.jsonl", lambda t: edit(t[0], "response_logprobs", 0, -8.0)),
        "rows.jsonl, row 0: response_logprobs\\[0\\] is -8.0, the source gives -0.5",
        needs_source=True,
    ),
    Forgery("atropos: a mask", "atropos", lambda f: f.text("groups.jsonl", lambda t: edit(t[0]["masks"], 0, 0, 1)), "groups.jsonl, row 0"),
    Forgery(
        "atropos: a mask's id",
        "atropos",
        lambda f: f.text(
            "groups.jsonl",
            lambda t: edit(t[0]["masks"], 0, -1, 77),
        ),
        "row 0: token .*: masks is neither",
    ),
    Forgery(
        "atropos: a row less", "atropos", lambda f: f.text("groups.jsonl", lambda t: t[0]["tokens"].pop()), "groups.jsonl: line 1 is not"
    ),
    Forgery(
        "agentlightning: spans differ",
        "agentlightning",
        lambda f: f.text("spans.jsonl", lambda t: edit(t[1]["attributes"], "prompt_token_ids", 0, 9)),
        "events.jsonl, row 0: differs in spans.jsonl",
    ),
    Forgery(
        "agentlightning: an event less",
        "agentlightning",
        lambda f: f.text("events.jsonl", lambda t: t.pop()),
        "spans.jsonl, row .: has no event",
    ),
    Forgery(
        "verifiers: a mask",
        "verifiers",
        lambda f: f.text("traces.jsonl", lambda t: edit(t[1]["traces"][0]["nodes"][-1], "mask", 0, False)),
        "traces.jsonl, row ., sample|traces.jsonl, row .: ",
    ),
    Forgery(
        "verifiers: a token",
        "verifiers",
        lambda f: f.text("traces.jsonl", lambda t: edit(t[1]["traces"][0]["nodes"][0], "token_ids", 0, 9)),
        "traces.jsonl, row ., sample 'last': .* prompt",
    ),
    Forgery("slime: a mask", "slime", lambda f: f.torch(lambda v: edit(v["samples"][0], "loss_mask", 0, 0)), "rollout_0.pt, row 0: "),
    Forgery(
        "slime: a token",
        "slime",
        lambda f: f.torch(lambda v: edit(v["samples"][0], "tokens", 0, 9)),
        "rollout_0.pt, row 0, sample .* not its prompt",
    ),
    Forgery("slime: code", "slime", unpickle_more, "rollout_0.pt: cannot be read .*asks for"),
    # Texts
    Forgery(
        "sharegpt: a turn",
        "sharegpt",
        lambda f: f.text("sharegpt.jsonl", lambda t: last_turn(f, t, "conversations").update(value="x")),
        "sample 'last': turn 1 is not the one",
    ),
    Forgery(
        "sharegpt: a turn and its hash",
        "sharegpt",
        lambda f: set_turn(f, "sharegpt.jsonl", "conversations", "value"),
        "row 5: conversations\\[1\\].value is not the text that the source gives",
        True,
    ),
    Forgery(
        "sharegpt: untrained",
        "sharegpt",
        lambda f: f.text("sharegpt.jsonl", lambda t: last_turn(f, t, "conversations").update(train=False)),
        "sample 'last': turn 1 is not marked",
    ),
    Forgery(
        "sharegpt: a turn more",
        "sharegpt",
        lambda f: f.text("sharegpt.jsonl", lambda t: t[-1]["conversations"][0].update(train=True)),
        "sharegpt.jsonl, row .: turn 0 is marked as trained, but no",
    ),
    Forgery(
        "openai: a turn",
        "openai",
        lambda f: f.text("openai.jsonl", lambda t: last_turn(f, t, "messages").update(content="x")),
        "sample 'last': turn 1 is not the one",
    ),
    Forgery(
        "openai: a turn and its hash",
        "openai",
        lambda f: set_turn(f, "openai.jsonl", "messages", "content"),
        "row 5: messages\\[1\\].content is not the text that the source gives",
        True,
    ),
    Forgery(
        "openai: a weight",
        "openai",
        lambda f: f.text("openai.jsonl", lambda t: last_turn(f, t, "messages").update(weight=0)),
        "sample 'last': turn 1 is not marked",
    ),
    Forgery("atif: a step", "atif", lambda f: atif(f, lambda d: d["steps"][1].update(message="x")), "sample 'last': turn 1 is not the one"),
    Forgery(
        "sharegpt: context",
        "sharegpt",
        lambda f: f.text("sharegpt.jsonl", lambda t: t[-1]["conversations"][0].update(value="x")),
        "sharegpt.jsonl, row ., sample 'last': the turns before turn . are not those in the ledger",
    ),
    Forgery(
        "openai: context",
        "openai",
        lambda f: f.text("openai.jsonl", lambda t: t[-1]["messages"][0].update(role="system")),
        "openai.jsonl, row ., sample 'last': the turns before turn . are not those in the ledger",
    ),
    Forgery(
        "atif: context",
        "atif",
        lambda f: atif(f, lambda d: d["steps"][0].update(message="x")),
        "trajectory-.*json, row ., sample 'last': the turns before turn . are not those in the ledger",
    ),
    Forgery(
        "atif: copied",
        "atif",
        lambda f: atif(f, lambda d: d["steps"][1].update(is_copied_context=True)),
        "sample 'last': turn 1 is not marked",
    ),
]


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_a_forgery_is_found_though_hashes_counts_and_root_agree(forgery: Forgery, tmp_path: Path) -> None:
    out, source = make(tmp_path, forgery.format)
    forged = Forged(out)
    forgery.forge(forged)
    forged.seal()
    alone, compared = verify(out).problems, verify(out, [source]).problems
    assert any(re.search(forgery.problem, problem) for problem in compared), compared
    if forgery.needs_source:
        assert alone == ()
    else:
        assert any(re.search(forgery.problem, problem) for problem in alone), alone


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_a_careless_forgery_is_found_by_its_hashes_and_counts(forgery: Forgery, tmp_path: Path) -> None:
    out, _ = make(tmp_path, forgery.format)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    forged = Forged(out)
    forgery.forge(forged)
    forged.save()
    problems = verify(out).problems
    altered = [name for name, data in before.items() if name != "ledger.jsonl" and (out / name).read_bytes() != data]
    for name in altered:
        assert any(re.match(rf"{name}: (altered|\d+ bytes long)", problem) for problem in problems)
    if not altered and not forgery.needs_source:
        assert problems


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (("samples",), "samples is 11"),
        (("rows",), "rows is 6, the files have 5"),
        (("tokens", "sampled"), "tokens.sampled is 23"),
        (("tokens", "trained"), "tokens.trained is 18"),
        (("tokens", "excluded"), "tokens.excluded is 6"),
        (("excluded", "no logprobs", "tokens"), r"excluded\['no logprobs'\] is"),
        (("excluded", "no logprobs", "samples"), r"excluded\['no logprobs'\] is"),
    ],
)
def test_a_changed_count_is_found(keys: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    out, _ = make(tmp_path, "parquet")
    forged = Forged(out)
    place = forged.manifest
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] += 1
    forged.save()
    [found] = verify(out).problems
    assert re.search(f"ledger.jsonl: the manifest says {problem}", found)


def test_a_changed_root_is_found(tmp_path: Path) -> None:
    out, _ = make(tmp_path, "parquet")
    forged = Forged(out)
    forged.manifest["merkle_root"] = "0" * 64
    forged.save()
    [found] = verify(out).problems
    assert found.startswith("ledger.jsonl: the manifest says merkle_root is 000")


def test_files_missing_added_hidden_or_listed_from_elsewhere_are_found(tmp_path: Path) -> None:
    out, _ = make(tmp_path, "parquet")
    (out / "notes.txt").write_text("x")
    (out / ".hidden").write_text("x")
    (out / "inner").mkdir()
    (out / "inner" / "rows.parquet").write_text("x")
    forged = Forged(out)
    forged.manifest["files"] += [{"name": "gone.parquet", "bytes": 1, "sha256": ""}, {"name": "../source.jsonl", "bytes": 1, "sha256": ""}]
    forged.save()
    problems = verify(out).problems
    assert {problem.split(":")[0] for problem in problems} == {
        *("notes.txt", ".hidden", "inner/rows.parquet", "gone.parquet", "ledger.jsonl"),
    }


def test_a_ledger_cut_off_in_a_line_is_found(tmp_path: Path) -> None:
    out, _ = make(tmp_path, "parquet")
    data = (out / "ledger.jsonl").read_bytes()
    (out / "ledger.jsonl").write_bytes(data[:-20])
    assert "ledger.jsonl, line 11: cut off in the middle" in verify(out).problems


def test_rows_out_of_depth_first_order_are_found(tmp_path: Path) -> None:
    out, _ = make(tmp_path, "parquet")
    forged = Forged(out)

    def reorder(rows: list[Row]) -> None:
        rows[:4] = [rows[2], rows[3], rows[0], rows[1]]
        for place, row in enumerate(rows):
            row |= {"row": place, "parent_row": -1, "shared_prefix": 0}
        rows[3] |= {"parent_row": 2, "shared_prefix": 6}

    forged.rows(reorder)
    for line in forged.lines:
        for where in line["trained"]:
            where["row"] = {2: 0, 3: 1, 0: 2, 1: 3, 4: 4}[where["row"]]
    forged.seal()
    assert any(re.match(r"rows.parquet, row 2: rows are not in depth-first order", problem) for problem in verify(out).problems)


def test_a_row_with_a_derived_context_that_claims_to_be_on_policy_is_found_with_the_source(tmp_path: Path) -> None:
    out, source = make(tmp_path, "parquet", policies=SamplePolicies(derived="include"))
    assert verify(out, [source]).problems == ()
    forged = Forged(out)
    [where] = forged.line("ours")["trained"]
    forged.rows(lambda rows: rows[where["row"]].update(on_policy=True))
    forged.seal()
    assert verify(out).problems == ()
    row, counts = verify(out, [source]).problems
    assert row == f"rows.parquet, row {where['row']}: on_policy is True, the source gives False"
    assert counts.startswith("ledger.jsonl: the manifest says trained is ")


def test_a_row_that_denies_its_policy_is_found_with_the_source(tmp_path: Path) -> None:
    out, source = make(tmp_path, "parquet", policies=SamplePolicies(derived="include"))
    forged = Forged(out)
    forged.rows(lambda rows: rows[0].update(on_policy=False))
    forged.seal()
    assert verify(out).problems == ()
    row, counts = verify(out, [source]).problems
    assert row == "rows.parquet, row 0: on_policy is False, the source gives True"
    assert counts.startswith("ledger.jsonl: the manifest says trained is ")


def test_problems_are_counted_beyond_the_first_thousand(tmp_path: Path) -> None:
    out, _ = make(tmp_path, "parquet")
    with (out / "ledger.jsonl").open("a") as ledger:
        ledger.write("{}\n" * 2_000)
    problems = verify(out).problems
    assert (len(problems), problems[-1]) == (1_001, "and 1000 more problems")


def scripted() -> list[MessageGraph]:
    """Return a chat in which a script answers first, and then a model."""
    chat = MessageGraph([{"role": "user", "content": "question"}], seed="scripted")
    chat.append({"role": "assistant", "content": "a script's words"}, call=CallRecord(model="scripted", sample_id="script"))
    chat.append({"role": "user", "content": "and now?"})
    call = CallRecord(model="m", prompt_token_ids=[1, 2], token_ids=[3], logprobs=[-0.5], sample_id="model", tokenizer="m")
    chat.append({"role": "assistant", "content": "a model's words"}, call=call)
    return [chat]


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_script_that_answered_is_context_and_never_trained(name: str, tmp_path: Path) -> None:
    out, source = make(tmp_path, name, scripted())
    assert verify(out, [source]).problems == ()
    forged = Forged(out)
    assert [(line["sample"], bool(line["trained"]), [part["reason"] for part in line["excluded"]]) for line in forged.lines] == [
        ("script", False, ["scripted answer"]),
        ("model", True, []),
    ]


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("reason", ["no token ids", "no consent", "redacted", "retried", "policy version unknown not asked for"])
def test_a_ledger_that_hides_that_a_script_answered_is_found_with_the_source(name: str, reason: str, tmp_path: Path) -> None:
    out, source = make(tmp_path, name, scripted(), SamplePolicies(retries="last"))
    forged = Forged(out)
    forged.line("script")["excluded"][0]["reason"] = reason
    forged.seal()
    assert verify(out).problems == ()
    [problem] = verify(out, [source]).problems
    assert problem.endswith(f"sample 'script': excluded[0].reason is {reason!r}, the source gives 'scripted answer'")


@pytest.mark.parametrize("name", ["atif", "openai", "sharegpt"])
def test_a_scripts_answer_that_is_trained_unasked_is_found_with_the_source(name: str, tmp_path: Path) -> None:
    out, source = make(tmp_path, name, scripted(), SamplePolicies(scripted="include"))
    assert verify(out, [source]).problems == ()
    forged = Forged(out)
    forged.manifest["settings"]["policies"]["scripted"] = "exclude"
    forged.seal()
    assert any(problem.endswith("sample 'script': trained has 1 values, the source gives 0") for problem in verify(out, [source]).problems)


def test_a_model_that_answered_is_not_excused_as_a_script(tmp_path: Path) -> None:
    out, source = make(tmp_path, "parquet", policies=SamplePolicies(keep="accepted"))
    forged = Forged(out)
    forged.line("bare")["excluded"][0]["reason"] = "scripted answer"
    forged.seal()
    [problem] = verify(out, [source]).problems
    assert problem.endswith("excluded[0].reason is 'scripted answer', the source gives 'no token ids'")


# --- independence


def test_every_format_has_a_reader_here() -> None:
    assert READERS.keys() == EXPECTATIONS.keys() == FORMATS.keys()


def test_the_verifier_imports_nothing_of_the_exporter() -> None:
    folder = Path(str(package.__file__)).parent
    allowed = {"numpy", "pyarrow", *sys.stdlib_module_names}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                if name.split(".")[0] == "hermes":
                    assert name in ("hermes.graph", "hermes.trajectories.errors") or name.startswith("hermes.trajectories.verify."), path
                else:
                    assert name.split(".")[0] in allowed, path
