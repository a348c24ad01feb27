"""Export: graphs in, a folder of training data and its ledger out. Streams session by session; the folder appears whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hermes.trajectories.calls import Call, Verdict, read_calls
from hermes.trajectories.copies import Copies
from hermes.trajectories.errors import SessionError, SettingsError, SourceError
from hermes.trajectories.ledger import NAME as LEDGER
from hermes.trajectories.ledger import Ledger, dump
from hermes.trajectories.plan import ExportSettings, Format, SessionPlan, Writer, plan_session
from hermes.trajectories.source import Session
from hermes.trajectories.tokenize import Tokenizer

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Summary:
    """What an export did: the ledger's manifest, and the inputs that could not be read."""

    manifest: Mapping[str, Any]
    broken: tuple[SourceError, ...]
    trained: int
    """How many samples are trained, wholly or in part."""


def export(
    sessions: Iterable[Session | SourceError],
    out: Path,
    settings: ExportSettings,
    formats: Mapping[str, Format],
    *,
    tokenizer: Tokenizer | None = None,
    on_session: Callable[[SessionPlan], None] = lambda _: None,
) -> Summary:
    """Write every session in the format asked for, with its ledger, into the new folder `out`.

    Samples are counted once over all sessions, by sample id; where copies of one disagree, the sessions are read a second time,
    so give them as something that can be read twice. Writes into a folder beside `out` and renames it at the end, so that
    `out` is never half an export; the same input gives the same bytes."""
    if settings.format not in formats:
        raise SettingsError(f"unknown format {settings.format!r}; one of {', '.join(sorted(formats))}")
    out = out.resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingsError(f"{out} exists and is not an empty folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    verdicts: dict[str, Verdict] = {}
    while True:
        copies = Copies(verdicts)
        calls = partial(read_calls, policies=settings.policies, tokenizer=tokenizer, verdicts=verdicts)
        summary = _attempt(sessions, out, settings, formats[settings.format], Reading(calls, copies, on_session, tokenizer))
        if summary is not None:
            return summary
        # A later copy of a sample said something that its first copy did not know: do it over, knowing it.
        if isinstance(sessions, Iterator):
            raise SettingsError("several graphs say different things about the same samples; give them as a list, to be read twice")
        verdicts |= copies.news


@dataclass(frozen=True, slots=True)
class Reading:
    """How sessions become calls in one pass."""

    calls: Callable[[Session], Iterable[Call]]
    copies: Copies
    on_session: Callable[[SessionPlan], None]
    tokenizer: Tokenizer | None


def _attempt(
    sessions: Iterable[Session | SourceError], out: Path, settings: ExportSettings, form: Format, reading: Reading
) -> Summary | None:
    """Make one pass over the sessions; return None, and leave nothing behind, if what it learned makes another one necessary."""
    draft = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        with (draft / f".{LEDGER}").open("w+b") as body:
            ledger = Ledger(body)
            writer = form(draft, settings)
            broken = _write(sessions, writer, ledger, reading)
            if reading.copies.news:
                shutil.rmtree(draft)
                return None
            ledger.duplicates = reading.copies.duplicates
            manifest = ledger.manifest(_settings(settings, reading.tokenizer), writer.rows, _files(draft))
            body.seek(0)
            with (draft / LEDGER).open("wb") as whole:
                whole.write(dump(manifest))
                shutil.copyfileobj(body, whole, CHUNK)
        (draft / f".{LEDGER}").unlink()
        draft.chmod(0o777 & ~_umask())
        if out.exists():
            out.rmdir()
        draft.rename(out)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return Summary(manifest, tuple(broken), ledger.placed)


def _write(sessions: Iterable[Session | SourceError], writer: Writer, ledger: Ledger, reading: Reading) -> list[SourceError]:
    broken: list[SourceError] = []
    rows = 0
    for session in sessions:
        if isinstance(session, SourceError):
            broken.append(session)
            continue
        try:
            found = list(reading.calls(session))
        except SessionError as error:
            broken.append(SourceError(session.name, str(error)))
            continue
        plan = plan_session(session, list(reading.copies.unseen(found)), rows)
        rows += plan.rows
        ledger.sessions += 1
        placements = {id(placement.call): placement for placement in writer.write(plan)}
        for call in plan.calls:
            ledger.enter(call, placements.get(id(call)), writer.untrained)
        reading.on_session(plan)
    writer.close()
    return broken


def _settings(settings: ExportSettings, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Return the settings as JSON values."""
    known = asdict(settings)
    known["tokenizer"] = tokenizer.name if tokenizer is not None else None
    versions = settings.policies.policy_versions
    known["policies"]["policy_versions"] = None if versions is None else sorted(versions)
    return known


def _umask() -> int:
    """Return the process's umask; there is no way to read it without setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _files(folder: Path) -> list[dict[str, Any]]:
    files = []
    for path in sorted(folder.iterdir()):
        if not path.name.startswith("."):
            digest = hashlib.sha256()
            with path.open("rb") as data:
                while chunk := data.read(CHUNK):
                    digest.update(chunk)
            files.append({"name": path.name, "bytes": path.stat().st_size, "sha256": digest.hexdigest()})
    return files
