"""Check an export against the graphs it was made from: every value of every file and of the ledger is computed again and compared.

The samples of each graph are read and graded (source_samples), laid out as rows (token_layout, expected_text) and written as values
(expected_tokens, expected_verifiers, expected_sharegpt, expected_llamafactory, expected_openai, expected_atif). This module goes through
the graphs in their order, and compares those values with the export's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hermes.graph import Response
from hermes.trajectories.verify.expected import Expectation, ExpectedSession
from hermes.trajectories.verify.expected_formats import TEXT_FORMATS, expectation_of
from hermes.trajectories.verify.exported_rows import ExportedConversation, ExportedRow, ExportedTree, UnreadableFile
from hermes.trajectories.verify.exported_values import read_values
from hermes.trajectories.verify.ledger import FILE_NAME, SIGNATURE_FILE, LedgerIndex, LedgerLine
from hermes.trajectories.verify.report import ProblemList
from hermes.trajectories.verify.same_value import find_difference
from hermes.trajectories.verify.source_graphs import SourceGraph, read_graphs
from hermes.trajectories.verify.source_root import SourceRoots
from hermes.trajectories.verify.source_samples import (
    NotExportable,
    SourcePolicies,
    SourceSample,
    SourceVerdict,
    grade,
    grade_by_line,
    merge_verdicts,
    own_verdicts,
    read_samples,
    take_name,
)
from hermes.trajectories.verify.tree_reader import path_to

Exported = ExportedRow | ExportedTree | ExportedConversation


@dataclass(slots=True)
class SourceFindings:
    """What a comparison with the source could not prove, besides the problems that it found."""

    tokenised: int = 0
    """How many samples have token ids that the export made itself."""
    has_names: bool = True
    """Whether the source tells the names of sessions."""


@dataclass(frozen=True, slots=True)
class ExportFolder:
    """An export: its folder, its ledger, and what reads its rows."""

    path: Path
    ledger: LedgerIndex
    read_rows: Callable[[Path], Iterator[Exported]]


def check_source(
    paths: Sequence[Path], export: ExportFolder, problems: ProblemList, on_graph: Callable[[int], None] = lambda _: None
) -> SourceFindings:
    """Compare an export with its graphs, given in the order in which they were exported; note every difference."""
    verdicts: dict[str, SourceVerdict] = {}
    while True:
        found = ProblemList()
        check = _SourceCheck(export.path, export.ledger, _RowTokens(export.read_rows(export.path)), verdicts, found)
        for number, source in enumerate(read_graphs(paths, found), start=1):
            on_graph(number)
            check.enter(source)
        if not check.changed:
            check.close()
            problems.take(found)
            return check.findings
        verdicts |= check.changed  # a later graph says more about a sample that was compared already


@dataclass(slots=True)
class _SourceCheck:
    folder: Path
    ledger: LedgerIndex
    rows: _RowTokens
    verdicts: Mapping[str, SourceVerdict]
    """What all graphs together say about samples that several of them have."""
    problems: ProblemList
    changed: dict[str, SourceVerdict] = field(default_factory=dict)
    findings: SourceFindings = field(default_factory=SourceFindings)
    expectation: Expectation = field(init=False)
    policies: SourcePolicies = field(init=False)
    tokenizer: str | None = field(init=False)
    by_sample: dict[str, LedgerLine] = field(default_factory=dict)
    seen: dict[str, tuple[str, SourceVerdict]] = field(default_factory=dict)
    """By sample id: the response that has it, and what is known about it so far."""
    clashes: set[str] = field(default_factory=set)
    """Responses whose sample id belongs to another response."""
    lines: set[int] = field(default_factory=set)
    """The lines of the ledger that were compared."""
    last_line: int = 0
    names: dict[str, str] = field(default_factory=dict)
    """By session of the ledger, the source's own name of its graph."""
    files: dict[str, _FileValues] = field(default_factory=dict)
    roots: SourceRoots = field(default_factory=SourceRoots)
    sessions: int = 0
    duplicates: int = 0
    nonzero_advantages: int = 0
    trained: dict[str, dict[str, int]] = field(
        default_factory=lambda: {name: {"rows": 0, "samples": 0, "tokens": 0} for name in ("on_policy", "off_policy")}
    )
    """What is trained on and off policy."""

    def __post_init__(self) -> None:
        settings = self.ledger.manifest["settings"]
        self.expectation = expectation_of(settings)
        self.policies = SourcePolicies(**settings["policies"])
        self.tokenizer = settings["tokenizer"]
        for line in self.ledger.samples:
            self.by_sample.setdefault(line.sample, line)

    def enter(self, source: SourceGraph) -> None:
        """Compare what the export has of one graph."""
        own = list(own_verdicts(source.graph, self.policies))
        verdicts = [(response, self.verdicts.get(response.id, verdict)) for response, verdict in own]
        line = self._line_of([response for response, _ in own])
        session = line.session if line is not None else source.name
        try:
            samples = read_samples(session, verdicts, self.policies, self.tokenizer)
        except NotExportable as error:
            self.problems.add(f"cannot be exported, so it is not in the export: {error}", file=source.name)
            return
        if line is not None and self.names.setdefault(session, source.name) != source.name:
            self.problems.add(f"gives the session {session!r} to two graphs", file=FILE_NAME, line=line.line)
        counted = [sample for sample in samples if self._count(sample)]
        self.sessions += 1
        self.roots.add(source.graph)
        expected = self.expectation.add(session, counted, source.graph)
        for file, value in expected.values:
            self._values_of(file).compare(value, self.problems)
        for sample in counted:
            self._compare_line(sample, expected)
        self._count_trained(expected)
        self.rows.forget(self.expectation.rows)

    def close(self) -> None:
        """Complain about what the export has more than the source, and about counts that only the source gives."""
        for name, value in self.expectation.fixed.items():
            self._values_of(name).compare(value, self.problems)
        wanted = {*self.expectation.files(), *self.expectation.fixed}
        for name in sorted(wanted):
            self._values_of(name).close(self.problems)
        for path in sorted(self.folder.iterdir()):
            if path.name not in wanted and path.name not in (FILE_NAME, SIGNATURE_FILE):
                self.problems.add("the source gives no such file", file=path.name)
        for line in self.ledger.samples:
            if line.line not in self.lines:
                self.problems.add("in the ledger, but not in the source", file=FILE_NAME, line=line.line, sample=line.sample)
        manifest = self.ledger.manifest
        counts: dict[str, Any] = {"rows": self.expectation.rows, "sessions": self.sessions, "duplicates": self.duplicates}
        counts |= {"nonzero_advantages": self.nonzero_advantages, "trained": self.trained}
        for name, counted in counts.items():
            if manifest[name] != counted:
                self.problems.add(f"the manifest says {name} is {manifest[name]}, the source gives {counted}", file=FILE_NAME)
        self.roots.check(manifest, self.problems)
        self._compare_names()

    def _count_trained(self, expected: ExpectedSession) -> None:
        """Count rows, samples and tokens on and off policy: a row is on policy if everything trained in it is."""
        rows: dict[int, bool] = {}
        for sample, where in expected.placed.items():
            rows[where["row"]] = rows.get(where["row"], True) and sample.on_policy and where["row"] not in expected.off_policy
        for is_on_policy in rows.values():
            self.trained["on_policy" if is_on_policy else "off_policy"]["rows"] += 1
        for sample, where in expected.placed.items():
            count = self.trained["on_policy" if rows[where["row"]] else "off_policy"]
            count["samples"] += 1
            count["tokens"] += sample.sampled if self._is_text else sample.trained
            self.nonzero_advantages += (sample.best_reward or 0.0) != 0.0

    def _line_of(self, responses: Sequence[Response]) -> LedgerLine | None:
        """Return a line of the ledger about a graph, which says how the session is called: the source does not always tell."""
        new = (one for one in responses if self.seen.get(one.sample_id, ("",))[0] != one.id and one.id not in self.clashes)
        lines = (self.ledger.by_response.get(one.id) or self.by_sample.get(one.sample_id) for one in new)
        return next((line for line in lines if line is not None), None)

    def _compare_names(self) -> None:
        """Complain about sessions under another name, if the files of the source have the names that were exported."""
        self.findings.has_names = bool(self.names.keys() & set(self.names.values())) or not self.names
        if self.findings.has_names:
            for stated, own in self.names.items():
                if stated != own:
                    self.problems.add(f"the session {stated!r} is {own!r} in the source", file=FILE_NAME)

    def _count(self, sample: SourceSample) -> bool:
        """Grade a sample and return True if it counts here; return False if an earlier graph has it."""
        first = self.seen.get(sample.sample_id)
        verdict = SourceVerdict(sample.refused, sample.notes)
        if first is None:
            self.seen[sample.sample_id] = (sample.response_id, verdict)
            self._grade(sample)
            return True
        if first[0] != sample.response_id and sample.response_id not in self.clashes:
            self.clashes.add(sample.response_id)
            self._grade(sample)
            take_name(sample)
            return True
        self.duplicates += 1
        if first[0] == sample.response_id:
            merged = merge_verdicts(first[1], verdict)
            self.seen[sample.sample_id] = (sample.response_id, merged)
            if merged not in (first[1], self.verdicts.get(sample.response_id)):
                self.changed[sample.response_id] = merged
        return False

    def _grade(self, sample: SourceSample) -> None:
        if not sample.is_tokenised:
            grade(sample)
            return
        self.findings.tokenised += 1
        line = self.ledger.by_response.get(sample.response_id)
        if line is None:
            sample.refuse("no token ids")
            return
        tokens = self.rows.tokens_of(line)
        if tokens is not None:
            grade(sample, tokens)
            return
        grade_by_line(sample, line)
        if sample.trained and not self._is_text:
            sample.refuse("empty completion")

    @property
    def _is_text(self) -> bool:
        return self.ledger.format in TEXT_FORMATS

    def _values_of(self, file: str) -> _FileValues:
        if file not in self.files:
            self.files[file] = _FileValues(file, read_values(self.folder / file, self.expectation.schemas))
        return self.files[file]

    def _compare_line(self, sample: SourceSample, expected: ExpectedSession) -> None:
        """Compare the ledger's line of a sample."""
        line = self.ledger.by_response.get(sample.response_id) or self.by_sample.get(sample.sample_id)
        if line is None or line.line in self.lines:
            self.problems.add("in the source, but not in the ledger", file=FILE_NAME, sample=sample.sample_id)
            return
        self.lines.add(line.line)
        if line.line < self.last_line:
            self.problems.add("is not where the order of the source puts it", file=FILE_NAME, line=line.line, sample=line.sample)
        self.last_line = max(self.last_line, line.line)
        fault = find_difference(_stated_line(line), self._expected_line(sample, expected), shows_texts=True)
        if fault is not None:
            self.problems.add(fault, file=FILE_NAME, line=line.line, sample=line.sample)

    def _expected_line(self, sample: SourceSample, expected: ExpectedSession) -> dict[str, Any]:
        where = expected.placed.get(sample)
        excluded = [] if where is not None and self._is_text else list(sample.excluded)
        if where is None and (sample.trained or not excluded):
            excluded.insert(0, (0, sample.trained, self.expectation.untrained))
        prompt, completion = _fingerprint(sample.prompt), _fingerprint(sample.completion)
        if sample.line is not None:  # tokens that only the export knows, and that no row holds
            prompt, completion = _as_object(sample.line.prompt), _as_object(sample.line.completion)
        return {
            "sample": sample.sample_id,
            "response": sample.response_id,
            "session": sample.session,
            "rollout": sample.rollout,
            "tokenizer": sample.tokenizer,
            "sampled": sample.sampled,
            "prompt": prompt,
            "completion": completion,
            "trained": [where] if where is not None else [],
            "excluded": [{"start": start, "end": end, "reason": reason} for start, end, reason in excluded],
        }


def _stated_line(line: LedgerLine) -> dict[str, Any]:
    known: dict[str, Any] = {key: getattr(line, key) for key in ("sample", "response", "session", "rollout", "tokenizer", "sampled")}
    return {
        **known,
        "prompt": _as_object(line.prompt),
        "completion": _as_object(line.completion),
        "trained": [line.where] if line.where is not None else [],
        "excluded": [{"start": start, "end": end, "reason": reason} for start, end, reason in line.excluded],
    }


def _as_object(fingerprint: Any) -> dict[str, Any]:
    return {"length": fingerprint.length, "sha256": fingerprint.sha256}


def _fingerprint(tokens: bytes) -> dict[str, Any]:
    return {"length": len(tokens) // 4, "sha256": hashlib.sha256(tokens).hexdigest()}


@dataclass(slots=True)
class _FileValues:
    """The values of one file, compared one after the other."""

    name: str
    values: Iterator[Any]
    row: int = 0
    is_broken: bool = False

    def compare(self, expected: Any, problems: ProblemList) -> None:
        """Compare the next value."""
        if self.is_broken:
            return
        try:
            actual = next(self.values)
        except StopIteration:
            self.is_broken = True
            problems.add("ends here, though the source gives more", file=self.name, row=self.row)
            return
        except UnreadableFile as error:
            self.is_broken = True
            problems.add(error.reason, file=error.file)
            return
        fault = find_difference(actual, expected)
        if fault is not None:
            problems.add(fault, file=self.name, row=self.row)
        self.row += 1

    def close(self, problems: ProblemList) -> None:
        """Complain if there is more than the source gives."""
        try:
            if not self.is_broken and next(self.values, None) is not None:
                problems.add("goes on, though the source gives no more", file=self.name, row=self.row)
        except UnreadableFile as error:
            problems.add(error.reason, file=error.file)


class _RowTokens:
    """The tokens of samples that the export tokenised itself, from its rows. Holds the rows of one session."""

    def __init__(self, rows: Iterator[Exported]) -> None:
        self._rows = rows
        self._held: dict[int, Exported] = {}
        self._read = 0

    def tokens_of(self, line: LedgerLine) -> tuple[bytes, bytes] | None:
        """Return prompt and completion of a sample; None if they are in no row."""
        row = (line.where or {}).get("row")
        while type(row) is int and self._read <= row:
            try:
                exported = next(self._rows, None)
            except UnreadableFile:
                return None
            if exported is None:
                return None
            self._held[self._read] = exported
            self._read += 1
        held, where = self._held.get(row) if type(row) is int else None, line.where or {}
        if isinstance(held, ExportedTree):
            places = held.entries.get(line.sample, np.empty(0, np.int32))
            if len(places):
                return _tokens(path_to(held, int(held.parents[places[0]]))), _tokens(held.tokens[places])
        if isinstance(held, ExportedRow):
            start, end = where.get("start"), where.get("end")
            if type(start) is int and type(end) is int and 0 <= start < end <= len(held.tokens):
                return _tokens(held.tokens[:start]), _tokens(held.tokens[start:end])
        return None

    def forget(self, row: int) -> None:
        """Drop the rows before this one."""
        self._held = {at: exported for at, exported in self._held.items() if at >= row}


def _tokens(values: Any) -> bytes:
    return np.ascontiguousarray(values, "<i4").tobytes()
