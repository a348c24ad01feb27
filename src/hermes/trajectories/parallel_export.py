"""Export in many processes: an engine's workers export chunks of the input, and this process joins their parts in the order of the chunks.

With every engine the output is what `export` writes, byte for byte. Two things depend on all chunks: a sample counts once, and rows are
numbered from the first chunk to the last. Rows get their numbers when parts are joined. For samples, each worker guesses that no sample of
its chunk came before, and this process checks the guesses in order. The guess is right up to the first copy; until then each chunk is
read once. From the first wrong guess on, workers only list samples; then a second reading, which knows every status, writes these chunks.

A worker sees one chunk of the input and nothing else. Tasks and results can be pickled. A failure is one line of text, because few
exceptions can be pickled.

Memory: 33 bytes for each sample, and the chunks and parts that an engine holds at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple, Protocol

from hermes.trajectories.calls import SampledCall, SampleVerdict, read_calls
from hermes.trajectories.duplicates import SampleOccurrence, SeenSamples, calls_to_count, occurrence_of
from hermes.trajectories.engines import ChunkEngine
from hermes.trajectories.errors import SessionError, SourceError, TrajectoryError
from hermes.trajectories.export import ExportDraft, ExportPart, ExportSummary, format_for, in_blocks, new_part_draft, open_draft, publish
from hermes.trajectories.plan import ExportFormat, ExportSettings
from hermes.trajectories.rare_collection import collect_rarely
from hermes.trajectories.sample_table import SampleTable
from hermes.trajectories.signature import LedgerSigner
from hermes.trajectories.source import ExportSession, GraphDocument, read_session
from hermes.trajectories.tokenizer import Tokenizer, load_tokenizer

ID_BYTES = 32
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
        with collect_rarely():
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
    for block in _blocks(task, result, chunk_settings):
        read: list[tuple[ExportSession, list[SampledCall]]] = []
        for session, calls in block:
            samples = [occurrence_of(call) for call in calls]
            result.samples += samples
            if draft is not None:
                guessed = [seen.add(sample) for sample in samples]
                statuses += bytes(guessed)
                read.append((session, list(calls_to_count(calls, guessed))))
        if draft is not None:
            draft.write(read)
    if draft is not None:
        result.statuses, result.part = bytes(statuses), draft.part()


SessionBlock = list[tuple[ExportSession, list[SampledCall]]]


def _blocks(task: ChunkTask, result: ChunkResult, chunk_settings: ChunkSettings) -> Iterator[SessionBlock]:
    """Yield the sessions with their samples, in blocks; note broken documents in the result."""
    done = 0
    for block in in_blocks(map(read_session, task.documents)):
        found: SessionBlock = []
        for number, session in enumerate(block, done):
            if isinstance(session, SourceError):
                result.broken[number] = (session.where, session.reason)
                continue
            try:
                found.append((session, _calls(session, task, chunk_settings)))
            except SessionError as error:
                result.broken[number] = (session.name, str(error))
                result.unexported += [bytes.fromhex(response.id) for response in session.graph.responses()]
        done += len(block)
        yield found


def _write_decided(task: ChunkTask, decided: ChunkDecision, digest: bytes, chunk_settings: ChunkSettings) -> ExportPart:
    """Write a chunk whose samples' statuses are decided."""
    if digest != decided.digest:
        raise TrajectoryError(INPUT_CHANGED)
    draft: ExportDraft = new_part_draft(chunk_settings.form, chunk_settings.settings)
    at = 0
    whole = (document for number, document in enumerate(task.documents) if number not in decided.broken)
    for block in in_blocks(read_session(document, is_checked=True) for document in whole):
        read: SessionBlock = []
        for session in block:
            if isinstance(session, ExportSession):
                calls = _calls(session, task, chunk_settings)
                read.append((session, list(calls_to_count(calls, decided.statuses[at : at + len(calls)]))))
                at += len(calls)
        draft.write(read)
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


DEFAULT_CHUNK_BYTES = 1 << 20
"""About how many bytes of graphs are in a chunk."""

Chunk = list[GraphDocument]


class GraphSource(Protocol):
    """Where the graphs come from, not decoded; they can be read more than once."""

    @property
    def size(self) -> int: ...

    def documents(self) -> Iterator[GraphDocument]: ...


@dataclass(frozen=True, slots=True)
class ExportProgress:
    """How far an export is, for a progress bar."""

    bytes_read: int
    bytes_to_read: int
    """Grows if copies make a second reading necessary."""
    sessions: int
    tokens: int


def export_on(
    engine: ChunkEngine,
    source: GraphSource,
    out: Path,
    settings: ExportSettings,
    formats: Mapping[str, ExportFormat],
    *,
    tokenizer: Path | None = None,
    signer: LedgerSigner | None = None,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    on_step: Callable[[ExportProgress], None] = lambda _: None,
) -> ExportSummary:
    """Write every graph in the format of the settings, with its ledger, into the new folder `out`: see `export`.

    The format and the settings are sent to the workers; the tokenizer is a folder that each worker must have."""
    out = out.resolve()
    form = format_for(out, settings, formats)
    name = load_tokenizer(tokenizer).name if tokenizer is not None else None  # a missing tokenizer fails here, before any work
    chunk_settings = ChunkSettings(form, settings, tokenizer.resolve() if tokenizer is not None else None)
    verdicts: dict[str, SampleVerdict] = {}
    earlier: Sequence[_ChunkRecord] = ()
    meter = _ProgressMeter(source.size, on_step)
    while True:
        with open_draft(out, form, settings) as (draft, folder), closing(SampleTable(folder)) as table:
            seen = SeenSamples(verdicts, table=table)
            input_pass = _InputPass(engine, chunk_settings, partial(_chunks, source, chunk_bytes), draft, meter, seen, earlier)
            if input_pass.write_all():
                draft.ledger.duplicates = input_pass.seen.duplicates
                manifest = publish(draft, folder, out, settings, name, signer=signer)
                return ExportSummary(manifest, tuple(input_pass.broken), draft.ledger.placed)
        # Copies of a sample disagree: start again with the merged verdicts.
        verdicts = {**verdicts, **input_pass.seen.changed_verdicts}
        earlier = input_pass.read


def _chunks(source: GraphSource, size: int) -> Iterator[Chunk]:
    chunk: Chunk = []
    filled = 0
    for document in source.documents():
        chunk.append(document)
        filled += len(document.text)
        if filled >= size:
            yield chunk
            chunk, filled = [], 0
    if chunk:
        yield chunk


class _ChunkRecord(NamedTuple):
    """What the next pass needs to know about a chunk."""

    digest: bytes
    responses: bytes
    """The ids of its responses, one after the other: they are kept for every sample of the input."""


@dataclass(slots=True)
class _InputPass:
    """One pass over the input, with the verdicts of earlier passes."""

    engine: ChunkEngine
    chunk_settings: ChunkSettings
    chunks: Callable[[], Iterator[Chunk]]
    draft: ExportDraft
    meter: _ProgressMeter
    seen: SeenSamples
    earlier: Sequence[_ChunkRecord]
    """The chunks as the pass before found them; empty in the first pass."""
    is_guessing: bool = field(init=False)
    written: int = 0
    """How many chunks, from the first on, are written."""
    decided: list[ChunkDecision] = field(default_factory=list)
    """The decisions about the chunks after those; the second reading writes them."""
    read: list[_ChunkRecord] = field(default_factory=list)
    broken: list[SourceError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.is_guessing = not self.seen.known  # verdicts mean that there are copies, so guesses would be wrong

    def write_all(self) -> bool:
        """Write the whole input; return False if copies disagree, so that another pass is needed and this draft is useless."""
        self.meter.begin(is_read_twice=not self.is_guessing)
        self._run(self._tasks(), self._decide)
        if self.earlier and len(self.read) != len(self.earlier):
            raise TrajectoryError(INPUT_CHANGED)
        if self.seen.changed_verdicts:
            return False
        if self.decided:
            self._run(self._second_tasks(), self._take)
        return True

    def _run(self, tasks: Iterator[ChunkTask], then: Callable[[ChunkResult], None]) -> None:
        with closing(self.engine.map(partial(export_chunk, chunk_settings=self.chunk_settings), tasks)) as results:
            for result in results:
                if result.failed:
                    raise TrajectoryError(result.failed)
                then(result)
                self.meter.report(result.size, self.draft)

    def _tasks(self) -> Iterator[ChunkTask]:
        for number, chunk in enumerate(self.chunks()):
            # An engine takes chunks ahead of results: workers write some in vain before the first wrong guess is known.
            yield ChunkTask(chunk, self._verdicts_for(number), should_write=self.is_guessing)

    def _second_tasks(self) -> Iterator[ChunkTask]:
        rest = zip_longest(islice(self.chunks(), self.written, None), self.decided)
        for number, (chunk, decided) in enumerate(rest, start=self.written):
            if chunk is None or decided is None:
                raise TrajectoryError(INPUT_CHANGED)
            yield ChunkTask(chunk, self._verdicts_for(number), decided)

    def _verdicts_for(self, number: int) -> dict[str, SampleVerdict]:
        if not self.earlier:
            return {}
        if number >= len(self.earlier):
            raise TrajectoryError(INPUT_CHANGED)
        known, responses = self.seen.known, self.earlier[number].responses
        names = (responses[at : at + ID_BYTES].hex() for at in range(0, len(responses), ID_BYTES))
        return {name: known[name] for name in names if name in known}

    def _decide(self, result: ChunkResult) -> None:
        if self.earlier and self.earlier[len(self.read)].digest != result.digest:
            raise TrajectoryError(INPUT_CHANGED)
        self.read.append(_ChunkRecord(result.digest, b"".join([*(sample.identity for sample in result.samples), *result.unexported])))
        self.broken += [SourceError(where, reason) for where, reason in result.broken.values()]
        statuses = bytes(map(self.seen.add, result.samples))
        if self.is_guessing and statuses == result.statuses and not self.seen.changed_verdicts:
            self._take(result)
            self.written += 1
            return
        if self.is_guessing:
            self.is_guessing = False
            self.meter.begin_again()
        self.decided.append(ChunkDecision(result.digest, frozenset(result.broken), statuses))

    def _take(self, result: ChunkResult) -> None:
        if result.part is not None:
            self.draft.take(result.part)


@dataclass(slots=True)
class _ProgressMeter:
    """Counts the bytes that are read and the bytes to read."""

    size: int
    on_step: Callable[[ExportProgress], None]
    read: int = field(default=0, init=False)
    to_read: int = field(default=0, init=False)
    _begun: int = field(default=0, init=False)

    def begin(self, *, is_read_twice: bool) -> None:
        self._begun = self.read
        self.to_read = self.read + self.size * (1 + is_read_twice)

    def begin_again(self) -> None:
        """Count the bytes that are not read yet a second time: a second reading will follow."""
        self.to_read += self.size - (self.read - self._begun)

    def report(self, size: int, draft: ExportDraft) -> None:
        self.read += size
        self.on_step(ExportProgress(self.read, self.to_read, draft.ledger.sessions, draft.ledger.trained))
