"""Export: graphs in, a folder of training data and its ledger out. Streams session by session; the folder appears whole or not at all.

Runs in one process; `parallel_export` does the same in many, and writes the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hermes.trajectories.calls import SampledCall, SampleVerdict, read_calls
from hermes.trajectories.draft import ExportDraft, format_for, open_draft, publish
from hermes.trajectories.duplicates import SeenSamples, calls_to_count, occurrence_of
from hermes.trajectories.errors import SessionError, SourceError, TrajectorySettingsError
from hermes.trajectories.plan import ExportFormat, ExportSettings, SessionPlan
from hermes.trajectories.source import ExportSession
from hermes.trajectories.tokenizer import Tokenizer


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
        seen = SeenSamples(verdicts)
        calls = partial(read_calls, policies=settings.policies, tokenizer=tokenizer, verdicts=verdicts)
        with open_draft(out, form, settings) as (draft, folder):
            broken = _write_sessions(sessions, draft, ExportPass(calls, seen, on_session))
            if not seen.changed_verdicts:
                draft.ledger.duplicates = seen.duplicates
                manifest = publish(draft, folder, out, settings, tokenizer.name if tokenizer is not None else None)
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
    for session in sessions:
        if isinstance(session, SourceError):
            broken.append(session)
            continue
        try:
            calls = export_pass.calls(session)
        except SessionError as error:
            broken.append(SourceError(session.name, str(error)))
            continue
        statuses = [export_pass.seen.add(occurrence_of(call)) for call in calls]
        export_pass.on_session(draft.write(session, list(calls_to_count(calls, statuses))))
    return broken
