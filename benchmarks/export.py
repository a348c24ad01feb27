"""Training data out of graphs: how fast rows and trees are planned, how much memory an export takes, what more processes bring.

    scripts/bench export                            everything
    scripts/bench export workers                    one part of it: speed, whole, memory or workers
    scripts/bench export whole --against COMMIT     whole exports of this tree beside those of another commit

All data is generated and the same in every run; all figures are from one run, on one core but for `workers`; ratios are what counts. Where
TRL and verifiers are installed, they plan the same calls in the same run; where Daft is, it exports the same graphs. Exits with 1 if a
promise is broken."""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from exports.one_export import peak_mb
from exports.sessions import long_session, short_session, write_sessions
from exports.whole import whole

from hermes import MessageGraph
from hermes.trajectories.calls import TOKEN_BYTES, SampledCall, SamplePolicies, read_calls
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.plan import ExportSettings, plan_session
from hermes.trajectories.rows import Row, linear_rows
from hermes.trajectories.source import ExportSession, read_sessions
from hermes.trajectories.tree import tree_row

VOCABULARY = 150_000
SHORT_SESSIONS = 10_000
MEMORY_SESSIONS = (1_000, 10_000, 50_000)
PEER_SHORT_SESSIONS = 200
"""So many of the short sessions are given to the peers; their speed does not depend on the number."""


# Planning --------------------------------------------------------------------------------------------------------

STEPS = ("decode", "read_calls", "linear_rows", "tree_row", "write rows", "write tree")
PLANNING = STEPS[1:4]


@dataclass(slots=True)
class Planned:
    """What planning took, step by step, and what came out."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    calls: int = 0
    call_tokens: int = 0
    row_tokens: int = 0
    tree_tokens: int = 0

    @property
    def planning(self) -> float:
        return sum(self.seconds[step] for step in PLANNING)


def plan(texts: Sequence[str]) -> Planned:
    """Decode, plan and write every session, and time each step on its own."""
    planned = Planned()
    with tempfile.TemporaryDirectory() as folder:
        writers = {f"write {name}": _writer(Path(folder) / name, kind) for name, kind in (("rows", "parquet"), ("tree", "tree"))}
        for number, text in enumerate(texts):
            step = partial(_step, planned.seconds)
            session = ExportSession(str(number), step("decode", lambda text=text: MessageGraph.from_json(text)))
            calls = step("read_calls", lambda session=session: read_calls(session, SamplePolicies()))
            rows = step("linear_rows", lambda calls=calls: linear_rows(calls))
            tree = step("tree_row", lambda calls=calls: tree_row(calls))
            whole = plan_session(session, calls)
            for name, writer in writers.items():
                step(name, lambda writer=writer, whole=whole: list(writer.write(whole)))
            planned.calls += len(calls)
            planned.call_tokens += sum(len(call.prompt) + len(call.completion) for call in calls) // TOKEN_BYTES
            planned.row_tokens += sum(row.length for row in rows)
            planned.tree_tokens += len(tree.tokens)
        for name, writer in writers.items():
            _step(planned.seconds, name, writer.close)
    return planned


def _writer(folder: Path, kind: str) -> Any:
    folder.mkdir()
    return FORMATS[kind](folder, ExportSettings(format=kind))


def _step(seconds: dict[str, float], name: str, job: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    value = job()
    seconds[name] += time.perf_counter() - start
    return value


def planning(title: str, texts: Sequence[str], repeats: int) -> Planned:
    """Print the steps of the fastest of several runs, every one from freshly decoded graphs."""
    best = min((undisturbed(partial(plan, texts)) for _ in range(repeats)), key=lambda run: run.planning)
    rows = [
        [name, f"{took * 1e3:,.1f} ms", f"{best.call_tokens / took / 1e6:,.0f} M/s"]
        for name, took in [
            ("from_json (decoding)", best.seconds["decode"]),
            *((f"  {step}", best.seconds[step]) for step in PLANNING),
            ("planning, all three", best.planning),
            ("parquet, rows", best.seconds["write rows"]),
            ("parquet, trees", best.seconds["write tree"]),
        ]
    ]
    table(f"{title}: {best.calls:,} calls, {best.call_tokens:,} call tokens", ["", "time", "call tokens"], rows)
    print(f"  rows hold {best.row_tokens:,} tokens, trees {best.tree_tokens:,} (each unique token once)")
    return best


def undisturbed(job: Callable[[], Any]) -> Any:
    """Run with the garbage collector on, as in earnest, but spared what was there before."""
    gc.collect()
    gc.freeze()
    try:
        return job()
    finally:
        gc.unfreeze()


# Peers -----------------------------------------------------------------------------------------------------------


def load(name: str) -> Any:
    """Import a peer's module, or return None where it is not installed."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


@dataclass(frozen=True, slots=True)
class PeerSession:
    """A session as the peers take it: rows for TRL, messages with their tokens for verifiers."""

    calls: list[SampledCall]
    rows: list[Row]
    requests: list[tuple[list[tuple[str, str]], list[tuple[int, int]]]]
    """For every call the messages sent (role, text), and which prompt tokens each of them takes."""


def peer_session(graph: MessageGraph, lengths: Mapping[str, int]) -> PeerSession:
    calls = read_calls(ExportSession("peer", graph), SamplePolicies())
    requests = []
    for call in calls:
        messages = [(message["role"], message["content"]) for message in call.response.context]
        ends = list(itertools.accumulate(lengths[text] for _, text in messages))
        assert ends[-1] == call.start
        requests.append((messages, list(itertools.pairwise([0, *ends]))))
    return PeerSession(calls, linear_rows(calls), requests)


def trl_samples(session: PeerSession, give: str, worker: Any) -> tuple[list[dict[str, Any]], float]:
    """Return samples for TRL's TreeRow, and how long TRL itself took to make them from the calls.

    `rows` hands over our leaf rows, `sequences` lets TRL merge the calls (exactly: threshold 0), `calls` gives each call."""
    start = time.perf_counter()
    if give == "rows":
        parts = [(row.tokens, [(call.start, call.end, call.logprobs) for call in row.calls]) for row in session.rows]
    elif give == "calls":
        parts = [(call.prompt + call.completion, [(call.start, call.end, call.logprobs)]) for call in session.calls]
    else:
        ints, floats = (partial(_listed, kind) for kind in (np.int32, np.float32))
        turns = [worker.TurnRecord(ints(call.prompt), ints(call.completion), floats(call.logprobs)) for call in session.calls]
        start = time.perf_counter()
        sequences, _ = worker._chain_to_sequences(turns, "rollout", 0)
        took = time.perf_counter() - start
        return [_sample(np.asarray(s.input_ids), np.asarray(s.completion_mask), np.asarray(s.old_log_probs)) for s in sequences], took
    samples = []
    for tokens, spans in parts:
        ids = np.frombuffer(tokens, np.int32).astype(np.int64)
        mask, logprobs = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.float32)
        for first, last, scores in spans:
            mask[first:last] = 1
            logprobs[first:last] = np.frombuffer(scores, np.float32)
        samples.append(_sample(ids, mask, logprobs))
    return samples, 0.0


def _listed(kind: Any, values: bytes) -> list[Any]:
    return np.frombuffer(values, kind).tolist()


def _sample(ids: Any, mask: Any, logprobs: Any) -> dict[str, Any]:
    return {"input_ids": ids, "completion_mask": mask, "old_log_probs": logprobs, "advantage": 1.0, "group_id": 0}


def trl_seconds(modules: Sequence[Any], session: PeerSession, give: str) -> float:
    """Pack a session with TRL's TreeRow."""
    packing, worker = modules
    samples, took = trl_samples(session, give, worker)
    start = time.perf_counter()
    tree = packing.TreeRow()
    for sample in samples:
        tree.add(sample)
    packed = tree.pack()
    took += time.perf_counter() - start
    assert packed["token_index"].numel() == sum(call.trained for call in session.calls)
    return took


UNUSED_BY_VERIFIERS = (
    *("renderer_prompt_ids", "is_content", "mm_placeholders", "mm_token_type_id_map"),
    *("routed_experts", "sampling_mask"),
)


def verifiers_seconds(modules: Sequence[Any], session: PeerSession, counted: Sequence[str]) -> float:
    """Commit every call to a verifiers graph, then read the rows of its branches; return what the counted parts took."""
    graph, trace_module, types = modules
    kinds = {"system": types.SystemMessage, "user": types.UserMessage, "assistant": types.AssistantMessage, "tool": types.ToolMessage}
    trace = trace_module.WireTrace.model_validate({"task": {"type": "T", "data": {}}, "agent": {"config": {}}})
    seconds = dict.fromkeys(("messages", "graph", "rows"), 0.0)
    for call, (request, spans) in zip(session.calls, session.requests, strict=True):
        prompt, completion = (np.frombuffer(ids, np.int32).tolist() for ids in (call.prompt, call.completion))
        logprobs = np.frombuffer(call.logprobs, np.float32).tolist()
        start = time.perf_counter()
        extra = {"tool": {"tool_call_id": ""}}
        messages = [kinds[role](content=text, **extra.get(role, {})) for role, text in request]  # parsed anew for every request
        # model_construct, as verifiers' own client does: no copy, no validation
        tokens = types.TurnTokens.model_construct(
            prompt_ids=prompt,
            completion_ids=completion,
            completion_logprobs=logprobs,
            message_spans=spans,
            bridged=False,
            **dict.fromkeys(UNUSED_BY_VERIFIERS),
        )
        answer = types.AssistantMessage(content=call.response.message["content"])
        response = types.Response(id="", created=0, model="m", message=answer, finish_reason="stop", tokens=tokens)
        parsed = time.perf_counter()
        graph.prepare_turn(trace, messages).commit(response)
        seconds["messages"] += parsed - start
        seconds["graph"] += time.perf_counter() - parsed
    start = time.perf_counter()
    rows = [(branch.token_ids, branch.sampled_mask, branch.logprobs) for branch in trace.branches]
    seconds["rows"] = time.perf_counter() - start
    assert sorted(ids for ids, _, _ in rows) == sorted(np.frombuffer(row.tokens, np.int32).tolist() for row in session.rows)
    return sum(seconds[part] for part in counted)


def against_peers(title: str, sessions: Sequence[PeerSession], ours: Planned, share: float) -> dict[str, float]:
    """Print the time of each peer for the same sessions beside ours (`share` of what was planned); return the ratios."""
    tree, whole = ours.seconds["tree_row"] * share, ours.planning * share
    rows = [["hermes: tree_row", _ms(tree), ""], ["hermes: read_calls, linear_rows, tree_row", _ms(whole), ""]]
    ratios: dict[str, float] = {}
    trl = [load(f"trl.experimental.async_grpo.{name}") for name in ("packing", "async_rollout_worker")]
    if None in trl:
        rows.append(["TRL TreeRow", "not installed", ""])
    else:
        for give, name, base in (
            ("rows", "TRL: TreeRow, given our rows (against tree_row)", tree),
            ("sequences", "TRL: _chain_to_sequences, TreeRow (against all)", whole),
            ("calls", "TRL: TreeRow, given the calls (against all)", whole),
        ):
            took = fastest(lambda give=give: sum(trl_seconds(trl, session, give) for session in sessions))
            ratios[give] = took / base
            rows.append([name, _ms(took), f"{took / base:,.0f}"])
    modules = [load(f"verifiers.v1.{name}") for name in ("graph", "trace", "types")]
    if None in modules:
        rows.append(["verifiers graph", "not installed", ""])
    else:
        bare = fastest(lambda: sum(verifiers_seconds(modules, session, ("graph", "rows")) for session in sessions))
        messages = fastest(lambda: sum(verifiers_seconds(modules, session, ("messages",)) for session in sessions))
        ratios["verifiers"] = bare / whole
        rows.append(["verifiers: prepare_turn, commit, branches (all)", _ms(bare), f"{bare / whole:,.0f}"])
        rows.append(["  and its messages, parsed for each request", _ms(bare + messages), f"{(bare + messages) / whole:,.0f}"])
    table(f"{title}: the same calls, planned by others", ["", "time", "times ours"], rows)
    return ratios


def fastest(job: Callable[[], float]) -> float:
    return min(undisturbed(job) for _ in range(3))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"


# Memory and whole exports ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exported:
    """One whole export, made in a process of its own."""

    seconds: float
    peak_mb: float
    samples: int
    sampled_tokens: int
    megabytes: float


def whole_export(file: Path, count: int, kind: str) -> Exported:
    with tempfile.TemporaryDirectory() as folder:
        sessions: Iterator[Any] = itertools.islice(read_sessions([file]), count)
        start = time.perf_counter()
        out = Path(folder) / "out"
        manifest = export(sessions, out, ExportSettings(format=kind), FORMATS).manifest
        took = time.perf_counter() - start
        assert manifest["tokens"]["sampled"] == manifest["tokens"]["trained"]
        size = sum(path.stat().st_size for path in out.iterdir())
    return Exported(took, peak_mb(), manifest["samples"], manifest["tokens"]["sampled"], size / 1e6)


def alone(job: Callable[..., Any], *arguments: Any) -> Any:
    """Run in a fresh process, so that its memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        return pool.submit(job, *arguments).result()


def whole_exports(file: Path, kind: str, counts: Sequence[int]) -> float:
    """Print time and peak memory of whole exports; return how many bytes each further sample adds to the peak."""
    exports = [alone(whole_export, file, count, kind) for count in counts]
    rows = [
        [
            f"{count:,} sessions",
            f"{run.seconds:,.1f} s",
            f"{count / run.seconds:,.0f}/s",
            f"{run.sampled_tokens / run.seconds / 1e6:,.2f} M/s",
            f"{run.megabytes:,.1f} MB",
            f"{run.peak_mb:,.0f} MB",
        ]
        for count, run in zip(counts, exports, strict=True)
    ]
    head = ["", "time", "sessions", "sampled tokens", "files", "peak memory"]
    table(f"whole export to {kind} from JSONL, ledger and hashes included, each in a process of its own", head, rows)
    few, many = exports[-2:]
    growth = (many.peak_mb - few.peak_mb) * 2**20 / (many.samples - few.samples)
    print(f"  from {counts[-2]:,} to {counts[-1]:,} sessions the peak grows by {growth:,.0f} bytes a sample (promise: under 1,000)")
    return growth


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    rows = list(rows)
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    print(f"\n{title}")
    for row in (head, ["-" * width for width in widths], *rows):
        cells = [cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(zip(row, widths, strict=True))]
        print("  " + "  ".join(cells))


def speed() -> dict[str, bool]:
    """Plan the long session and the short ones, beside the peers; return the promises and whether they were kept."""
    graph, lengths = long_session()
    long = planning("one long session", [graph.to_json()], repeats=7)
    ratios = against_peers("one long session", [peer_session(graph, lengths)], long, 1.0)
    shorts = [short_session(number) for number in range(SHORT_SESSIONS)]
    short = planning(f"{SHORT_SESSIONS:,} short sessions", [graph.to_json() for graph, _ in shorts], repeats=2)
    some = [peer_session(*session) for session in shorts[:PEER_SHORT_SESSIONS]]
    against_peers(f"{PEER_SHORT_SESSIONS} of the short sessions", some, short, PEER_SHORT_SESSIONS / SHORT_SESSIONS)
    return {
        "50 M call tokens a second planned in the long session": long.call_tokens / long.planning >= 50e6,
        **({"long session: the tree 50 times as fast as TRL's TreeRow": ratios["rows"] >= 50} if "rows" in ratios else {}),
        **({"long session: all of it 10 times as fast as verifiers' graph": ratios["verifiers"] >= 10} if "verifiers" in ratios else {}),
    }


def memory() -> dict[str, bool]:
    """Export a growing number of short sessions; return the promises and whether they were kept."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "short.jsonl"
        alone(write_sessions, "short", MEMORY_SESSIONS[-1], file)
        growth = {kind: whole_exports(file, kind, MEMORY_SESSIONS) for kind in ("parquet", "tree")}
    return {f"memory of an export to {kind} grows by less than 1,000 bytes a sample": value < 1000 for kind, value in growth.items()}


# More processes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Command:
    """One `hermes export`, its start included."""

    seconds: float
    cpu_s: float
    """Of all its processes together."""
    ledger: bytes
    """Holds the hashes of all files."""


def export_command(file: Path, kind: str, *words: str) -> Command:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "hermes", "export", str(file), "--out", f"{folder}/out", "--format", kind, *words]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  # ourselves
        took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        ledger = Path(folder, "out", "ledger.jsonl").read_bytes()
    return Command(took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ledger)


def workers() -> dict[str, bool]:
    """Export short sessions in one process and in more; return the promises and whether they were kept."""
    cores = len(os.sched_getaffinity(0))
    ways = {f"{count} workers": ("--workers", str(count)) for count in sorted({2, 4, cores}) if 2 <= count <= cores}
    if importlib.util.find_spec("daft") is not None:
        ways["daft"] = ("--workers", "daft")
    promises: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "short.jsonl"
        alone(write_sessions, "short", SHORT_SESSIONS, file)
        for kind in ("parquet", "sharegpt"):
            one = export_command(file, kind, "--workers", "1")
            more = {name: export_command(file, kind, *words) for name, words in ways.items()}
            rows = [
                [name, f"{run.seconds:,.1f} s", f"{one.seconds / run.seconds:,.2f}", f"{run.cpu_s:,.1f} s", f"{run.cpu_s / one.cpu_s:,.2f}"]
                for name, run in {"one process": one, **more}.items()
            ]
            head = ["", "time", "times as fast", "CPU of all processes", "times one"]
            table(f"hermes export of {SHORT_SESSIONS:,} short sessions to {kind}, on {cores} cores", head, rows)
            promises[f"{kind}: the same bytes wherever the work is done"] = all(run.ledger == one.ledger for run in more.values())
    return promises


def whole_exports_beside_floors(against: str | None) -> dict[str, bool]:
    """Export small, short and long sessions whole; return the promises and whether they were kept."""
    rows, promises = whole(against)
    table("whole exports from JSONL, beside the least work (CPU)", ["", "CPU", "peak memory", "times the least"], rows)
    return promises


PARTS = ("speed", "whole", "memory", "workers")


def main(words: Sequence[str]) -> int:
    """Run the parts asked for, or all."""
    parser = argparse.ArgumentParser(prog="scripts/bench export")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to measure; everything if left out")
    parser.add_argument("--against", metavar="COMMIT", help="measure whole exports of this commit too")
    asked = parser.parse_args(words)
    print(f"Python {sys.version.split()[0]}")
    promises: dict[str, bool] = {}
    jobs = {"speed": speed, "whole": partial(whole_exports_beside_floors, asked.against), "memory": memory, "workers": workers}
    for name in PARTS:
        if name in asked.parts or not asked.parts:
            promises |= jobs[name]()
    print()
    for promise, is_kept in promises.items():
        print(f"  {'kept  ' if is_kept else 'BROKEN'}  {promise}")
    return 0 if all(promises.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
