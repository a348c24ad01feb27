"""Check ledger and rows against the graphs they were made from: every response is accounted for, and nothing else is.

This check notices a row that was removed together with its ledger line, a changed logprob, and a reason that is not true."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hermes.graph import CallRecord, CodecError, MessageGraph, Response
from hermes.trajectories.verify.exported_rows import replace_surrogates
from hermes.trajectories.verify.ledger import FILE_NAME, NAME_TAKEN, LedgerIndex, LedgerLine, TokenFingerprint
from hermes.trajectories.verify.report import ProblemList
from hermes.trajectories.verify.rows import RowEvidence, SampleEvidence, conversation_digest, digest

FORMAT_REASONS = {
    "sharegpt": "a sampled tool result shares its turn with others in this format",
    "openai": "only an assistant's messages have a weight in this format",
    "atif": "only an agent's steps are trained in this format",
}
"""The reason with which a text format leaves out a response that other formats train; token formats write every response with tokens."""


def check_source(
    paths: Sequence[Path],
    ledger: LedgerIndex,
    evidence: RowEvidence,
    problems: ProblemList,
    on_graph: Callable[[int], None] = lambda _: None,
) -> None:
    """Compare an export with its graphs; a file that cannot be read is a problem too."""
    check = _SourceCheck(ledger, evidence, problems)
    graphs = 0
    for graph in _graphs(paths, problems):
        graphs += 1
        on_graph(graphs)
        for problem in graph.verify().problems:
            problems.add(f"the source itself was altered: {problem}", file=f"graph {graphs}")
        for response in graph.responses():
            check.enter(response)
    check.close(graphs)


def _graphs(paths: Sequence[Path], problems: ProblemList) -> Iterator[MessageGraph]:
    for path in paths:
        inside = sorted(file for file in path.rglob("*") if file.suffix in (".json", ".jsonl") and file.is_file())
        for file in inside if path.is_dir() else [path]:
            try:
                for number, text in _documents(file):
                    try:
                        yield MessageGraph.from_json(text)
                    except CodecError as error:
                        problems.add(f"cannot be read, so its samples cannot be checked ({error})", file=str(file), line=number)
            except OSError as error:
                problems.add(f"cannot be read, so its samples cannot be checked ({error})", file=str(file))


def _documents(file: Path) -> Iterator[tuple[int | None, bytes]]:
    """Yield the graphs of a file as text: one, or in a JSONL file one for each line, with the line's number."""
    if file.suffix != ".jsonl":
        yield None, file.read_bytes()
        return
    with file.open("rb") as lines:
        yield from ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


SCRIPTED_MODEL = "scripted"
"""The `call.model` of an answer that a script gave."""
SCRIPTED_ANSWER = "scripted answer"
SCRIPTED_REASONS = frozenset({SCRIPTED_ANSWER, "redacted", "no consent", NAME_TAKEN})
"""The reasons allowed for a script's answer, besides its annotated `exclude`; any other reason would hide that a script gave it."""

MAX_LOGPROB = 1e-3
"""Rounding lifts the logprob of a token with probability 1 a little above 0; a value above this is not a logprob, and is not trained."""


@dataclass(slots=True)
class _SourceCheck:
    ledger: LedgerIndex
    evidence: RowEvidence
    problems: ProblemList
    by_sample: dict[str, list[LedgerLine]] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    """Numbers of the ledger's lines whose response was found in the source."""
    others: dict[int, str] = field(default_factory=dict)
    """By line: the id of a response that has the line's tokens and sample id, but another response id."""
    derived: dict[tuple[str, int, int | None], bool] = field(default_factory=dict)
    """By row, or by group of rows: whether the context of some sample in it was tokenised, not recorded."""
    unproved: dict[int, tuple[LedgerLine, set[str]]] = field(default_factory=dict)
    """By line: reasons that no copy of the sample in the source has confirmed so far."""
    responses: int = 0

    def __post_init__(self) -> None:
        for sample in self.ledger.samples:
            self.by_sample.setdefault(sample.sample, []).append(sample)

    def enter(self, response: Response) -> None:
        """Find the ledger's line of a response and compare the two."""
        self.responses += 1
        lines = self.by_sample.get(response.sample_id)
        if not lines:
            self.problems.add("in the source, but not in the ledger", file=FILE_NAME, sample=response.sample_id)
            return
        record = response.call or CallRecord()
        prompt, completion = _fingerprint(record.prompt_token_ids), _fingerprint(record.token_ids)
        same = [line for line in lines if (line.prompt, line.completion) == (prompt, completion) or _is_erased_copy(line, response)]
        if same:
            matching = [line for line in same if line.response == response.id and line.line not in self.seen]
            if matching:
                self._compare(matching[0], response, record)
            else:
                self._again(same, response, record)
            return
        line = next((line for line in lines if line.response == response.id), lines[0])
        if record.token_ids is None and self._is_tokenised(line):
            self._compare(line, response, record)
        elif line.line not in self.seen:
            self.seen.add(line.line)
            part = "prompt" if line.prompt != prompt else "completion"
            self._complain(line, f"its {part} in the ledger is not the one in the source")
        else:
            self._complain(line, "another response with this sample id is in the source and not in the ledger")

    def _again(self, lines: Sequence[LedgerLine], response: Response, record: CallRecord) -> None:
        """Check a copy of a sample that was seen before, or a response with the tokens of a line that another response may still match."""
        self.others |= {line.line: response.id for line in lines if line.line not in self.seen}
        self._check_copy(lines, response)
        for line in lines:
            found = self.evidence.found.get(line.line)
            if line.response == response.id or found is None or found.logprobs is None:
                continue
            if digest(_array(record.logprobs, np.float32)[: line.trained]) != found.logprobs:
                self._complain(line, "another response with this sample id and other logprobs is in the source and not in the ledger")

    def _check_copy(self, lines: Sequence[LedgerLine], response: Response) -> None:
        """Complain if a copy forbids training the sample; drop the unproved reasons that the copy confirms."""
        notes, record = _notes(response), response.call or CallRecord()
        forbidden = self._forbidden(response, notes)
        for line in (line for line in lines if line.response == response.id):
            if forbidden and line.where is not None:
                self._complain(line, f"trained, though a copy of it in the source says: {forbidden}")
            _, reasons = self.unproved.get(line.line, (line, set[str]()))
            reasons -= {reason for reason in reasons if self._is_true(reason, line, response, record, notes)}

    def close(self, graphs: int) -> None:
        """Complain about lines without a response in the source, unconfirmed reasons, and counts that only the source can check."""
        for sample in self.ledger.samples:
            if sample.line not in self.seen:
                other = self.others.get(sample.line)
                what = f"its response is {sample.response[:12]} in the ledger and {other[:12]} in the source" if other else ""
                self._complain(sample, what or "in the ledger, but not in the source")
        for line, reasons in self.unproved.values():
            for reason in sorted(reasons):
                self._complain(line, f"excluded because of {reason!r}, which the source does not confirm")
        manifest = self.ledger.manifest
        is_whole = len(self.seen) == len(self.ledger.samples)  # else the missing lines are reported above, and counts add nothing
        for name, counted in (("sessions", graphs), ("duplicates", self.responses - len(self.ledger.samples))):
            if is_whole and manifest[name] != counted:
                self.problems.add(f"the manifest says {name} is {manifest[name]}, the source gives {counted}", file=FILE_NAME)
        for found in self.evidence.found.values():
            if found.on_policy is False and self.derived.get(_place(found)) is False:
                self.derived[_place(found)] = True  # report each row once
                self.problems.add("says on_policy: false, but every sample in it has its recorded context", file=found.file, row=found.row)

    def _compare(self, line: LedgerLine, response: Response, record: CallRecord) -> None:
        self.seen.add(line.line)
        is_tokenised = record.token_ids is None and self._is_tokenised(line)
        if not is_tokenised:
            if line.tokenizer != (record.tokenizer or ""):
                self._complain(line, f"tokenizer {line.tokenizer!r} in the ledger, {record.tokenizer!r} in the source")
            if line.sampled != _sampled_count(record):
                self._complain(line, f"{line.sampled} tokens sampled in the ledger, {_sampled_count(record)} in the source")
        notes = _notes(response)
        forbidden = self._forbidden(response, notes)
        if line.where is not None and forbidden:
            self._complain(line, f"trained, though the source says: {forbidden}")
        reasons = {reason for *_, reason in line.excluded if not self._is_true(reason, line, response, record, notes)}
        if reasons:
            self.unproved[line.line] = (line, reasons)
        found = self.evidence.found.get(line.line)
        if found is not None:
            self._compare_row(line, found, response, is_tokenised=is_tokenised)

    def _compare_row(self, line: LedgerLine, found: SampleEvidence, response: Response, *, is_tokenised: bool) -> None:
        record = response.call or CallRecord()

        def complain(what: str) -> None:
            self.problems.add(what, file=found.file, row=found.row, sample=line.sample)

        is_derived = is_tokenised or record.prompt_derived
        self.derived[_place(found)] = self.derived.get(_place(found), False) or is_derived
        texts = _spoken_texts(response) if found.text is not None else None
        if texts is not None and conversation_digest(texts) != found.text:
            complain("the text of this turn, or of one before it, is not the text in the source")
        if found.tokens is None:
            return
        if found.on_policy and is_derived:
            complain("says on_policy: true, but its context was not recorded")
        if is_tokenised:
            return
        tokens, scores = _array(record.token_ids, np.int32), _array(record.logprobs, np.float32)
        if line.trained != _trainable_count(record):
            complain(f"{line.trained} tokens trained, but the source has {_trainable_count(record)} with a logprob")
        if digest(tokens[: line.trained]) != found.tokens:
            complain("the tokens trained are not those of the source")
        if found.logprobs is not None and digest(scores[: line.trained]) != found.logprobs:
            complain("the logprobs are not those of the source")

    def _is_tokenised(self, line: LedgerLine) -> bool:
        """Whether the export tokenised a sample that was recorded without token ids; a row that states on_policy then states false."""
        found = self.evidence.found.get(line.line)
        if found is None or found.tokens is None:
            return found is not None
        return found.on_policy is not True and (found.are_zero or found.logprobs is None)

    def _is_true(self, reason: str, line: LedgerLine, response: Response, record: CallRecord, notes: Mapping[str, Any]) -> bool:
        """Whether the source confirms a reason, or at least does not contradict it."""
        policies = self.ledger.manifest["settings"]["policies"]
        if self._is_scripted(record) and reason not in SCRIPTED_REASONS:
            return bool(notes.get("exclude") == reason)
        returned = len(record.token_ids or ())
        facts: dict[str, bool] = {
            "no token ids": record.token_ids is None,
            "no prompt token ids": record.prompt_token_ids is None,
            "no logprobs": len(record.logprobs or ()) < returned,
            "not a logprob": _trainable_count(record) < min(returned, len(record.logprobs or ())),
            "empty prompt: nothing predicts the first token": record.prompt_token_ids is not None and not len(record.prompt_token_ids),
            "counted by the server but not returned": _sampled_count(record) > returned,
            "redacted": response.redacted,
            "no consent": notes.get("consent") is False,
            SCRIPTED_ANSWER: self._is_scripted(record),
            "prompt tokens derived, not recorded": record.prompt_derived and policies.get("derived") == "exclude",
            "superseded by an edit": policies.get("keep") == "accepted",
            "rejected compaction attempt": policies.get("keep") == "accepted",
            "retried": policies.get("retries") == "last",
            **{
                f"policy version {version or 'unknown'} not asked for": version not in (policies.get("policy_versions") or [version])
                for version in [span.version for span in record.policy_spans or ()] or [record.policy_version or ""]
            },
            "empty completion": not returned and not line.completion.length,
            NAME_TAKEN: self.by_sample[line.sample][0] is not line,
        }
        if reason in facts:
            return facts[reason]
        # Some formats leave out samples that others train, each with a reason of its own; no other reason is accepted.
        return notes.get("exclude") == reason or FORMAT_REASONS.get(self.ledger.format) == reason

    def _forbidden(self, response: Response, notes: Mapping[str, Any]) -> str | None:
        """Return why a response may not be trained; None if it may."""
        if response.redacted:
            return "redacted"
        if notes.get("consent") is False:
            return "no consent"
        if isinstance(notes.get("exclude"), str) and notes["exclude"]:
            return str(notes["exclude"])
        return SCRIPTED_ANSWER if self._is_scripted(response.call) else None

    def _is_scripted(self, record: CallRecord | None) -> bool:
        """Whether a script gave the answer, and the export's policies exclude scripted answers."""
        is_included = self.ledger.manifest["settings"]["policies"].get("scripted") == "include"
        return record is not None and record.model == SCRIPTED_MODEL and not is_included

    def _complain(self, line: LedgerLine, what: str) -> None:
        self.problems.add(what, file=FILE_NAME, line=line.line, sample=line.sample)


def _place(found: SampleEvidence) -> tuple[str, int, int | None]:
    return (found.file, found.row, None) if found.group is None else (found.file, -1, found.group)


def _spoken_texts(response: Response) -> list[tuple[str, str]] | None:
    """Return role and text of the messages up to a response, without tool results; None if one of them is not text."""
    messages = [message for message in (*response.prefix, response.message) if message["role"] not in ("tool", "function")]
    texts = [message.get("content") or "" for message in messages]
    roles = ["system" if message["role"] == "developer" else message["role"] for message in messages]
    if not all(isinstance(text, str) for text in texts):
        return None
    return [(role, replace_surrogates(text)) for role, text in zip(roles, texts, strict=True)]


def _is_erased_copy(line: LedgerLine, response: Response) -> bool:
    """Whether line and response are the same sample, and one of them lost its tokens because a copy was erased."""
    return line.response == response.id and (response.redacted or any(reason == "redacted" for *_, reason in line.excluded))


def _notes(response: Response) -> dict[str, Any]:
    notes: dict[str, Any] = {}
    for note in response.annotations:
        notes |= note
    return notes


def _trainable_count(record: CallRecord) -> int:
    """Return how many tokens, from the front, have a logprob that a trainer can use."""
    scores = _array(record.logprobs, np.float32)[: len(record.token_ids or ())]
    usable = np.isfinite(scores) & (scores <= MAX_LOGPROB)
    return len(usable) if usable.all() else int(np.argmin(usable))


def _sampled_count(record: CallRecord) -> int:
    counted = (record.usage or {}).get("completion_tokens")
    return max(len(record.token_ids or ()), counted if type(counted) is int else 0)


def _array(values: Sequence[Any] | None, kind: Any) -> Any:
    return np.asarray(array("i" if kind is np.int32 else "f", values or ()), kind)


def _fingerprint(tokens: Sequence[int] | None) -> TokenFingerprint:
    data = _array(tokens, np.int32)
    return TokenFingerprint(len(data), hashlib.sha256(data.astype("<i4").tobytes()).hexdigest())
