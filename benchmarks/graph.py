"""The message graph against a plain list, against the founding sketch, which deep-copies itself on every edit, and against verifiers.

    scripts/bench graph             everything
    scripts/bench graph session     one part: append, sketch, large, growth, session, commit

The session is the one of benchmarks/export.py: 453 calls with their tokens. verifiers is compared where it is installed; it is no
dependency, so run this file with the Python of an environment that has it, and with src on PYTHONPATH.

All figures are from one run in one process; ratios are what counts. Memory is what tracemalloc sees, measured in a run of its own
because tracing slows everything down. Exits with 1 if a promise is broken."""

from __future__ import annotations

import copy
import gc
import importlib.util
import json
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from hermes import CallRecord, MessageGraph


class Sketch:
    """The founding document's class, word for word where it matters."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.prev_graph: Sketch | None = None

    def append(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.messages[index]

    def __setitem__(self, key: int, value: dict[str, Any]) -> None:
        needs_new_graph = False
        first_idx = -1
        for i in range(key, len(self.messages)):
            if (i == key) and (value["role"] == "assistant") and (value["content"] == self.messages[i]["content"]):
                return
            needs_new_graph = needs_new_graph or (self.messages[i]["role"] == "assistant")
            if needs_new_graph and first_idx == -1:
                first_idx = i
        if needs_new_graph:
            self.prev_graph = copy.deepcopy(self)
        self.messages[key] = value

    def __len__(self) -> int:
        return len(self.messages)


def fill(chat: Any, count: int) -> Any:
    for index in range(count):
        chat.append({"role": "user", "content": f"message {index}"})
    return chat


def rounds(chat: Any, count: int, places: Callable[[int], int]) -> None:
    """Append a response, then edit an earlier message: each time the response's version must be kept."""
    for index in range(count):
        chat.append({"role": "assistant", "content": f"answer {index}"})
        chat[places(len(chat) - 1)] = {"role": "user", "content": f"edit {index}"}


def timed(job: Callable[[], Any]) -> float:
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    job()
    took = time.perf_counter() - start
    gc.enable()
    return took


def peak_mb(job: Callable[[], Any]) -> float:
    """Most memory held at any time while `job` runs, in MB."""
    gc.collect()
    tracemalloc.start()
    job()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    print(f"\n{title}")
    for row in (head, ["-" * width for width in widths], *rows):
        print(
            "  "
            + "  ".join(
                cell.ljust(width) if not column else cell.rjust(width) for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        )


def anywhere(seed: int) -> Callable[[int], int]:
    rng = random.Random(seed)
    return rng.randrange


def against_the_sketch() -> tuple[float, float]:
    """100 rounds of (append a response, edit at a random earlier place) on 1,000 messages."""
    took: dict[str, float] = {}
    memory: dict[str, float] = {}
    makers: dict[str, Callable[[], Any]] = {"plain list (forgets)": list, "MessageGraph": MessageGraph, "founding sketch": Sketch}
    for name, make in makers.items():
        repeats = 1 if make is Sketch else 5
        took[name] = min(timed(partial(rounds, fill(make(), 1000), 100, anywhere(1))) for _ in range(repeats))
        memory[name] = peak_mb(partial(rounds, fill(make(), 1000), 100, anywhere(1)))
    rows = [[name, f"{took[name] * 1e3:,.2f} ms", f"{memory[name]:,.2f} MB"] for name in makers]
    table("100 rounds of (append a response, edit at a random earlier place) on 1,000 messages", ["", "time", "memory added"], rows)
    faster, smaller = took["founding sketch"] / took["MessageGraph"], memory["founding sketch"] / memory["MessageGraph"]
    print(f"  the sketch takes {faster:,.0f} times the time (promise: at least 500) and {smaller:,.0f} times the memory (at least 20)")
    return faster, smaller


def appending() -> float:
    """append of a dict literal, ids lazy."""

    def job(append: Callable[[dict[str, Any]], None]) -> None:
        for _ in range(50_000):
            append({"role": "user", "content": "hello"})
            append({"role": "assistant", "content": "hi"})

    took = {
        name: min(timed(partial(job, make().append)) for _ in range(7)) / 100_000
        for name, make in (("list", list), ("MessageGraph", MessageGraph))
    }
    ratio = took["MessageGraph"] / took["list"]
    table(
        "append({...}) with a dict literal, half of them responses",
        ["", "each"],
        [[name, f"{each * 1e9:,.0f} ns"] for name, each in took.items()],
    )
    print(f"  {ratio:.1f} times list.append (promise: at most 15)")
    return ratio


def large() -> tuple[float, float, float]:
    """10,000 messages, 1,000 rounds."""
    took = min(timed(partial(rounds, fill(MessageGraph(), 10_000), 1000, anywhere(2))) for _ in range(3))
    memory = peak_mb(lambda: rounds(fill(MessageGraph(), 10_000), 1000, anywhere(2)))
    chat = fill(MessageGraph(), 10_000)
    rounds(chat, 1000, anywhere(2))
    assert len(chat.versions) == 1001
    reading = timed(lambda: [response.context for response in chat.responses()])
    writing = min(timed(chat.to_json), *(timed(_rounds_again().to_json) for _ in range(2)))  # each the first time: nothing is hashed yet
    text = chat.to_json()
    loading = timed(lambda: MessageGraph.from_json(text))
    rows = [
        ["1,000 rounds", f"{took * 1e3:,.0f} ms"],
        ["memory, messages included", f"{memory:,.1f} MB"],
        ["every response with its context (1,000 x up to 11,000 messages)", f"{reading * 1e3:,.0f} ms"],
        ["to_json (promise: under 0.5 s)", f"{writing * 1e3:,.0f} ms"],
        ["document", f"{len(text) / 1e6:,.1f} MB"],
        ["from_json", f"{loading * 1e3:,.0f} ms"],
    ]
    table("10,000 messages x 1,000 rounds (promise: under 2 s and 100 MB)", ["", ""], rows)
    return took, memory, writing


def _rounds_again() -> MessageGraph:
    chat: MessageGraph = fill(MessageGraph(), 10_000)
    rounds(chat, 1000, anywhere(2))
    return chat


def growth() -> float:
    """Cost of one round against the number of messages, by place of the edit."""
    rows = []
    near_end: list[float] = []
    for count in (100, 1_000, 10_000, 100_000):
        costs = []
        for places in (lambda last: last, lambda last: max(0, last - 10), lambda last: last // 2, lambda _: 0):
            chat = fill(MessageGraph(), count)
            costs.append(min(timed(partial(rounds, chat, 100, places)) for _ in range(5)) / 100)
        near_end.append(costs[1])
        rows.append([f"{count:,} messages", *(f"{cost * 1e6:,.1f} µs" for cost in costs)])
    table(
        "one round (append a response, edit, keep the version) by place of the edit", ["", "last", "10th from end", "middle", "first"], rows
    )
    ratio = max(near_end) / min(near_end)
    print(
        f"  near the end: {ratio:.1f} times dearer at most over a thousandfold growth (O(1)); at the front at worst linear in what follows"
    )
    return ratio


def sessions() -> ModuleType:
    """Return benchmarks/export.py, which makes sessions with tokens."""
    spec = importlib.util.spec_from_file_location("benchmark_sessions", Path(__file__).with_name("export.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def long_session() -> float:
    """The document of 453 calls; returns its size in MB."""
    chat, _ = sessions().long_session()
    writing = min(timed(chat.to_json) for _ in range(3))
    text = chat.to_json()
    reading = min(timed(lambda: MessageGraph.from_json(text)) for _ in range(3))
    checking = min(timed(chat.verify) for _ in range(3))
    graphs = json.loads(text)["graphs"]
    calls = [response["call"] for graph in graphs for response in graph["responses"] if "call" in response]
    held = sum(len(call["prompt_token_ids"]["int32"]) + len(call["token_ids"]["int32"]) for call in calls) * 3 // 16
    sent = sum(len(response.call.prompt_token_ids) + len(response.call.token_ids) for response in chat.responses() if response.call)
    size = len(text) / 1e6
    rows = [
        ["tokens in prompts and completions", f"{sent:,}"],
        ["tokens in the document", f"{held:,}"],
        ["document (promise: at most 3 MB)", f"{size:,.2f} MB"],
        ["to_json", f"{writing * 1e3:,.0f} ms"],
        ["from_json, with the root checked", f"{reading * 1e3:,.0f} ms"],
        ["verify", f"{checking * 1e3:,.0f} ms"],
    ]
    table(f"a session of {len(calls):,} calls, with 3 forks and 30 subagents attached", ["", ""], rows)
    return size


def committing() -> float | None:
    """Commit every call of the session to our graph and to verifiers' graph; return how many times as fast ours is."""
    data = sessions()
    chat, lengths = data.long_session()
    session = data.peer_session(chat, lengths)
    steps = [_hermes_seconds(data, session) for _ in range(5)]
    ours, recorded = min(commit for commit, _ in steps), min(commit + record for commit, record in steps)
    rows = [
        ["hermes: prepare, commit", f"{ours * 1e3:,.1f} ms", ""],
        ["  and its call records, made from lists", f"{recorded * 1e3:,.1f} ms", ""],
    ]
    modules = [data.load(f"verifiers.v1.{name}") for name in ("graph", "trace", "types")]
    ratio = None
    if None in modules:
        rows.append(["verifiers' graph", "not installed", ""])
    else:
        theirs = data.fastest(lambda: data.verifiers_seconds(modules, session, ("graph",)))
        parsed = data.fastest(lambda: data.verifiers_seconds(modules, session, ("messages", "graph")))
        ratio = theirs / ours
        rows.append(["verifiers: prepare_turn, commit", f"{theirs * 1e3:,.1f} ms", f"{ratio:,.1f} times ours"])
        rows.append(["  and its messages and tokens, made from lists", f"{parsed * 1e3:,.1f} ms", f"{parsed / recorded:,.1f} times ours"])
    table(f"commit {len(session.calls):,} calls with their tokens (promise: 10 times as fast as verifiers)", ["", "", ""], rows)
    return ratio


def _hermes_seconds(data: ModuleType, session: Any) -> tuple[float, float]:
    """Commit every call to one graph; return how long prepare and commit took, and how long the call records took."""
    graph = MessageGraph(seed="commit")
    committed = recorded = 0.0
    for call, (request, _) in zip(session.calls, session.requests, strict=True):
        prompt, completion = (list(data.np.frombuffer(ids, data.np.int32).tolist()) for ids in (call.prompt, call.completion))
        logprobs = data.np.frombuffer(call.logprobs, data.np.float32).tolist()
        messages = [{"role": role, "content": text} for role, text in request]
        shared = next(
            (at for at, (one, other) in enumerate(zip(graph, messages, strict=False)) if one != other), min(len(graph), len(messages))
        )
        graph[shared:] = messages[shared:]  # as a client's request arrives: the list becomes what is sent
        start = time.perf_counter()
        record = CallRecord(prompt_token_ids=prompt, token_ids=completion, logprobs=logprobs, model="m", finish_reason="stop")
        made = time.perf_counter()
        graph.commit(graph.prepare(), {"role": "assistant", "content": call.response.message["content"]}, record)
        recorded += made - start
        committed += time.perf_counter() - made
    return committed, recorded


PARTS = ("append", "sketch", "large", "growth", "session", "commit")


def main() -> int:
    parts = sys.argv[1:] or PARTS
    if unknown := set(parts) - set(PARTS):
        print(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    print(f"Python {sys.version.split()[0]}; everything takes about two minutes, most of it for the sketch", flush=True)
    promises: dict[str, bool] = {}
    if "append" in parts:
        promises["append within 15 times of list.append"] = appending() <= 15
    if "sketch" in parts:
        faster, smaller = against_the_sketch()
        promises |= {"500 times faster than the sketch": faster >= 500, "a twentieth of the sketch's memory": smaller >= 20}
    if "large" in parts:
        took, memory, writing = large()
        promises |= {"10,000 x 1,000 in under 2 s": took < 2, "10,000 x 1,000 in under 100 MB": memory < 100}
        promises["1,000 versions of 10,000 messages written in under 0.5 s"] = writing <= 0.5
    if "growth" in parts:
        growth()
    if "session" in parts:
        promises["a session of 453 calls in at most 3 MB"] = long_session() <= 3
    if "commit" in parts and (ratio := committing()) is not None:
        promises["commit 10 times as fast as verifiers"] = ratio >= 10
    print()
    for promise, is_kept in promises.items():
        print(f"  {'kept  ' if is_kept else 'BROKEN'}  {promise}")
    return 0 if all(promises.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
