"""Export by many hands: whatever the engine, the chunks and the format, the bytes are those of one process."""

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes import MessageGraph
from hermes.trajectories.calls import SamplePolicies
from hermes.trajectories.engines.local import MIN_PARALLEL_CHUNKS, LocalEngine
from hermes.trajectories.errors import TrajectoryError, TrajectorySettingsError
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.formats.files import MAX_ROWS, RowGroups
from hermes.trajectories.formats.tree import SCHEMA
from hermes.trajectories.ledger import dump, renumber_rows
from hermes.trajectories.parallel_export import ExportProgress, export_on
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import FileSessions, GraphDocument
from tests.unit.trajectories.programs import PROGRAMS, program_graphs
from tests.unit.trajectories.programs import Step as ProgramStep
from tests.unit.trajectories.shared_work import GRAPHS, Elsewhere, Processes, alone, annotated, chat_with, together, write
from tests.unit.trajectories.test_tokenizer import save_tokenizer


@pytest.mark.parametrize("kind", sorted(FORMATS))
@pytest.mark.parametrize("graphs", sorted(GRAPHS))
def test_the_bytes_are_those_of_one_process(graphs: str, kind: str, tmp_path: Path) -> None:
    files = write(tmp_path / "graphs", GRAPHS[graphs](), at=2)
    asked = ExportSettings(format=kind)
    expected = alone(files, tmp_path / "alone", asked)
    for number, (engine, size) in enumerate([(Elsewhere(), 1), (Elsewhere(window=3), 1), (Elsewhere(), 1_500), (LocalEngine(1), 1)]):
        assert together(engine, files, tmp_path / str(number), asked, chunk_bytes=size) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "3", "alone", "graphs"]


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as engine:
        yield engine


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_so_they_are_in_other_processes(kind: str, processes: Processes, tmp_path: Path) -> None:
    asked = ExportSettings(format=kind)
    for name in ("each for itself", "broken ones between", "copies that disagree"):
        files = write(tmp_path / name, GRAPHS[name]())
        assert together(processes, files, tmp_path / f"{name}, many", asked) == alone(files, tmp_path / f"{name}, one", asked)


def test_so_they_are_in_as_many_processes_as_are_asked_for(tmp_path: Path) -> None:
    files = write(tmp_path / "graphs", [line for name in GRAPHS for line in GRAPHS[name]()])
    assert len(files[0].read_text().splitlines()) > MIN_PARALLEL_CHUNKS
    assert together(LocalEngine(2), files, tmp_path / "two", ExportSettings()) == alone(files, tmp_path / "one", ExportSettings())


NOTES = st.sampled_from([{"consent": False}, {"reward": 1.5}, {"rollout": "apart"}, {"exclude": "odd"}, {"reward": "much"}])


@st.composite
def inputs(draw: st.DrawFn) -> list[str]:
    """Sessions of random programs with their forks, snapshots of them that say something else, and lines that are no graphs."""
    graphs: list[MessageGraph] = []
    for name, program in enumerate(draw(st.lists(PROGRAMS, min_size=1, max_size=3))):
        graphs += program_graphs(_short(program), name=f"w{name}")
    lines = [graph.to_json() for graph in graphs]
    for graph in draw(st.lists(st.sampled_from(graphs), max_size=3)):
        snapshot = MessageGraph.from_json(graph.to_json())
        responses = list(snapshot.responses())
        if responses:
            snapshot.annotate(draw(st.sampled_from(responses)), **draw(NOTES))
        lines.append(snapshot.to_json())
    lines += draw(st.lists(st.sampled_from(["", "nonsense", "{}", "[1]"]), max_size=2))
    return draw(st.permutations(lines))


def _short(program: list[ProgramStep]) -> list[ProgramStep]:
    return program[:8]


POLICIES = st.builds(SamplePolicies, keep=st.sampled_from(["all", "accepted"]), retries=st.sampled_from(["all", "last"]))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(inputs(), st.sampled_from(sorted(FORMATS)), POLICIES, st.integers(1, 4), st.integers(1, 20_000))
def test_so_they_are_for_any_sessions_chunks_and_windows(
    lines: list[str], kind: str, policies: SamplePolicies, window: int, size: int
) -> None:
    with TemporaryDirectory() as folder:
        files = write(Path(folder, "graphs"), lines)
        asked = ExportSettings(format=kind, policies=policies)
        expected = alone(files, Path(folder, "alone"), asked)
        assert together(Elsewhere(window), files, Path(folder, "together"), asked, chunk_bytes=size) == expected


@pytest.mark.parametrize("kind", ["parquet", "slime"])
def test_row_groups_and_steps_end_where_they_would_in_one_process(kind: str, tmp_path: Path) -> None:
    files = write(tmp_path / "graphs", [chat_with(str(number), 350_000).to_json() for number in range(7)])
    asked = ExportSettings(format=kind)
    written = together(Elsewhere(), files, tmp_path / "many", asked)
    assert written == alone(files, tmp_path / "one", asked)
    parts = len(written[0]) - 1 if kind == "slime" else pq.ParquetFile(next((tmp_path / "many").glob("*.parquet"))).num_row_groups
    assert parts == 3


def test_a_row_group_holds_so_many_rows_however_they_came(tmp_path: Path) -> None:
    # So many different numbers that Parquet gives up its dictionary in the middle of a group: then it matters how they are handed over.
    scores = np.arange((2 * MAX_ROWS + 7) * 64, dtype=np.float32).reshape(-1, 64)
    rows: list[dict[str, Any]] = [
        {"session": "s", "row": number, "logprob": score, "reward": None if number % 3 else 0.5} for number, score in enumerate(scores)
    ]
    one, many = RowGroups(tmp_path, "one", SCHEMA), RowGroups(tmp_path, "many", SCHEMA)
    for row in rows:
        one.add(row, 1)
    for first in range(0, len(rows), 700):
        part = RowGroups(None, "part", SCHEMA)
        for number, row in enumerate(rows[first : first + 700]):
            part.add(row | {"row": number}, 1)
        many.take(part.part(), first)
    one.close()
    many.close()
    assert (tmp_path / "many").read_bytes() == (tmp_path / "one").read_bytes()
    assert pq.ParquetFile(tmp_path / "many").num_row_groups == 3


NAMES = st.text(st.sampled_from('"\\row:5,{} '), max_size=12)


@given(NAMES, st.integers(0, 10**6), st.integers(0, 10**6), NAMES)
def test_only_rows_are_renumbered(name: str, row: int, first: int, reason: str) -> None:
    line = {"session": name, "trained": [{"row": row, "start": 5}], "excluded": [{"reason": reason}], "row": row}
    moved = line | {"trained": [{"row": first + row, "start": 5}], "row": first + row}
    assert renumber_rows(dump(line) * 2, first) == dump(moved) * 2


def test_calls_without_ids_are_tokenised_by_whoever_does_the_work(processes: Processes, tmp_path: Path) -> None:
    folder = save_tokenizer(tmp_path / "toy")
    chats = [MessageGraph([{"role": "user", "content": name}], seed=name) for name in ("hi", "there", "you")]
    for chat in chats:
        chat.append({"role": "assistant", "content": "yo"})
    files = write(tmp_path / "graphs", [chat.to_json() for chat in chats])
    expected = alone(files, tmp_path / "one", ExportSettings(), folder)
    assert expected[2] == 3
    for out, engine in (("elsewhere", Elsewhere()), ("processes", processes)):
        assert together(engine, files, tmp_path / out, ExportSettings(), tokenizer=folder) == expected


def test_a_tokenizer_that_is_not_there_is_told_before_anything_begins(tmp_path: Path) -> None:
    files = write(tmp_path / "graphs", [chat_with("a").to_json()])
    with pytest.raises(TrajectorySettingsError, match="toy"):
        together(Elsewhere(), files, tmp_path / "out", ExportSettings(), tokenizer=tmp_path / "toy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graphs"]


class Breaking:
    """An engine that breaks down behind the first chunks."""

    def __init__(self, error: BaseException, at: int) -> None:
        self.error, self.at = error, at

    def map(self, work: Callable[[Any], Any], chunks: Iterable[Any]) -> Generator[Any]:
        for number, chunk in enumerate(chunks):
            if number == self.at:
                raise self.error
            yield work(chunk)


def test_nothing_is_left_behind_when_it_fails(tmp_path: Path) -> None:
    files = write(tmp_path / "graphs", GRAPHS["each for itself"]())
    with pytest.raises(KeyboardInterrupt):
        together(Breaking(KeyboardInterrupt(), at=3), files, tmp_path / "out", ExportSettings())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graphs"]


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(TrajectorySettingsError, match="exists and is not an empty folder"):
        together(Elsewhere(), [], tmp_path / "out", ExportSettings())
    with pytest.raises(TrajectorySettingsError, match="unknown format 'csv'"):
        together(Elsewhere(), [], tmp_path / "other", ExportSettings(format="csv"))


class Moving:
    """Graphs of which the second reading is another one than the first."""

    def __init__(self, *readings: list[str]) -> None:
        self.readings = list(readings)
        self.size = 1

    def documents(self) -> Iterator[GraphDocument]:
        lines = self.readings.pop(0)
        return (GraphDocument(f"g:{number}", f"g, line {number}", line.encode()) for number, line in enumerate(lines, start=1))


A, B, C, SAID = (chat.to_json() for chat in (chat_with("a"), chat_with("b"), chat_with("c"), annotated(chat_with("a"), reward=1.0)))


@pytest.mark.parametrize(
    "readings",
    [
        ([A, B, A], [A, B, B]),
        ([A, A, B], [A, A]),
        ([A, A, B], [A, A, B, C]),
        ([A, SAID, B], [A, SAID, C]),
        ([A, SAID, B], [A, SAID]),
        ([A, SAID, B], [A, SAID, B, C]),
        ([A, SAID, B], [A, SAID, B], [A, SAID, C]),
    ],
)
def test_graphs_that_change_while_they_are_read_are_refused(readings: tuple[list[str], ...], tmp_path: Path) -> None:
    with pytest.raises(TrajectoryError, match="the graphs changed while they were read"):
        export_on(Elsewhere(), Moving(*readings), tmp_path / "out", ExportSettings(), FORMATS, chunk_bytes=1)
    assert list(tmp_path.iterdir()) == []


class Counting(Elsewhere):
    """An engine that counts how many chunks it was given."""

    chunks = 0

    def map(self, work: Callable[[Any], Any], chunks: Iterable[Any]) -> Generator[Any]:
        def counted() -> Iterator[Any]:
            for chunk in chunks:
                self.chunks += 1
                yield chunk

        return super().map(work, counted())


@pytest.mark.parametrize(
    ("lines", "size", "chunks"),
    [
        ([A, B, C], 1, 3),  # each for itself: read once
        ([A, B, B, C], 10_000, 1),  # copies in one chunk, too
        ([A, B, B, C], 1, 4 + 2),  # from the first copy on read twice
        ([A, B, C, SAID], 1, 4 + 2 * 4),  # copies disagree: all of it read again, twice
    ],
)
def test_what_needs_no_second_reading_gets_none(lines: list[str], size: int, chunks: int, tmp_path: Path) -> None:
    engine, steps = Counting(), list[ExportProgress]()
    files = write(tmp_path / "graphs", lines)
    together(engine, files, tmp_path / "out", ExportSettings(), chunk_bytes=size, on_step=steps.append)
    assert engine.chunks == chunks
    assert [step.bytes_read for step in steps] == sorted(step.bytes_read for step in steps)
    assert steps[0].bytes_to_read == FileSessions(files).size
    manifest = json.loads((tmp_path / "out" / "ledger.jsonl").read_text().splitlines()[0])
    last = steps[-1]
    assert (last.bytes_read, last.sessions, last.tokens) == (last.bytes_to_read, len(lines), manifest["tokens"]["trained"])


def test_a_failure_of_a_worker_is_one_line_of_the_export(tmp_path: Path) -> None:
    """A tokenizer that this machine has and a worker has not."""
    files = write(tmp_path / "graphs", [A])

    class Without:
        def map(self, work: Callable[[Any], Any], chunks: Iterable[Any]) -> Generator[Any]:
            (tmp_path / "toy").rename(tmp_path / "moved")
            yield from map(work, chunks)

    with pytest.raises(TrajectoryError, match="toy"):
        together(Without(), files, tmp_path / "out", ExportSettings(), tokenizer=save_tokenizer(tmp_path / "toy"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graphs", "moved"]
