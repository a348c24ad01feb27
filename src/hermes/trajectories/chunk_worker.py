"""What one worker does with some graphs of an export: say what is in them, and write them, as a part that others are put before and behind.

A worker sees a chunk of the input and nothing else. Which samples came in an earlier chunk it cannot know, so it is told, or it
guesses that none did and says what it guessed. Orders and what was done can be pickled; a failure is one line, since few errors survive
the way between machines."""

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
    """What is done with every chunk."""

    form: ExportFormat
    settings: ExportSettings
    tokenizer: Path | None = None
    """Its folder, which every worker must have."""


@dataclass(frozen=True, slots=True)
class ChunkDecision:
    """What a first reading of a chunk led to."""

    digest: bytes
    """Of the text of the chunk: the second reading must be of the same one."""
    broken: frozenset[int]
    """The documents that cannot be exported."""
    statuses: bytes
    """A `Standing` for each sample of the others."""


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """A chunk, and what is wanted of it."""

    documents: Sequence[GraphDocument]
    verdicts: Mapping[str, SampleVerdict] = field(default_factory=dict)
    """By response id: what copies elsewhere say of samples in it."""
    decided: ChunkDecision | None = None
    """Then it is to be written, and nothing else: all is known of it."""
    should_write: bool = True
    """Without a decision: whether to write it on a guess, or only to say what is in it."""


@dataclass(slots=True)
class ChunkResult:
    """What became of a chunk."""

    size: int = 0
    """Bytes of the input, for progress."""
    digest: bytes = b""
    broken: dict[int, tuple[str, str]] = field(default_factory=dict)
    """By the document: where it is, and what is wrong with it."""
    samples: list[SampleOccurrence] = field(default_factory=list)
    unexported: list[bytes] = field(default_factory=list)
    """The response ids of graphs that can be decoded and not exported."""
    statuses: bytes = b""
    """What each sample was taken for, where it was written."""
    part: ExportPart | None = None
    failed: str = ""
    """Why the whole export has to stop."""


def export_chunk(order: ChunkTask, work: ChunkSettings) -> ChunkResult:
    """Do what is wanted of a chunk."""
    done = ChunkResult(sum(len(document.text) for document in order.documents), _digest(order.documents))
    try:
        if order.decided is not None:
            done.part = _write_decided(order, order.decided, done.digest, work)
        else:
            _read_chunk(order, done, work)
    except TrajectoryError as error:
        done.failed = str(error)
    return done


def _read_chunk(order: ChunkTask, done: ChunkResult, work: ChunkSettings) -> None:
    """Say what is in a chunk; where it is wanted, write it as if nothing had come before it."""
    draft = new_part_draft(work.form, work.settings) if order.should_write else None
    copies = SeenSamples({})
    statuses = bytearray()
    for session, calls in _sessions(order, done, work):
        samples = [occurrence_of(call) for call in calls]
        done.samples += samples
        if draft is not None:
            guessed = [copies.add(sample) for sample in samples]
            statuses += bytes(guessed)
            draft.write(session, list(calls_to_count(calls, guessed)))
    if draft is not None:
        done.statuses, done.part = bytes(statuses), draft.part()


def _sessions(order: ChunkTask, done: ChunkResult, work: ChunkSettings) -> Iterator[tuple[ExportSession, list[SampledCall]]]:
    """Yield the sessions with their samples, and note what is broken."""
    for number, document in enumerate(order.documents):
        session = read_session(document)
        if isinstance(session, SourceError):
            done.broken[number] = (session.where, session.reason)
            continue
        try:
            calls = _calls(session, order, work)
        except SessionError as error:
            done.broken[number] = (session.name, str(error))
            done.unexported += [bytes.fromhex(response.id) for response in session.graph.responses()]
        else:
            yield session, calls


def _write_decided(order: ChunkTask, decided: ChunkDecision, digest: bytes, work: ChunkSettings) -> ExportPart:
    """Write a chunk of which all is known."""
    if digest != decided.digest:
        raise TrajectoryError(INPUT_CHANGED)
    draft: ExportDraft = new_part_draft(work.form, work.settings)
    at = 0
    for number, document in enumerate(order.documents):
        session = read_session(document, is_checked=True) if number not in decided.broken else None
        if isinstance(session, ExportSession):
            calls = _calls(session, order, work)
            draft.write(session, list(calls_to_count(calls, decided.statuses[at : at + len(calls)])))
            at += len(calls)
    return draft.part()


def _calls(session: ExportSession, order: ChunkTask, work: ChunkSettings) -> list[SampledCall]:
    return read_calls(session, work.settings.policies, _tokenizer(work.tokenizer), order.verdicts)


@cache
def _tokenizer(folder: Path | None) -> Tokenizer | None:
    """Return a tokenizer, which is loaded once in every process."""
    return load_tokenizer(folder) if folder is not None else None


def _digest(documents: Iterable[GraphDocument]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for document in documents:
        digest.update(document.text)
    return digest.digest()
