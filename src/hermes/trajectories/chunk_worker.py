"""What one worker does with a chunk of an export: it lists the samples in it, and writes them as a part of the export.

A worker sees one chunk of the input and nothing else. It cannot know which samples came in an earlier chunk. So the task says it, or
the worker guesses that none did, and returns what it guessed. Tasks and results can be pickled. A failure is one line of text, because few
exceptions can be pickled."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hermes.trajectories.calls import SampledCall, SampleVerdict, read_calls
from hermes.trajectories.draft import ExportDraft, ExportPart, new_part_draft
from hermes.trajectories.duplicates import SampleOccurrence, SeenSamples, calls_to_count, occurrence_of
from hermes.trajectories.errors import SessionError, SourceError, TrajectoryError
from hermes.trajectories.plan import ExportFormat, ExportSettings
from hermes.trajectories.source import ExportSession, GraphDocument, read_session
from hermes.trajectories.tokenizer import Tokenizer, load_tokenizer

INPUT_CHANGED = "the graphs changed while they were read; export them again"


@dataclass(frozen=True, slots=True)
class ChunkSettings:
    """The settings that are the same for every chunk."""

    form: ExportFormat
    settings: ExportSettings
    tokenizer: Path | None = None
    """The tokenizer's folder, which every worker must have."""


@dataclass(frozen=True, slots=True)
class ChunkDecision:
    """What the first reading of a chunk decided."""

    digest: bytes
    """Digest of the chunk's text: the second reading must read the same text."""
    broken: frozenset[int]
    """The documents that cannot be exported."""
    statuses: bytes
    """A `SampleStatus` for each sample of the other documents."""


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """A chunk, and what the worker shall do with it."""

    documents: Sequence[GraphDocument]
    verdicts: Mapping[str, SampleVerdict] = field(default_factory=dict)
    """By response id: what copies in other chunks say about samples in this one."""
    decided: ChunkDecision | None = None
    """If given, the worker only writes the chunk: its samples are already known."""
    should_write: bool = True
    """Without a decision: whether the worker writes the chunk on a guess, or only lists its samples."""


@dataclass(slots=True)
class ChunkResult:
    """What a worker returns for a chunk."""

    size: int = 0
    """Bytes of the input, for progress."""
    digest: bytes = b""
    broken: dict[int, tuple[str, str]] = field(default_factory=dict)
    """By the document's index: its place, and what is wrong with it."""
    samples: list[SampleOccurrence] = field(default_factory=list)
    unexported: list[bytes] = field(default_factory=list)
    """The response ids of graphs that can be decoded but not exported."""
    statuses: bytes = b""
    """The status that the worker guessed for each sample, if it wrote the chunk on a guess."""
    part: ExportPart | None = None
    failed: str = ""
    """Why the whole export must stop; empty if it need not."""


def export_chunk(task: ChunkTask, chunk_settings: ChunkSettings) -> ChunkResult:
    """Carry out one task. An error becomes `failed` in the result; it is not raised."""
    result = ChunkResult(sum(len(document.text) for document in task.documents), _digest(task.documents))
    try:
        if task.decided is not None:
            result.part = _write_decided(task, task.decided, result.digest, chunk_settings)
        else:
            _read_chunk(task, result, chunk_settings)
    except TrajectoryError as error:
        result.failed = str(error)
    return result


def _read_chunk(task: ChunkTask, result: ChunkResult, chunk_settings: ChunkSettings) -> None:
    """List the samples of a chunk; if the task asks for it, write the chunk as if it were the first one."""
    draft = new_part_draft(chunk_settings.form, chunk_settings.settings) if task.should_write else None
    seen = SeenSamples({})
    statuses = bytearray()
    for session, calls in _sessions(task, result, chunk_settings):
        samples = [occurrence_of(call) for call in calls]
        result.samples += samples
        if draft is not None:
            guessed = [seen.add(sample) for sample in samples]
            statuses += bytes(guessed)
            draft.write(session, list(calls_to_count(calls, guessed)))
    if draft is not None:
        result.statuses, result.part = bytes(statuses), draft.part()


def _sessions(task: ChunkTask, result: ChunkResult, chunk_settings: ChunkSettings) -> Iterator[tuple[ExportSession, list[SampledCall]]]:
    """Yield the sessions with their samples; note broken documents in the result."""
    for number, document in enumerate(task.documents):
        session = read_session(document)
        if isinstance(session, SourceError):
            result.broken[number] = (session.where, session.reason)
            continue
        try:
            calls = _calls(session, task, chunk_settings)
        except SessionError as error:
            result.broken[number] = (session.name, str(error))
            result.unexported += [bytes.fromhex(response.id) for response in session.graph.responses()]
        else:
            yield session, calls


def _write_decided(task: ChunkTask, decided: ChunkDecision, digest: bytes, chunk_settings: ChunkSettings) -> ExportPart:
    """Write a chunk whose samples' statuses are decided."""
    if digest != decided.digest:
        raise TrajectoryError(INPUT_CHANGED)
    draft: ExportDraft = new_part_draft(chunk_settings.form, chunk_settings.settings)
    at = 0
    for number, document in enumerate(task.documents):
        session = read_session(document, is_checked=True) if number not in decided.broken else None
        if isinstance(session, ExportSession):
            calls = _calls(session, task, chunk_settings)
            draft.write(session, list(calls_to_count(calls, decided.statuses[at : at + len(calls)])))
            at += len(calls)
    return draft.part()


def _calls(session: ExportSession, task: ChunkTask, chunk_settings: ChunkSettings) -> list[SampledCall]:
    return read_calls(session, chunk_settings.settings.policies, _tokenizer(chunk_settings.tokenizer), task.verdicts)


@cache
def _tokenizer(folder: Path | None) -> Tokenizer | None:
    """Return the tokenizer; each process loads it once."""
    return load_tokenizer(folder) if folder is not None else None


def _digest(documents: Iterable[GraphDocument]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for document in documents:
        digest.update(document.text)
    return digest.digest()
