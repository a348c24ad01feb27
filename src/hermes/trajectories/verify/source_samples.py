"""Samples as the source gives them: each response of a graph with its tokens, its annotations, and why it may not be trained.

What several graphs say about one sample is merged here too. Knows nothing about rows or files."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hermes.graph import CallRecord, MessageGraph, Response
from hermes.trajectories.verify.ledger import NAME_TAKEN, LedgerLine

TOKEN = 4
"""Bytes of a token id."""
SCRIPTED_MODEL = "scripted"
"""The `call.model` of an answer that a script gave."""
MAX_LOGPROB = 1e-3
"""Rounding lifts the logprob of a token with probability 1 a little above 0; a value above this is not a logprob, and is not trained."""
MAX_REWARD = 3.4e38
SUPERSEDED = "superseded by an edit"
REJECTED = "rejected compaction attempt"
RETRIED = "retried"
GIVEN_UP = frozenset({SUPERSEDED, REJECTED})
"""Reasons that hold for a sample only if every graph that has it says so."""
CONTINUING_EDGES = frozenset({"alternative", "compaction", "compaction_attempt", "continuation", "redaction"})
"""Edges that do not give up the version they leave."""

Span = tuple[int, int, str]


class NotExportable(Exception):
    """The exporter refuses this graph; the message says why."""


@dataclass(frozen=True, slots=True)
class SourcePolicies:
    """The policies that the manifest states."""

    keep: str = "all"
    retries: str = "all"
    derived: str = "exclude"
    scripted: str = "exclude"
    policy_versions: Sequence[str] | None = None
    rewards: Sequence[Mapping[str, Any]] = ()
    """Rules: which annotation is the reward of a response, or of a rollout. Without rules, `reward` and `rollout_reward` are."""
    advantages: str = "reward"

    def rule(self, scope: str) -> Mapping[str, Any] | None:
        """Return what is the reward of a response or of a rollout; None if nothing is."""
        if not self.rewards:
            return {"name": "reward" if scope == "response" else "rollout_reward", "is_plain": True}
        return next((rule for rule in self.rewards if rule["scope"] == scope), None)


@dataclass(slots=True)
class SourceVerdict:
    """What is known about a sample over all graphs that have it."""

    refused: str
    notes: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class SourceSample:
    """One response, ready to be compared with an export."""

    session: str
    rollout: str
    order: int
    response: Response
    response_id: str
    record: CallRecord
    notes: Mapping[str, Any]
    refused: str
    """Why it may not be trained at all; empty if it may."""
    reward: float | None
    advantage: float | None
    rollout_reward: float | None
    tokenizer: str
    lacks_ids: bool
    """Whether the server returned no token ids: none at all, or an empty list for an answer that is not empty."""
    is_tokenised: bool
    """Whether the export made its token ids; then they are those of the export, because the source has none."""
    prompt: bytes = b""
    completion: bytes = b""
    sampled: int = 0
    trained: int = 0
    excluded: tuple[Span, ...] = ()
    logprobs: bytes = b""
    """Those of the trained tokens."""
    line: LedgerLine | None = None
    """In a text format, the ledger's line of a tokenised sample: its tokens are nowhere else."""
    tokens: bytes = field(init=False, default=b"")
    """Prompt and trained part of the completion."""

    @property
    def sample_id(self) -> str:
        return self.response.sample_id

    @property
    def start(self) -> int:
        return len(self.prompt) // TOKEN

    @property
    def end(self) -> int:
        return self.start + self.trained

    @property
    def on_policy(self) -> bool:
        return not (self.is_tokenised or self.record.prompt_derived)

    @property
    def policy(self) -> str:
        return self.record.policy_version or ""

    @property
    def policy_spans(self) -> list[tuple[str, int, int]]:
        """Policy versions over tokens of the completion."""
        if self.record.policy_spans:
            return [(version, start, end) for version, start, end in self.record.policy_spans]
        return [(self.policy, 0, self.sampled)]

    @property
    def best_reward(self) -> float | None:
        """The advantage, else the response's reward, else the rollout's."""
        return next((value for value in (self.advantage, self.reward, self.rollout_reward) if value is not None), None)

    @property
    def has_tokens(self) -> bool:
        """Whether the ids of prompt and completion are known."""
        if self.line is not None:
            return bool(self.line.prompt.length and self.line.completion.length)
        return bool(self.prompt and self.completion)

    def refuse(self, reason: str) -> None:
        """Exclude the whole sample."""
        self.trained, self.logprobs, self.excluded = 0, b"", ((0, self.sampled, reason),)
        self.tokens = self.prompt


def own_verdicts(graph: MessageGraph, policies: SourcePolicies) -> Iterator[tuple[Response, SourceVerdict]]:
    """Yield each response of a graph with what this graph alone says about it."""
    responses = list(graph.responses())
    left_out: dict[str, str] = dict(_given_up(graph)) if policies.keep == "accepted" else {}
    if policies.retries == "last":
        last: dict[str, str] = {}
        drawn = [one for one in responses if one.id not in left_out and not _is_scripted(one.call, policies)]
        last = {one.context_id: one.id for one in drawn}
        left_out |= {one.id: RETRIED for one in drawn if last[one.context_id] != one.id}
    for response in responses:
        notes = _notes(response, policies)
        refused = _refusal(response, notes, policies) or left_out.get(response.id, "")
        yield response, SourceVerdict(refused, notes)


def merge_verdicts(one: SourceVerdict, other: SourceVerdict) -> SourceVerdict:
    """Return what two graphs say together, the first of them read first: the stricter refusal, and all annotations."""
    strict = [reason for reason in (one.refused, other.refused) if reason and reason not in GIVEN_UP]
    strict = [reason for reason in strict if reason != RETRIED] or strict
    refused = strict[0] if strict else one.refused if other.refused else ""
    notes = {**one.notes, **other.notes}
    if one.notes.get("rollout") != other.notes.get("rollout"):
        for key in ("rollout", "rollout_reward"):
            notes.pop(key, None)
            if key in one.notes:
                notes[key] = one.notes[key]
    if one.notes.get("consent") is False or other.notes.get("consent") is False:
        notes["consent"] = False
    return SourceVerdict(refused, notes)


def read_samples(
    session: str, verdicts: Sequence[tuple[Response, SourceVerdict]], policies: SourcePolicies, tokenizer: str | None
) -> list[SourceSample]:
    """Return the samples of one graph, not yet graded; raise NotExportable for an annotation that the exporter refuses."""
    rewards = _rollout_rewards(session, verdicts, policies)
    groups = _group_advantages(rewards, policies.advantages)
    samples = []
    for order, (response, verdict) in enumerate(verdicts):
        record, notes = response.call or CallRecord(), verdict.notes
        lacks_ids = record.token_ids is None or (not record.token_ids and _wrote(response.message))
        is_tokenised = tokenizer is not None and not verdict.refused and lacks_ids
        advantage = _number(notes, "advantage")
        rollout = _rollout(notes, session)
        samples.append(
            SourceSample(
                session,
                rollout,
                order,
                response,
                response.id,
                record,
                notes,
                verdict.refused,
                _reward(notes, policies.rule("response")),
                groups.get(rollout) if advantage is None else advantage,
                rewards.get(rollout),
                (tokenizer if is_tokenised else record.tokenizer) or "",
                lacks_ids,
                is_tokenised,
            )
        )
    return samples


def grade(sample: SourceSample, tokenised: tuple[bytes, bytes] | None = None) -> None:
    """Fill in tokens, and which of them are trained. `tokenised` are the prompt and completion that the export made itself."""
    record = sample.record
    if tokenised is not None:
        sample.prompt, sample.completion = tokenised
        scores = np.zeros(len(sample.completion) // TOKEN, np.float32)
        has_prompt = has_completion = True
        counted = 0
    else:
        sample.prompt, sample.completion = _ids(record.prompt_token_ids), _ids(record.token_ids)
        scores = np.asarray(array("f", record.logprobs or ()), np.float32)
        has_prompt, has_completion = record.prompt_token_ids is not None, not sample.lacks_ids
        stated = (record.usage or {}).get("completion_tokens")
        counted = stated if type(stated) is int else 0
    returned = len(sample.completion) // TOKEN
    sample.sampled = max(returned, counted)
    refused = sample.refused
    if not refused:
        refused = "" if has_completion else "no token ids"
    if not refused:
        refused = "" if has_prompt else "no prompt token ids"
    if not refused and not sample.prompt:
        refused = "empty prompt: nothing predicts the first token"
    if refused:
        sample.refuse(refused)
        return
    scores = scores[:returned]
    usable = np.isfinite(scores) & (scores <= MAX_LOGPROB)
    sample.trained = len(scores) if usable.all() else int(np.argmin(usable))
    sample.logprobs = scores[: sample.trained].astype("<f4").tobytes()
    parts = (
        (sample.trained, len(scores), "not a logprob"),
        (len(scores), returned, "no logprobs"),
        (returned, sample.sampled, "counted by the server but not returned"),
    )
    sample.excluded = tuple(part for part in parts if part[0] < part[1])
    if not sample.excluded and not sample.trained:
        sample.excluded = ((0, 0, "empty completion"),)
    sample.tokens = sample.prompt + sample.completion[: sample.trained * TOKEN]


def grade_by_line(sample: SourceSample, line: LedgerLine) -> None:
    """Grade a tokenised sample whose tokens are in no row: the ledger alone knows how many there are."""
    sample.line, sample.sampled = line, line.completion.length
    if not line.prompt.length:
        sample.excluded = ((0, sample.sampled, "empty prompt: nothing predicts the first token"),)
    elif not line.completion.length:
        sample.excluded = ((0, 0, "empty completion"),)
    else:
        sample.trained = line.completion.length


def take_name(sample: SourceSample) -> None:
    """Exclude a sample whose id belongs to another sample."""
    sample.refuse(NAME_TAKEN)


def _refusal(response: Response, notes: Mapping[str, Any], policies: SourcePolicies) -> str:
    if response.redacted:
        return "redacted"
    if notes.get("consent") is False:
        return "no consent"
    if isinstance(notes.get("exclude"), str) and notes["exclude"]:
        return str(notes["exclude"])
    return _refusal_of_record(response.call or CallRecord(), policies)


def _refusal_of_record(record: CallRecord, policies: SourcePolicies) -> str:
    if _is_scripted(record, policies):
        return "scripted answer"
    if policies.policy_versions is not None:
        for version in [span.version for span in record.policy_spans or ()] or [record.policy_version or ""]:
            if version not in policies.policy_versions:
                return f"policy version {version or 'unknown'} not asked for"
    if record.prompt_derived and record.prompt_token_ids is not None and policies.derived != "include":
        return "prompt tokens derived, not recorded"
    return ""


def _is_scripted(record: CallRecord | None, policies: SourcePolicies) -> bool:
    return record is not None and record.model == SCRIPTED_MODEL and policies.scripted != "include"


def _given_up(graph: MessageGraph) -> Iterator[tuple[str, str]]:
    """Yield id and reason of each response on no version that the conversation continued from, in attached chats too."""
    kept: set[str] = set()
    waiting, seen = [graph], set[int]()
    while waiting:
        chat = waiting.pop(0)
        versions = list(chat.versions)
        lists = [versions[place] for place in _accepted_places(chat)]
        held = {tuple(node.digest for node in version[: index + 1]) for version in lists for index in version.sampled}
        for response in chat.responses():
            if response.is_own and tuple(node.digest for node in (*response.prefix, response.message)) in held:
                kept.add(response.id)
        for inner in (node.chat for version in lists for node in version):
            if inner is not None and id(inner.history) not in seen:
                seen.add(id(inner.history))
                waiting.append(inner.graph)
    attempts = {version.successor for version in graph.versions if version.kind == "compaction_attempt"}
    carried: set[str] = set()
    for version in graph.versions:
        if version.place in attempts:
            carried = carried.union(*(node.chat.response_ids for node in version if node.chat is not None))
    for response in graph.responses():
        if response.id not in kept:
            is_attempt = response.version in attempts if response.is_own else response.id in carried
            yield response.id, REJECTED if is_attempt else SUPERSEDED


def _accepted_places(graph: MessageGraph) -> list[int]:
    """Return the places of the current list and of the versions that led to it without giving anything up."""
    versions = list(graph.versions)
    places = {len(versions) - 1}
    for version in versions[-2::-1]:
        if version.kind in CONTINUING_EDGES and version.successor in places:
            places.add(version.place)
    return sorted(places)


def _notes(response: Response, policies: SourcePolicies) -> dict[str, Any]:
    """Return the annotations of a response as one. A text that is the reward counts with the number in the same annotation."""
    merged: dict[str, Any] = {}
    texts = [rule["name"] for rule in policies.rewards if rule["value"] is None]
    for note in response.annotations:
        merged |= note
        merged |= {name: note["reward"] for name in texts if isinstance(note.get(name), str) and "reward" in note}
    return merged


def _wrote(message: Mapping[str, Any]) -> bool:
    return any(message.get(name) for name in ("content", "reasoning", "reasoning_content", "tool_calls", "function_call", "refusal"))


def _rollout(notes: Mapping[str, Any], session: str) -> str:
    name = notes.get("rollout")
    return name.encode("utf-8", "backslashreplace").decode() if isinstance(name, str) and name else session


def _rollout_rewards(session: str, verdicts: Sequence[tuple[Response, SourceVerdict]], policies: SourcePolicies) -> dict[str, float]:
    """Return each rollout's reward: the last that is stated for the rollout, else the last of one of its responses."""
    found: dict[str, float] = {}
    for rule in (policies.rule("response"), policies.rule("rollout")):
        for _, verdict in verdicts:
            value = _reward(verdict.notes, rule)
            if value is not None:
                found[_rollout(verdict.notes, session)] = value
    return found


def _group_advantages(rewards: Mapping[str, float], kind: str) -> dict[str, float]:
    """Return the advantage of each rollout over the others of its session."""
    if kind == "reward" or not rewards:
        return {}
    mean = sum(rewards.values()) / len(rewards)
    over = {rollout: reward - mean for rollout, reward in rewards.items()}
    if kind == "group" or len(over) == 1:
        return over
    deviation = math.sqrt(sum(value * value for value in over.values()) / (len(over) - 1))
    return {rollout: value / (deviation + 1e-6) for rollout, value in over.items()}


def _reward(notes: Mapping[str, Any], rule: Mapping[str, Any] | None) -> float | None:
    if rule is None:
        return None
    value = notes.get(rule["name"])
    if rule.get("value") is not None:
        return None if value is None else 1.0 if value == rule["value"] else 0.0
    return float(value) if isinstance(value, bool) and not rule.get("is_plain") else _number(notes, rule["name"])


def _number(notes: Mapping[str, Any], key: str) -> float | None:
    value = notes.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not math.fabs(value) < MAX_REWARD:
        raise NotExportable(f"the annotation {key} is no number that a trainer can use")
    return float(value)


def _ids(tokens: Sequence[int] | None) -> bytes:
    return np.asarray(array("i", tokens or ()), "<i4").tobytes()
