"""Conservation of samples, over random sessions: every sampled token is trained exactly once, in exactly the context it was sampled in.

What is expected is computed here from the graphs with plain lists and sets; nothing of the exporter is asked about itself."""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from hermes import CallRecord, MessageGraph
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import ExportSession
from hermes.trajectories.verify import verify
from tests.unit.trajectories.programs import FULLY_TRAINED, PROGRAMS, Step, program_graphs

CI = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))

Line = dict[str, Any]


@dataclass(frozen=True)
class Sampled:
    """One sample, as the graph has it."""

    group: tuple[str, str, str]
    """Session, rollout, tokenizer."""
    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    logprobs: tuple[float, ...]
    count: int
    """How many tokens were sampled."""
    others: tuple[Any, ...]
    """What twins may differ in beside their logprobs."""

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.prompt + self.trained

    @property
    def trained(self) -> tuple[int, ...]:
        return self.completion[: len(self.logprobs)] if self.prompt else ()


def sampled(graphs: Sequence[MessageGraph]) -> dict[str, Sampled]:
    """Return every sample by its id, each in the first session that has it."""
    found: dict[str, Sampled] = {}
    for place, graph in enumerate(graphs):
        for response in graph.responses():
            if response.sample_id in found:
                continue
            notes: dict[str, Any] = {}
            for note in response.annotations:
                notes |= note
            call = response.call or CallRecord()
            found[response.sample_id] = Sampled(
                (name_of(place), notes.get("rollout", name_of(place)), call.tokenizer or ""),
                tuple(call.prompt_token_ids or ()),
                tuple(call.token_ids or ()),
                tuple(call.logprobs or ()),
                max(len(call.token_ids or ()), (call.usage or {}).get("completion_tokens", 0)),
                (call.policy_version, notes.get("reward"), notes.get("advantage")),
            )
    return found


def name_of(place: int) -> str:
    return f"session-{place}"


def write(graphs: Sequence[MessageGraph], out: Path, name: str) -> None:
    export([ExportSession(name_of(place), graph) for place, graph in enumerate(graphs)], out, ExportSettings(format=name), FORMATS)


def read_ledger(folder: Path) -> tuple[Line, list[Line]]:
    manifest, *lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text("ascii").splitlines()]
    return manifest, lines


def check_ledger(manifest: Line, lines: list[Line], samples: dict[str, Sampled]) -> None:
    """Every sample is in the ledger once; what is not trained of it is excluded with a reason."""
    assert Counter(line["sample"] for line in lines) == Counter(list(samples))
    for line in lines:
        sample = samples[line["sample"]]
        assert (line["session"], line["rollout"], line["tokenizer"]) == sample.group
        left = [place for part in line["excluded"] for place in range(part["start"], part["end"])]
        assert left == list(range(len(sample.trained), sample.count))
        assert bool(line["trained"]) == bool(sample.trained)
    assert manifest["tokens"] == {
        "sampled": sum(sample.count for sample in samples.values()),
        "trained": sum(len(sample.trained) for sample in samples.values()),
        "excluded": sum(sample.count - len(sample.trained) for sample in samples.values()),
    }


def check_rows(folder: Path, lines: list[Line], samples: dict[str, Sampled], program: Sequence[Step]) -> None:
    """Trained exactly once, in exactly its context, in as few rows as can be."""
    rows = pq.read_table(folder / "rows.parquet").to_pylist()
    weights = [[0.0] * len(row["input_ids"]) for row in rows]
    for line in lines:
        sample = samples[line["sample"]]
        for place in line["trained"]:
            row, start, end = rows[place["row"]], place["start"], place["end"]
            assert tuple(row["input_ids"][:end]) == sample.tokens  # not one token off-context
            assert tuple(row["logprobs"][start:end]) == sample.logprobs[: end - start]
            for at in range(start, end):
                weights[place["row"]][at] += 1
    assert [row["weight"] for row in rows] == weights  # no token is trained that no sample accounts for, and none twice
    assert [row["loss_mask"] for row in rows] == [[weight > 0 for weight in row] for row in weights]
    least, most = bounds(samples)
    counted = Counter((row["session"], row["rollout"], row["tokenizer"]) for row in rows)
    for group in {sample.group for sample in samples.values()}:
        if any(op == "cut" for op, _ in program):
            assert least[group] <= counted[group] <= most[group]
        else:
            assert counted[group] == least[group]


def bounds(samples: dict[str, Sampled]) -> tuple[Counter[Any], Counter[Any]]:
    """Return the least number of rows by group: sequences that no other one begins with, and one for each twin that differs.

    And the most: a sample that begins as a longer one does may differ from it, and then has a row of its own too."""
    least: Counter[Any] = Counter()
    most: Counter[Any] = Counter()
    for group in {sample.group for sample in samples.values()}:
        members = [sample for sample in samples.values() if sample.group == group and sample.trained]
        sequences = {sample.tokens for sample in members}
        prefixes = {tokens[:end] for tokens in sequences for end in range(len(tokens))}
        leaves = len(sequences - prefixes)
        kinds = {(sample.prompt, sample.trained, sample.logprobs, sample.others) for sample in members}
        twins = len(kinds) - len({(sample.prompt, sample.trained) for sample in members})
        least[group] = leaves + twins
        most[group] = leaves + len(kinds)
    return least, most


def check_trees(folder: Path, lines: list[Line], samples: dict[str, Sampled]) -> None:
    """Each unique prefix is computed once; each sample's tokens follow its prompt in the tree."""
    trees = pq.read_table(folder / "tree.parquet").to_pylist()
    unique: dict[Any, set[tuple[int, ...]]] = {}
    for sample in samples.values():
        if sample.trained:
            unique.setdefault(sample.group, set()).update(sample.tokens[: end + 1] for end in range(len(sample.tokens)))
    assert {(tree["session"], tree["rollout"], tree["tokenizer"]): len(tree["input_ids"]) for tree in trees} == {
        group: len(prefixes) for group, prefixes in unique.items()
    }
    entries: list[Counter[int]] = [Counter() for _ in trees]
    for line in lines:
        for place in line["trained"]:
            tree = trees[place["row"]]
            at = place["segments"][-1][1] - 1
            path = []
            while at >= 0:
                path.append(tree["input_ids"][at])
                at = tree["parents"][at]
            assert tuple(reversed(path)) == samples[line["sample"]].tokens
            for start, end in place["segments"]:
                entries[place["row"]].update(range(start, end))
    assert [Counter(tree["token_index"]) for tree in trees] == entries


def check_program(program: Sequence[Step], folder: Path) -> None:
    graphs = program_graphs(program)
    samples = sampled(graphs)
    for name in ("parquet", "tree"):
        out = folder / name
        write(graphs, out, name)
        manifest, lines = read_ledger(out)
        check_ledger(manifest, lines, samples)
        if name == "parquet":
            check_rows(out, lines, samples, program)
        else:
            check_trees(out, lines, samples)
        if all(op in FULLY_TRAINED for op, _ in program):
            assert manifest["tokens"]["trained"] == manifest["tokens"]["sampled"]  # 1.0000, not nearly
            assert manifest["excluded"] == {}
        source = folder / "source.jsonl"
        source.write_text("".join(f"{graph.to_json()}\n" for graph in graphs), "utf-8")
        report = verify(out, [source])
        assert report.problems == ()
        assert (report.counts["rows"], report.counts["trained"]) == (manifest["rows"], manifest["tokens"]["trained"])
        again = folder / f"{name}-again"
        write(graphs, again, name)
        assert contents(again) == contents(out)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def in_a_folder(check: Callable[[Path], None]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        check(folder)
    finally:
        shutil.rmtree(folder)


@CI
@given(PROGRAMS)
def test_every_sampled_token_is_trained_exactly_once_in_its_own_context(program: list[Step]) -> None:
    in_a_folder(lambda folder: check_program(program, folder))


@pytest.mark.slow
@LONG
@given(PROGRAMS)
def test_every_sampled_token_is_trained_exactly_once_in_ten_thousand_programs(program: list[Step]) -> None:
    in_a_folder(lambda folder: check_program(program, folder))


@settings(CI, max_examples=50)
@given(PROGRAMS)
def test_a_graph_given_twice_or_as_a_fork_counts_once(program: list[Step]) -> None:
    def check(folder: Path) -> None:
        graphs = program_graphs(program)
        copies = [*graphs, *(MessageGraph.from_json(graph.to_json()) for graph in graphs), *(graph.fork() for graph in graphs)]
        write(graphs, folder / "once", "parquet")
        write(copies, folder / "thrice", "parquet")
        once, thrice = contents(folder / "once"), contents(folder / "thrice")
        assert once["rows.parquet"] == thrice["rows.parquet"]
        first, lines = read_ledger(folder / "once")
        second, lines_again = read_ledger(folder / "thrice")
        assert lines == lines_again
        responses = sum(len(list(graph.responses())) for graph in copies)
        root = sha256(b"".join(sorted(bytes.fromhex(graph.root) for graph in copies))).hexdigest()
        assert second == {**first, "sessions": 3 * len(graphs), "duplicates": responses - len(lines), "source_root": root}
        source = folder / "source.jsonl"
        source.write_text("".join(f"{graph.to_json()}\n" for graph in copies), "utf-8")
        assert verify(folder / "thrice", [source]).problems == ()

    in_a_folder(check)
