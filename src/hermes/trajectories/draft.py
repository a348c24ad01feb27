"""An export on its way: a writer and a ledger that are filled together, and the folder that becomes `out` when all of it is there."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from hermes.trajectories.calls import Call
from hermes.trajectories.errors import SettingsError
from hermes.trajectories.ledger import NAME as LEDGER
from hermes.trajectories.ledger import Ledger, dump
from hermes.trajectories.plan import ExportSettings, Format, SessionPlan, Writer, plan_session
from hermes.trajectories.source import Session

CHUNK = 1 << 20


class Part(NamedTuple):
    """Some sessions as they are written, with rows counted from 0. Can be pickled."""

    files: list[Any]
    rows: int
    ledger: Ledger


@dataclass(slots=True)
class Draft:
    """A writer and a ledger."""

    writer: Writer
    ledger: Ledger
    planned: int = 0
    """How many canonical rows there are; a format may write more or fewer."""

    def write(self, session: Session, calls: Sequence[Call]) -> SessionPlan:
        """Write a session, and enter where each of its calls is trained, or why it is not."""
        plan = plan_session(session, calls, self.planned)
        self.planned += plan.rows
        self.ledger.sessions += 1
        placements = {id(placement.call): placement for placement in self.writer.write(plan)}
        for call in plan.calls:
            self.ledger.enter(call, placements.get(id(call)), self.writer.untrained)
        return plan

    def part(self) -> Part:
        """Return all that was written without a folder."""
        return Part([file.part() for file in self.writer.files], self.writer.rows, self.ledger)

    def take(self, part: Part) -> None:
        """Write what was written elsewhere, to the same bytes as if it had been written here."""
        first_row = self.writer.rows
        for file, kept in zip(self.writer.files, part.files, strict=True):
            file.take(kept, first_row)
        self.ledger.take(part.ledger, first_row)
        self.writer.rows += part.rows


def part_of(form: Format, settings: ExportSettings) -> Draft:
    """Return a draft without a folder."""
    return Draft(form(None, settings), Ledger(BytesIO()))


def format_for(out: Path, settings: ExportSettings, formats: Mapping[str, Format]) -> Format:
    """Return the format asked for; raise SettingsError if there is no such format, or `out` cannot be written."""
    if settings.format not in formats:
        raise SettingsError(f"unknown format {settings.format!r}; one of {', '.join(sorted(formats))}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingsError(f"{out} exists and is not an empty folder")
    return formats[settings.format]


@contextmanager
def drafted(out: Path, form: Format, settings: ExportSettings) -> Iterator[tuple[Draft, Path]]:
    """Open a draft in a folder beside `out`. A block that ends without `publish` leaves nothing behind."""
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        with (folder / f".{LEDGER}").open("w+b") as body, closing(form(folder, settings)) as writer:
            yield Draft(writer, Ledger(body)), folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(draft: Draft, folder: Path, out: Path, settings: ExportSettings, tokenizer: str | None) -> dict[str, Any]:
    """Finish the files, write the ledger, and let the folder appear under its name; return the manifest."""
    draft.writer.close()
    manifest = draft.ledger.manifest(_settings(settings, tokenizer), draft.writer.rows, _files(folder))
    body = draft.ledger.body
    body.seek(0)
    with (folder / LEDGER).open("wb") as whole:
        whole.write(dump(manifest))
        shutil.copyfileobj(body, whole, CHUNK)
    (folder / f".{LEDGER}").unlink()
    folder.chmod(0o777 & ~_umask())
    if out.exists():
        out.rmdir()
    folder.rename(out)
    return manifest


def _settings(settings: ExportSettings, tokenizer: str | None) -> dict[str, Any]:
    """Return the settings as JSON values."""
    known = asdict(settings)
    known["tokenizer"] = tokenizer
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
