"""Import trajectory files of other programs, and the ShareGPT that Hermes exports, into message graphs; defects become findings.

Assistant messages marked as not trained (`train: false`, `weight: 0`) are authored; the others are recorded as responses with the sample
id `file:line#hash:turn`, without token ids. Streams; a line that cannot be read is reported, and the others are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes.graph import CallRecord, GraphError, MessageGraph
from hermes.trajectories.errors import SourceError, TrajectorySettingsError
from hermes.trajectories.foreign_sharegpt import BadRow, ImportedMessage, ImportFinding, RowReading, read_turns, shape_of
from hermes.trajectories.sharegpt_turns import TurnError, to_messages, to_turns

SHAPES = ("sharegpt", "openai")


@dataclass(frozen=True, slots=True)
class ImportedConversation:
    """One conversation of a file."""

    graph: MessageGraph
    name: str
    """File and line."""
    findings: tuple[ImportFinding, ...]
    shape: str
    """The program that wrote it: hermes, founding, save_trajectory, save_sample, batch_runner, mini_swe, or openai."""


def import_files(files: Iterable[Path], shape: str | None = None) -> Iterator[ImportedConversation | SourceError]:
    """Yield the conversations of all files, as `import_file` does."""
    for file in files:
        yield from import_file(file, shape)


def import_file(path: Path, shape: str | None = None) -> Iterator[ImportedConversation | SourceError]:
    """Yield each conversation of a JSONL file, or of one JSON document; a SourceError in the place of each that cannot be read.

    `shape` is one of SHAPES; None detects the shape of each line."""
    if shape is not None and shape not in SHAPES:
        raise TrajectorySettingsError(f"unknown shape {shape!r}; one of {', '.join(SHAPES)}")
    before: list[str] = []
    try:
        for line, name, row in _rows(path):
            try:
                reading = _read(row, line, shape)
                _mark_repeated(reading, before)
                mark = hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:12]  # another file may have the same name
                graph = _build_graph(reading, row, f"{name}#{mark}", f"{path.name}:{line}#{mark}")
            except (BadRow, GraphError) as error:
                yield SourceError(f"{path}, line {line}", str(error))
            else:
                yield ImportedConversation(graph, name, tuple(reading.findings), reading.shape)
    except OSError as error:
        yield SourceError(str(path), error.strerror or str(error))


def _rows(path: Path) -> Iterator[tuple[int, str, Any]]:
    """Yield line, name and value of each row; a row that is not JSON is yielded as a BadRow, which `_read` raises."""
    if path.suffix == ".json":
        value = _parse_row(path.read_bytes())
        rows = value if isinstance(value, list) else [value]
        for place, row in enumerate(rows, start=1):
            yield place, path.name if rows is not value else f"{path.name}:{place}", row
        return
    with path.open("rb") as lines:
        for line, text in enumerate(lines, start=1):
            if text.strip():
                yield line, f"{path.name}:{line}", _parse_row(text)


def _parse_row(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return BadRow(f"not JSON ({error})")


def _read(row: Any, line: int, shape: str | None) -> RowReading:
    if isinstance(row, BadRow):
        raise row
    if not isinstance(row, Mapping):
        raise BadRow(f"expected an object, got {type(row).__name__}")
    if shape == "openai" or (shape is None and shape_of(row) == "openai"):
        return _read_openai(row, line)
    if shape_of(row) != "hermes":
        return read_turns(row, line)
    try:
        return _read_own(row, line)
    except (TurnError, KeyError, TypeError, ValueError, AttributeError):
        reading = read_turns(row, line)
        reading.add_finding("altered-row")
        return reading


def _read_own(row: Mapping[str, Any], line: int) -> RowReading:
    turns = row["conversations"]
    messages = to_messages(turns, json.loads(row["hermes"]["rest"]))
    places = to_turns(messages).places
    drafts = [ImportedMessage(message, turn, bool(turns[turn]["train"])) for message, turn in zip(messages, places, strict=True)]
    return RowReading(line, "hermes", json.loads(row["tools"]), drafts=drafts)


def _read_openai(row: Mapping[str, Any], line: int) -> RowReading:
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRow("no messages in it")
    reading = RowReading(line, "openai", row.get("tools") or ())
    waiting: dict[str, int] = {}
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise BadRow(f"message {index} is not an object")
        if message.get("role") == "tool" and waiting.pop(str(message.get("tool_call_id")), None) is None:
            reading.add_finding("orphan-tool-result", index)
        if message.get("role") != "tool":
            for turn in waiting.values():
                reading.add_finding("missing-tool-result", turn)
            waiting = {str(call.get("id")): index for call in _calls(message)}
        if not all(_has_json_arguments(call) for call in _calls(message)):
            reading.add_finding("unparsable-arguments", index)
        weight = message.get("weight")
        if weight not in (None, 0, 1):
            reading.add_finding("odd-weight", index)
        kept = {key: value for key, value in message.items() if key != "weight"}
        reading.drafts.append(ImportedMessage(kept, index, message.get("role") == "assistant" and weight != 0))
    return reading


def _calls(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []


def _has_json_arguments(call: Mapping[str, Any]) -> bool:
    function = call.get("function")
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    try:
        json.loads(arguments) if isinstance(arguments, str) else None
    except (ValueError, RecursionError):
        return False
    return True


def _mark_repeated(reading: RowReading, before: list[str]) -> None:
    """Make an answer a sample only in the first line that has it: hermes-agent saves a line for each turn, with all answers so far."""
    if reading.shape != "save_trajectory":
        return
    answers = [draft for draft in reading.drafts if draft.message["role"] == "assistant"]
    texts = [json.dumps(draft.message) for draft in answers]
    if before and len(texts) > len(before) and texts[: len(before)] == before:
        reading.add_finding("repeats-earlier-line", answers[0].turn)
        for draft in answers[: len(before)]:
            draft.sampled = False
    before[:] = texts


def _build_graph(reading: RowReading, row: Mapping[str, Any], name: str, sample: str) -> MessageGraph:
    """Build the graph. Its ids come from the file's name, the line and its content, so that a second import gives the same bytes."""
    metadata = row.get("metadata")
    model = row.get("model") or (metadata.get("model") if isinstance(metadata, Mapping) else None)
    graph = MessageGraph(seed=name)
    for draft in reading.drafts:
        if draft.sampled:
            call = CallRecord(
                sample_id=f"{sample}:{draft.turn}", model=model if isinstance(model, str) else None, tools=reading.tools or None
            )
            graph.append(draft.message, sampled=True, call=call)
        else:
            graph.append(draft.message, sampled=False)
    return graph
