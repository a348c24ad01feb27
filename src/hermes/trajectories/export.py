"""Export: graphs in, a folder of training data and its ledger out. Streams session by session; the folder appears whole or not at all.

Runs in one process; `parallel_export` does the same in many, and writes the same bytes."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from hermes.trajectories.calls import SampledCall, SampleVerdict, read_calls
from hermes.trajectories.duplicates import SeenSamples
from hermes.trajectories.errors import SessionError, SourceError, TrajectorySettingsError
from hermes.trajectories.ledger import FILE_NAME as LEDGER
from hermes.trajectories.ledger import Ledger, dump
from hermes.trajectories.merkle import SampleLeaves
from hermes.trajectories.plan import ExportFormat, ExportSettings, FormatWriter, SessionPlan, plan_session
from hermes.trajectories.private_files import make_private
from hermes.trajectories.rare_collection import collect_rarely
from hermes.trajectories.sample_table import SampleTable
from hermes.trajectories.signature import LedgerSigner
from hermes.trajectories.source import ExportSession
from hermes.trajectories.tokenizer import Tokenizer

BUFFER_BYTES = 1 << 20


class ExportPart(NamedTuple):
    """Some sessions as the writer wrote them, with rows counted from 0. Can be pickled."""

    files: list[Any]
    rows: int
    ledger: Ledger


@dataclass(slots=True)
class ExportDraft:
    """A writer and a ledger."""

    writer: FormatWriter
    ledger: Ledger

    def write(self, sessions: Iterable[tuple[ExportSession, Sequence[SampledCall]]]) -> list[SessionPlan]:
        """Write sessions, and enter each of their calls in the ledger: in which row its tokens are trained, or why they are not."""
        plans = [plan_session(session, calls) for session, calls in sessions]
        placements = [list(self.writer.write(plan)) for plan in plans]
        for plan, placed in zip(plans, placements, strict=True):
            self.ledger.enter_session(plan.session.root, plan.calls, placed, self.writer.untrained)
        return plans

    def part(self) -> ExportPart:
        """Return everything that was written into a draft without a folder."""
        return ExportPart([file.part() for file in self.writer.files], self.writer.rows, self.ledger)

    def take(self, part: ExportPart) -> None:
        """Append a part that a worker wrote; the bytes are the same as if its sessions had been written here."""
        first_row = self.writer.rows
        for file, kept in zip(self.writer.files, part.files, strict=True):
            file.take(kept, first_row)
        self.ledger.take(part.ledger, first_row)
        self.writer.rows += part.rows


MAX_BLOCK_SESSIONS = 64
MAX_BLOCK_MESSAGES = 256


def in_blocks(sessions: Iterable[ExportSession | SourceError]) -> Iterator[list[ExportSession | SourceError]]:
    """Yield the sessions in blocks of so many messages, in order; a long session is a block of its own.

    Each step of an export does a whole block before the next step begins: its code then stays in the processor's cache. Session by
    session, small sessions take a fifth more time."""
    block: list[ExportSession | SourceError] = []
    messages = 0
    for session in sessions:
        size = len(session.graph) if isinstance(session, ExportSession) else 0
        if block and (messages + size > MAX_BLOCK_MESSAGES or len(block) == MAX_BLOCK_SESSIONS):
            yield block
            block, messages = [], 0
        block.append(session)
        messages += size
    if block:
        yield block


def new_part_draft(form: ExportFormat, settings: ExportSettings) -> ExportDraft:
    """Return a draft without a folder, for one part of an export."""
    return ExportDraft(form(None, settings), Ledger(BytesIO()))


def format_for(out: Path, settings: ExportSettings, formats: Mapping[str, ExportFormat]) -> ExportFormat:
    """Return the format of the settings; raise TrajectorySettingsError if there is no such format, if its rows cannot be bare, or if
    `out` exists and is not an empty folder."""
    if settings.format not in formats:
        raise TrajectorySettingsError(f"unknown format {settings.format!r}; one of {', '.join(sorted(formats))}")
    if settings.is_bare and settings.format != "sharegpt":
        raise TrajectorySettingsError(f"only rows of sharegpt can be bare, not those of {settings.format}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TrajectorySettingsError(f"{out} exists and is not an empty folder")
    return formats[settings.format]


@contextmanager
def open_draft(out: Path, form: ExportFormat, settings: ExportSettings) -> Iterator[tuple[ExportDraft, Path]]:
    """Open a draft in a new hidden folder beside `out`; yield both. If the block ends without `publish`, the folder is removed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        # The ledger's entries wait in a hidden file: its first line, the manifest, is known last.
        with (
            (folder / f".{LEDGER}").open("w+b") as body,
            closing(SampleLeaves(folder)) as leaves,
            closing(SampleLeaves(folder)) as roots,
            closing(form(folder, settings)) as writer,
        ):
            yield ExportDraft(writer, Ledger(body, leaves=leaves, roots=roots)), folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(
    draft: ExportDraft, folder: Path, out: Path, settings: ExportSettings, tokenizer: str | None, *, signer: LedgerSigner | None
) -> dict[str, Any]:
    """Finish the files, write the ledger, sign it, and rename the folder to `out`, for its owner only; return the manifest."""
    draft.writer.close()
    manifest = draft.ledger.manifest(_settings(settings, tokenizer), draft.writer.rows, _files(folder))
    body = draft.ledger.body
    body.seek(0)
    with (folder / LEDGER).open("wb") as whole:
        whole.write(dump(manifest))
        shutil.copyfileobj(body, whole, BUFFER_BYTES)
    (folder / f".{LEDGER}").unlink()
    if signer is not None:
        signer.sign(folder)
    make_private(folder)
    if out.exists():
        out.rmdir()
    folder.rename(out)
    return manifest


def _settings(settings: ExportSettings, tokenizer: str | None) -> dict[str, Any]:
    """Return the settings as JSON values."""
    known = asdict(settings)
    known["tokenizer"] = tokenizer
    known["policies"]["rewards"] = list(known["policies"]["rewards"])
    versions = settings.policies.policy_versions
    known["policies"]["policy_versions"] = None if versions is None else sorted(versions)
    return known


def _files(folder: Path) -> list[dict[str, Any]]:
    files = []
    for path in sorted(folder.iterdir()):
        if not path.name.startswith("."):
            digest = hashlib.sha256()
            with path.open("rb") as data:
                while chunk := data.read(BUFFER_BYTES):
                    digest.update(chunk)
            files.append({"name": path.name, "bytes": path.stat().st_size, "sha256": digest.hexdigest()})
    return files


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What an export did: the ledger's manifest, and the inputs that could not be read."""

    manifest: Mapping[str, Any]
    broken: tuple[SourceError, ...]
    trained: int
    """How many samples are trained, wholly or in part."""


def export(
    sessions: Iterable[ExportSession | SourceError],
    out: Path,
    settings: ExportSettings,
    formats: Mapping[str, ExportFormat],
    *,
    tokenizer: Tokenizer | None = None,
    signer: LedgerSigner | None = None,
    on_session: Callable[[SessionPlan], None] = lambda _: None,
) -> ExportSummary:
    """Write every session in the format of the settings, with its ledger, into the new folder `out`.

    Samples are counted once over all sessions, by sample id. Where copies of a sample disagree, the sessions are read a second time,
    so pass `sessions` as something that can be read twice. Writes into a folder beside `out` and renames it at the end, so that
    `out` is never half an export. The same input gives the same bytes."""
    out = out.resolve()
    form = format_for(out, settings, formats)
    verdicts: dict[str, SampleVerdict] = {}
    while True:
        calls = partial(read_calls, policies=settings.policies, tokenizer=tokenizer, verdicts=verdicts)
        with open_draft(out, form, settings) as (draft, folder), closing(SampleTable(folder)) as table:
            seen = SeenSamples(verdicts, table=table)
            with collect_rarely():
                broken = _write_sessions(sessions, draft, ExportPass(calls, seen, on_session))
            if not seen.changed_verdicts:
                draft.ledger.duplicates = seen.duplicates
                manifest = publish(draft, folder, out, settings, tokenizer.name if tokenizer is not None else None, signer=signer)
                return ExportSummary(manifest, tuple(broken), draft.ledger.placed)
        # A later copy changed the verdict on a sample that is already written: start again with the merged verdicts.
        if isinstance(sessions, Iterator):
            raise TrajectorySettingsError(
                "several graphs disagree about the same samples, so they must be read twice; pass a list, not an iterator"
            )
        verdicts |= seen.changed_verdicts


@dataclass(frozen=True, slots=True)
class ExportPass:
    """What one pass over the sessions needs."""

    calls: Callable[[ExportSession], list[SampledCall]]
    seen: SeenSamples
    on_session: Callable[[SessionPlan], None]


def _write_sessions(sessions: Iterable[ExportSession | SourceError], draft: ExportDraft, export_pass: ExportPass) -> list[SourceError]:
    broken: list[SourceError] = []
    for block in in_blocks(sessions):
        read: list[tuple[ExportSession, list[SampledCall]]] = []
        for session in block:
            if isinstance(session, SourceError):
                broken.append(session)
                continue
            try:
                read.append((session, export_pass.calls(session)))
            except SessionError as error:
                broken.append(SourceError(session.name, str(error)))
        for plan in draft.write([(session, list(export_pass.seen.count(calls))) for session, calls in read]):
            export_pass.on_session(plan)
    return broken
