"""Many trajectories through `hermes export` and `hermes compress`, beside plain Python that holds the file in memory: speed and memory.

    scripts/bench compress                      200,000 trajectories, about 400 MB of rows; minutes
    scripts/bench compress --count 20000        a tenth of it
    scripts/bench compress --only compress      without the export

All data is generated and the same in every run. Each way is a command of its own, one after the other in one run, so that its time has
its start in it and its memory is its own (of all its processes together). The plain ways do the same work as a script of one's own
would: json.loads, a list of everything, the naive form of the rule, json.dumps. They keep no version, no ledger and no journal,
check nothing, and lose everything when they are killed. Exits with 1 if a promise is broken."""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hermes import CallRecord, MessageGraph
from hermes.trajectories.sharegpt_turns import to_turns

COUNT = 200_000
TARGET, SUMMARY = 800, 120
"""Tokens. About one in five trajectories is longer; their middle becomes a summary."""
LENGTHS = ((1, 6), (2, 5), (4, 3), (8, 2))
"""Rounds of a trajectory, and how many of sixteen have so many."""
MOST_MEMORY_MB = 200

SYLLABLES = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]


# Generated trajectories ------------------------------------------------------------------------------------------


class Author:
    """Writes trajectories: a task, rounds of thought, call and result, an answer."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        words = ["".join(self.random.choices(SYLLABLES, k=self.random.randint(1, 4))) for _ in range(4_000)]
        self.sentences = [" ".join(self.random.choices(words, k=self.random.randint(4, 12))).capitalize() + "." for _ in range(20_000)]
        self.rules = self.text(5)

    def text(self, sentences: int) -> str:
        return " ".join(self.random.choices(self.sentences, k=sentences))

    def messages(self) -> Iterator[dict[str, Any]]:
        rounds = self.random.choices([rounds for rounds, _ in LENGTHS], [share for _, share in LENGTHS])[0]
        yield {"role": "system", "content": self.rules}
        yield {"role": "user", "content": self.text(2)}
        for number in range(rounds):
            call = {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": "search", "arguments": json.dumps({"query": self.text(1)})},
            }
            yield {"role": "assistant", "content": None, "reasoning": self.text(1), "tool_calls": [call]}
            yield {"role": "tool", "tool_call_id": f"call_{number}", "content": self.text(self.random.randint(1, 6))}
        yield {"role": "assistant", "content": self.text(3), "reasoning": self.text(1)}


def write_graphs(file: Path, part: int, count: int) -> None:
    """Write a part of the trajectories as graphs."""
    author = Author(part)
    with file.open("w") as lines:
        for number in range(count):
            chat = MessageGraph(seed=f"{part}-{number}")
            for place, message in enumerate(author.messages()):
                is_sampled = message["role"] == "assistant"
                chat.append(message, call=CallRecord(sample_id=f"{part}-{number}-{place}", model="generated") if is_sampled else None)
            lines.write(chat.to_json() + "\n")


def write_rows(file: Path, part: int, count: int) -> None:
    """Write the same trajectories as ShareGPT rows."""
    author = Author(part)
    with file.open("w") as lines:
        for number in range(count):
            turns = to_turns(list(author.messages())).turns
            lines.write(json.dumps({"conversations": turns, "source": "generated", "id": f"{part}-{number}"}) + "\n")


def generate(file: Path, write: Callable[[Path, int, int], None], count: int) -> Path:
    start = time.perf_counter()
    parts = len(os.sched_getaffinity(0))
    drafts = [file.with_name(f"part-{part}") for part in range(parts)]
    with ProcessPoolExecutor(parts, mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(write, draft, part, count // parts + (part < count % parts)) for part, draft in enumerate(drafts)]:
            done.result()
    with file.open("wb") as whole:
        for draft in drafts:
            with draft.open("rb") as lines:
                shutil.copyfileobj(lines, whole)
            draft.unlink()
    print(f"\n{count:,} trajectories, {file.stat().st_size / 1e6:,.0f} MB, generated in {time.perf_counter() - start:.0f} s\n")
    print(f"{'':38}{'s':>8}{'rows/s':>10}{'MB/s':>8}{'CPU s':>8}{'peak MB':>9}")
    return file


# The plain ways --------------------------------------------------------------------------------------------------


def plain_export(source: Path, out: Path) -> None:
    """Graphs to ShareGPT rows: the list of each graph, without a look at versions, ids or whether it comes back the same."""
    graphs = [json.loads(line) for line in source.read_text().splitlines()]
    rows = []
    for number, document in enumerate(graphs):
        graph = document["graphs"][-1]
        conversations = [plain_turn(message) for message in graph["messages"][: graph["length"]]]
        rows.append({"conversations": conversations, "tools": "[]", "source": "hermes-agent", "id": str(number)})
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))


def plain_turn(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"from": "tool", "value": f"<tool_response>\n{message['content']}\n</tool_response>"}
    if message["role"] != "assistant":
        return {"from": {"user": "human"}.get(message["role"], message["role"]), "value": message["content"]}
    calls = [
        json.dumps({"name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])})
        for call in message.get("tool_calls", ())
    ]
    value = f"<think>\n{message.get('reasoning', '')}\n</think>\n{message['content'] or ''}"
    return {"from": "gpt", "value": value + "".join(f"\n<tool_call>\n{call}\n</tool_call>" for call in calls), "train": True}


def plain_compress(source: Path, out: Path) -> None:
    """hermes-agent's rule: turns from the fifth on, until it fits; their best sentences, by the frequency of words, stand for them."""
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    for row in rows:
        turns = row["conversations"]
        sizes = [len(turn["value"].encode()) // 3 + 8 for turn in turns]
        total = sum(sizes)
        if total <= TARGET:
            continue
        start = stop = 4
        while stop < len(turns) - 4 and total + SUMMARY > TARGET:
            total -= sizes[stop]
            stop += 1
        if turns[stop]["from"] == "tool":
            stop += 1
        said = plain_summary(" ".join(turn["value"] for turn in turns[start:stop]))
        row["conversations"] = [*turns[:start], {"from": "human", "value": f"[CONTEXT SUMMARY]: {said}"}, *turns[stop:]]
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))


def plain_summary(text: str) -> str:
    words = Counter(re.findall(r"\w+", text.lower()))
    sentences = re.split(r"(?<=[.!?])\s+|\n", text)
    best = sorted(sentences, key=lambda sentence: -sum(words[word] for word in re.findall(r"\w+", sentence.lower())) / (len(sentence) + 1))
    chosen: set[str] = set()
    left = 3 * SUMMARY
    for sentence in best:
        if len(sentence) <= left:
            chosen.add(sentence)
            left -= len(sentence) + 1
    return " ".join(sentence for sentence in sentences if sentence in chosen)


PLAIN: dict[str, Callable[[Path, Path], None]] = {"export": plain_export, "compress": plain_compress}


# Measured --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """What a command took."""

    seconds: float
    cpu_seconds: float
    """Of all its processes: what it takes on a machine that is busy with other things, too."""
    peak_mb: float


def taken(command: Sequence[object], folder: Path) -> Taken:
    """Run a command; the memory is that of all its processes together, shared pages counted once."""
    start = time.perf_counter()
    words = [sys.executable, *map(str, command)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=folder)  # noqa: S603  # our own commands
    peak, ended = [0.0], threading.Event()
    watch = threading.Thread(target=watch_memory, args=(process.pid, peak, ended))
    watch.start()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    ended.set()
    watch.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{command} ended with {process.returncode}"
    return Taken(seconds, used.ru_utime + used.ru_stime, peak[0])


def watch_memory(pid: int, peak: list[float], ended: threading.Event) -> None:
    """Look at it again and again: looking at the pages of a large process takes time itself, so the longer it runs, the less often."""
    pause = 0.02
    while not ended.wait(pause):
        peak[0] = max(peak[0], sum(map(memory_mb, family(pid))))
        pause = min(0.5, pause * 1.2)


def family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(member for child in children for member in family(int(child)))]


def memory_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def measured(title: str, source: Path, count: int, command: Sequence[object]) -> Taken:
    """Run a command and print its line of the table."""
    one = taken(command, source.parent)
    speed = f"{one.seconds:8.1f}{count / one.seconds:10,.0f}{source.stat().st_size / 1e6 / one.seconds:8.1f}"
    print(f"{title:38}{speed}{one.cpu_seconds:8.1f}{one.peak_mb:9,.0f}", flush=True)
    return one


def compared(ours: Taken, plain: Taken) -> str:
    return f"{ours.cpu_seconds / plain.cpu_seconds:.1f} times the processor time, {ours.peak_mb / plain.peak_mb:.0%} of the memory"


def export(folder: Path, count: int) -> dict[str, bool]:
    """Graphs to ShareGPT."""
    graphs = generate(folder / "graphs.jsonl", write_graphs, count)
    plain = measured("export, plain Python", graphs, count, [__file__, "--plain", "export", graphs, folder / "plain.jsonl"])
    ours = measured(
        "export, hermes export",
        graphs,
        count,
        ["-m", "hermes", "export", graphs, "--format", "sharegpt", "--out", folder / "out", "--json"],
    )
    print("\n  hermes export takes", compared(ours, plain))
    return {"hermes export takes less memory than plain Python": ours.peak_mb < plain.peak_mb or count < COUNT}


def compress(folder: Path, count: int) -> dict[str, bool]:
    """Rows to shorter rows."""
    rows = generate(folder / "rows.jsonl", write_rows, count)
    settings = folder / "settings.yaml"
    settings.write_text(f"compression: {{target_max_tokens: {TARGET}, summary_target_tokens: {SUMMARY}}}\n")
    command = ["-m", "hermes", "compress", rows, "--config", settings, "--json"]
    plain = measured("compress, plain Python", rows, count, [__file__, "--plain", "compress", rows, folder / "plain.jsonl"])
    measured(
        "compress, hermes compress, 1 worker", rows, count, [*command, "--out", folder / "one.jsonl", "--set", "processing.num_workers=1"]
    )
    ours = measured("compress, hermes compress", rows, count, [*command, "--out", folder / "all.jsonl"])
    is_same = filecmp.cmp(folder / "one.jsonl", folder / "all.jsonl", shallow=False)
    metrics = json.loads((folder / "compression_metrics.json").read_text())
    summary = metrics["summary"]
    print(f"\n  {summary['trajectories_compressed']:,} compressed, {summary['trajectories_still_over_limit']:,} still too long", end="")
    print(f", tokens to {metrics['tokens']['overall_compression_ratio']:.0%}")
    print("  hermes compress takes", compared(ours, plain))
    return {
        "one worker and all of them write the same": is_same,
        f"hermes compress takes less than {MOST_MEMORY_MB} MB, however much there is": ours.peak_mb < MOST_MEMORY_MB,
    }


PARTS = {"export": export, "compress": compress}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=COUNT, help="how many trajectories")
    parser.add_argument("--only", choices=PARTS, help="one part of it")
    parser.add_argument("--plain", nargs=3, metavar=("WHICH", "SOURCE", "OUT"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.plain:
        which, source, out = asked.plain
        PLAIN[which](Path(source), Path(out))
        return 0
    print(f"Python {sys.version.split()[0]}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    promises: dict[str, bool] = {}
    for name, part in PARTS.items():
        if asked.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                promises |= part(Path(folder), asked.count)
    print()
    for promise, is_kept in promises.items():
        print(f"  {'kept  ' if is_kept else 'BROKEN'}  {promise}")
    return 0 if all(promises.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
