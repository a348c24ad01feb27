"""Export by many hands: chunks of the input are exported wherever an engine has room, and put together here, in their order.

What comes out is what `export` writes, byte for byte, whatever the engine. Two things belong to all chunks together: a sample counts
once, and rows are numbered through. Rows are numbered when parts are put together. For samples, workers guess that each chunk stands
alone, and here all of them are heard in order. Where the guess is right, which it is up to the first copy, a chunk is read once. From the
first wrong one on, chunks are only heard, to the end, and then written in a second reading that knows everything.

Memory: what is remembered of each sample, and the chunks and parts that an engine holds at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple, Protocol

from hermes.trajectories.calls import SampleVerdict
from hermes.trajectories.chunk_worker import INPUT_CHANGED, ChunkDecision, ChunkResult, ChunkSettings, ChunkTask, export_chunk
from hermes.trajectories.draft import ExportDraft, format_for, open_draft, publish
from hermes.trajectories.duplicates import SeenSamples
from hermes.trajectories.engines import ChunkEngine
from hermes.trajectories.errors import SourceError, TrajectoryError
from hermes.trajectories.export import ExportSummary
from hermes.trajectories.plan import ExportFormat, ExportSettings
from hermes.trajectories.source import GraphDocument
from hermes.trajectories.tokenizer import load_tokenizer

DEFAULT_CHUNK_BYTES = 1 << 20
"""About how many bytes of graphs are in a chunk."""

Chunk = list[GraphDocument]


class GraphSource(Protocol):
    """Graphs that can be read more than once, not decoded."""

    @property
    def size(self) -> int: ...

    def documents(self) -> Iterator[GraphDocument]: ...


@dataclass(frozen=True, slots=True)
class ExportProgress:
    """How far an export came, for whoever watches."""

    bytes_read: int
    bytes_to_read: int
    """Grows where copies make a second reading necessary."""
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
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    on_step: Callable[[ExportProgress], None] = lambda _: None,
) -> ExportSummary:
    """Write every graph in the format asked for, with its ledger, into the new folder `out`: see `export`.

    The format and the settings travel to the workers; the tokenizer is a folder that each of them must have."""
    out = out.resolve()
    form = format_for(out, settings, formats)
    name = load_tokenizer(tokenizer).name if tokenizer is not None else None  # one that is not there is told before anything begins
    work = ChunkSettings(form, settings, tokenizer.resolve() if tokenizer is not None else None)
    verdicts: dict[str, SampleVerdict] = {}
    before: Sequence[_ChunkRecord] = ()
    watch = _ProgressMeter(source.size, on_step)
    while True:
        with open_draft(out, form, settings) as (draft, folder):
            reading = _InputPass(engine, work, partial(_chunks, source, chunk_bytes), draft, watch, verdicts, before)
            if reading.write_all():
                draft.ledger.duplicates = reading.copies.duplicates
                manifest = publish(draft, folder, out, settings, name)
                return ExportSummary(manifest, tuple(reading.broken), draft.ledger.placed)
        # Copies of a sample say different things about it: do it over, knowing what holds for all of them.
        verdicts |= reading.copies.changed_verdicts
        before = reading.read


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
    """What is remembered of a chunk for another reading."""

    digest: bytes
    responses: list[bytes]


@dataclass(slots=True)
class _InputPass:
    """One way through the input, knowing what earlier ones found out."""

    engine: ChunkEngine
    work: ChunkSettings
    chunks: Callable[[], Iterator[Chunk]]
    draft: ExportDraft
    watch: _ProgressMeter
    verdicts: Mapping[str, SampleVerdict]
    before: Sequence[_ChunkRecord]
    """The chunks, as an earlier reading found them."""
    copies: SeenSamples = field(init=False)
    is_guessing: bool = field(init=False)
    taken: int = 0
    """How many chunks are written, from the front."""
    decided: list[ChunkDecision] = field(default_factory=list)
    """Of the chunks behind those."""
    read: list[_ChunkRecord] = field(default_factory=list)
    broken: list[SourceError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.copies = SeenSamples(self.verdicts)
        self.is_guessing = not self.verdicts  # where some disagree there are copies, and guesses would be wrong

    def write_all(self) -> bool:
        """Write all of the input; return False if copies turn out to disagree, so that what is written is of no use."""
        self.watch.begin(is_read_twice=not self.is_guessing)
        self._do(self._orders(), self._hear)
        if self.before and len(self.read) != len(self.before):
            raise TrajectoryError(INPUT_CHANGED)
        if self.copies.changed_verdicts:
            return False
        if self.decided:
            self._do(self._second_orders(), self._take)
        return True

    def _do(self, orders: Iterator[ChunkTask], then: Callable[[ChunkResult], None]) -> None:
        with closing(self.engine.map(partial(export_chunk, work=self.work), orders)) as results:
            for done in results:
                if done.failed:
                    raise TrajectoryError(done.failed)
                then(done)
                self.watch.tell(done.size, self.draft)

    def _orders(self) -> Iterator[ChunkTask]:
        for number, chunk in enumerate(self.chunks()):
            # An engine asks for chunks ahead of results: some are written in vain before the first wrong guess is known.
            yield ChunkTask(chunk, self._verdicts_for(number), should_write=self.is_guessing)

    def _second_orders(self) -> Iterator[ChunkTask]:
        rest = zip_longest(islice(self.chunks(), self.taken, None), self.decided)
        for number, (chunk, decided) in enumerate(rest, start=self.taken):
            if chunk is None or decided is None:
                raise TrajectoryError(INPUT_CHANGED)
            yield ChunkTask(chunk, self._verdicts_for(number), decided)

    def _verdicts_for(self, number: int) -> dict[str, SampleVerdict]:
        if not self.before:
            return {}
        if number >= len(self.before):
            raise TrajectoryError(INPUT_CHANGED)
        names = (response.hex() for response in self.before[number].responses)
        return {name: self.verdicts[name] for name in names if name in self.verdicts}

    def _hear(self, done: ChunkResult) -> None:
        if self.before and self.before[len(self.read)].digest != done.digest:
            raise TrajectoryError(INPUT_CHANGED)
        self.read.append(_ChunkRecord(done.digest, [*(sample.identity for sample in done.samples), *done.unexported]))
        self.broken += [SourceError(where, reason) for where, reason in done.broken.values()]
        statuses = bytes(map(self.copies.add, done.samples))
        if self.is_guessing and statuses == done.statuses and not self.copies.changed_verdicts:
            self._take(done)
            self.taken += 1
            return
        if self.is_guessing:
            self.is_guessing = False
            self.watch.begin_again()
        self.decided.append(ChunkDecision(done.digest, frozenset(done.broken), statuses))

    def _take(self, done: ChunkResult) -> None:
        if done.part is not None:
            self.draft.take(done.part)


@dataclass(slots=True)
class _ProgressMeter:
    """Counts what is read and what is still to be read."""

    size: int
    on_step: Callable[[ExportProgress], None]
    read: int = field(default=0, init=False)
    to_read: int = field(default=0, init=False)
    _begun: int = field(default=0, init=False)

    def begin(self, *, is_read_twice: bool) -> None:
        self._begun = self.read
        self.to_read = self.read + self.size * (1 + is_read_twice)

    def begin_again(self) -> None:
        """What was not read so far will be read twice."""
        self.to_read += self.size - (self.read - self._begun)

    def tell(self, size: int, draft: ExportDraft) -> None:
        self.read += size
        self.on_step(ExportProgress(self.read, self.to_read, draft.ledger.sessions, draft.ledger.trained))
