"""Graphs in files for exports by many hands, engines to make them on, and what came out, to the byte."""

import pickle
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

from hermes import CallRecord, MessageGraph
from hermes.trajectories.engines import ChunkEngine
from hermes.trajectories.export import ExportSummary, export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.parallel_export import ExportProgress, export_on
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import FileSessions
from hermes.trajectories.tokenizer import load_tokenizer
from tests.unit.trajectories.samples import everything, two_tokenizers
from tests.unit.trajectories.text_sessions import forked_session, nested_session, tool_session


class Elsewhere:
    """An engine as far away as one can be in one process: everything travels as bytes, and so many chunks are taken at once."""

    def __init__(self, window: int = 1) -> None:
        self.window = window

    def map(self, work: Callable[[Any], Any], chunks: Iterable[Any]) -> Generator[Any]:
        packed, waiting = pickle.dumps(work), iter(chunks)
        while taken := [pickle.dumps(chunk) for chunk in islice(waiting, self.window)]:
            for chunk in taken:
                yield _unpacked(pickle.dumps(_unpacked(packed)(_unpacked(chunk))))


def _unpacked(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301  # written a line above


class Processes:
    """Two processes that stay: starting new ones for every export, as `LocalEngine` does, would take most of the time of the tests."""

    def __enter__(self) -> Self:
        self._pool = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def map(self, work: Callable[[Any], Any], chunks: Iterable[Any]) -> Generator[Any]:
        yield from self._pool.map(work, chunks)


def chat_with(name: str, tokens: int = 3) -> MessageGraph:
    chat = MessageGraph([{"role": "user", "content": name}], seed=name)
    call = CallRecord(sample_id=name, prompt_token_ids=[1], token_ids=list(range(tokens)), logprobs=[-1.0] * tokens)
    chat.append({"role": "assistant", "content": "a"}, call=call)
    return chat


def annotated(chat: MessageGraph, **notes: Any) -> MessageGraph:
    chat.annotate(next(chat.responses()), **notes)
    return chat


def altered(chat: MessageGraph) -> str:
    """A graph whose words were changed behind the back of its ids."""
    return chat.to_json().replace('"content":"a"', '"content":"b"')


GRAPHS: dict[str, Callable[[], list[str]]] = {
    "nothing": list,
    "each for itself": lambda: [
        chat.to_json()
        for chat in (
            everything(),
            two_tokenizers().graph,
            forked_session(),
            nested_session(),
            tool_session(),
            MessageGraph(),
            chat_with("z"),
        )
    ],
    "broken ones between": lambda: [
        chat_with("a").to_json(),
        "",
        "nonsense",
        altered(chat_with("altered")),
        annotated(chat_with("b"), reward="much").to_json(),
        chat_with("c").to_json(),
        "{}",
    ],
    "copies that agree": lambda: [chat_with(name).to_json() for name in "abcbda"] + [everything().to_json()] * 2,
    "clashes": lambda: [chat_with("a").to_json(), *(chat_with("a", size).to_json() for size in (2, 2, 4)), chat_with("b").to_json()],
    "copies that disagree": lambda: [
        chat.to_json()
        for chat in (
            *(chat_with("a"), chat_with("b"), chat_with("c"), chat_with("d")),
            *(annotated(chat_with("a"), consent=False), annotated(chat_with("b"), reward=2.5), annotated(chat_with("c"), exclude="odd")),
            *(annotated(chat_with("d"), rollout="apart"), annotated(chat_with("b"), reward=[1]), annotated(chat_with("b"), advantage=-1)),
        )
    ],
    "copies in one line's neighbourhood": lambda: [chat_with("a").to_json(), chat_with("a").to_json(), chat_with("b").to_json()],
}
"""Lines of a file, by what is the matter with them."""


def write(folder: Path, lines: Sequence[str], at: int | None = None) -> list[Path]:
    """Write lines as a file, or as two and a JSON document between them: the line `at`."""
    folder.mkdir(exist_ok=True)
    if at is None or not lines:
        texts = {"a.jsonl": lines}
    else:
        texts = {"a.jsonl": lines[:at], "c.jsonl": lines[at + 1 :]}
        (folder / "b.json").write_text(lines[at])
    for name, some in texts.items():
        (folder / name).write_text("".join(line + "\n" for line in some))
    return sorted(folder.iterdir())


Outcome = tuple[dict[str, bytes], list[str], int]
"""The files, what was broken, and how many samples are trained."""


def alone(files: Sequence[Path], out: Path, settings: ExportSettings, tokenizer: Path | None = None) -> Outcome:
    """Export in one process, session by session."""
    loaded = load_tokenizer(tokenizer) if tokenizer is not None else None
    return outcome(out, export(FileSessions(files), out, settings, FORMATS, tokenizer=loaded))


def together(
    engine: ChunkEngine,
    files: Sequence[Path],
    out: Path,
    settings: ExportSettings,
    *,
    tokenizer: Path | None = None,
    chunk_bytes: int = 1,
    on_step: Callable[[ExportProgress], None] = lambda _: None,
) -> Outcome:
    """Export by many hands; unless it is said otherwise, a chunk is one graph."""
    summary = export_on(engine, FileSessions(files), out, settings, FORMATS, tokenizer=tokenizer, chunk_bytes=chunk_bytes, on_step=on_step)
    return outcome(out, summary)


def outcome(out: Path, summary: ExportSummary) -> Outcome:
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}, [str(error) for error in summary.broken], summary.trained
