"""Calls: sampled responses as trainers need them, token ids in exactly the context they were sampled in.

A call is (prompt ids, completion ids). Token ids are kept as the bytes of little-endian int32, so that prefixes are compared
by memcmp and nothing is copied. Each token is graded: an id that the server returned with a logprob is trained; every other
sampled token is excluded with a reason. Knows nothing about rows or files."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from hermes.graph import CallRecord, MessageGraph, Overlay, Response, Version
from hermes.graph.call import SCRIPTED
from hermes.graph.message import REASONING
from hermes.graph.node import Node
from hermes.graph.stored_graph import responses_of
from hermes.graph.token_arrays import are_negative
from hermes.trajectories.rewards import (
    AdvantageKind,
    RewardRule,
    check_rules,
    group_advantages,
    merge_notes,
    number,
    response_reward,
    stated_rollout_reward,
)
from hermes.trajectories.source import ExportSession
from hermes.trajectories.tokenizer import Tokenizer

TOKEN_BYTES = 4
"""Bytes of a token id, and of a logprob."""

NO_IDS = "no token ids"
NO_PROMPT_IDS = "no prompt token ids"
NO_LOGPROBS = "no logprobs"
INVALID_LOGPROB = "not a logprob"
MAX_LOGPROB = 1e-3
"""Rounding lifts the logprob of a token with probability 1 a little above 0; a value above this is not a logprob."""
NOT_RETURNED = "counted by the server but not returned"
EMPTY_PROMPT = "empty prompt: nothing predicts the first token"
REDACTED = "redacted"
NO_CONSENT = "no consent"
SCRIPTED_ANSWER = "scripted answer"
"""A script gave the answer, not a model (`call.model` says so), so it is not training data."""
DERIVED = "prompt tokens derived, not recorded"
SUPERSEDED = "superseded by an edit"
REJECTED = "rejected compaction attempt"
RETRIED = "retried"

ACCEPTED_EDGES = frozenset({"alternative", "compaction", "compaction_attempt", "continuation", "redaction"})
"""Edges that give nothing up: the conversation continued in a shorter form, or several samples were drawn in one context."""
EMPTY_COMPLETION = "empty completion"
NO_CALL = CallRecord()


@dataclass(frozen=True, slots=True)
class SamplePolicies:
    """Which samples are trained. Every sample that is left out is in the ledger with its reason."""

    keep: Literal["all", "accepted"] = "all"
    """`accepted` leaves out abandoned responses: those on versions that an edit replaced, and rejected compaction attempts."""
    retries: Literal["all", "last"] = "all"
    """`last` trains only the last of several samples drawn in the same context."""
    derived: Literal["exclude", "include"] = "exclude"
    """`include` trains calls whose prompt ids Hermes tokenised itself; their rows say `on_policy: false`."""
    policy_versions: frozenset[str] | None = None
    """Train only what these policy versions sampled; None trains all."""
    scripted: Literal["exclude", "include"] = "exclude"
    """`include` trains a script's answers too, to test programs that read exports."""
    rewards: tuple[RewardRule, ...] = ()
    """The annotations that are rewards, at most one for each scope; without any, `reward` and `rollout_reward` are."""
    advantages: AdvantageKind = "reward"

    def __post_init__(self) -> None:
        check_rules(self.rewards)


@dataclass(frozen=True, slots=True)
class SampleVerdict:
    """The verdict on a sample, merged over all its copies: why it is refused (empty if it is not), and its annotations."""

    refused: str
    notes: Mapping[str, Any]


class ExcludedSpan(NamedTuple):
    """Completion tokens [start, end) that are not trained, and why."""

    start: int
    end: int
    reason: str


@dataclass(slots=True, eq=False)  # never changed; `frozen` would make its constructor three times as slow, which is felt in small sessions
class SampledCall:
    """One sample as tokens. Equal only to itself: two samples with equal tokens are two samples."""

    session: str
    rollout: str
    order: int
    """The place among the session's samples."""
    sample_id: str
    response_id: str
    response: Response = field(repr=False)
    message: Node = field(repr=False)
    """The sampled message."""
    overlay: Overlay = field(repr=False)
    """What was sent beyond the list."""
    tokenizer: str = ""
    whole: bytes = field(default=b"", repr=False)
    """Prompt and completion, all ids that the server returned, in one bytes object that rows and tries use without a copy."""
    start: int = 0
    """Where the completion starts in `whole`, in tokens."""
    logprobs: bytes = field(default=b"", repr=False)
    sampled: int = 0
    """How many tokens were sampled: those returned, or more if the server counted more."""
    trained: int = 0
    """How many of them, from the front, are trained."""
    excluded: tuple[ExcludedSpan, ...] = ()
    on_policy: bool = True
    policy: str = ""
    """The policy version; see `policy_spans` if the weights changed during the response."""
    reward: float | None = None
    advantage: float | None = None
    rollout_reward: float | None = None
    refused: str = ""
    """Why an annotation, the record or a policy forbids training the sample; empty if none does. Token grades do not count here."""
    notes: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The sample's annotations."""

    @property
    def prompt(self) -> bytes:
        return self.whole[: self.start * TOKEN_BYTES]

    @property
    def completion(self) -> bytes:
        """All ids that the server returned."""
        return self.whole[self.start * TOKEN_BYTES :]

    @property
    def end(self) -> int:
        """Where the trained part of the completion ends in prompt + completion, in tokens."""
        return self.start + self.trained

    @property
    def tokens(self) -> bytes:
        """Prompt and trained part of the completion: what a row must hold."""
        return self.whole[: self.end * TOKEN_BYTES]  # usually all of it, and then bytes are not copied

    @property
    def effective_advantage(self) -> float:
        """The annotated or computed advantage, else the response's own reward, else the rollout's, else 0."""
        if self.advantage is not None:
            return self.advantage
        if self.reward is not None:
            return self.reward
        return 0.0 if self.rollout_reward is None else self.rollout_reward

    @property
    def policy_spans(self) -> list[tuple[str, int, int]]:
        """Policy versions over completion tokens."""
        call = self.response.call
        if call is not None and call.policy_spans:
            return [(span.version, span.start, span.end) for span in call.policy_spans]
        return [(self.policy, 0, self.sampled)]


def are_in_line(calls: Sequence[SampledCall]) -> bool:
    """Whether each call continues the one before it, and was sampled after all that is trained of that.

    The usual case: their tokens are one sequence, and no token is trained twice."""
    end, tokens = 0, b""
    for call in calls:
        longer = call.tokens
        if call.start < end or not longer.startswith(tokens):
            return False
        end, tokens = call.end, longer
    return True


def read_calls(
    session: ExportSession,
    policies: SamplePolicies,
    tokenizer: Tokenizer | None = None,
    verdicts: Mapping[str, SampleVerdict] = MappingProxyType({}),
) -> list[SampledCall]:
    """Return every sample of a session, of every version and every attached chat, each once, in the order of sampling.

    With a tokenizer, calls that were recorded without token ids are tokenised and marked as off-policy. `verdicts`, by
    response id, are the merged verdicts on samples that have several copies."""
    found = responses_of(session.graph)
    read = [parts for _, parts in found]
    names = [parts.id for parts in read]
    refused = _refused_by_policies(session, [response for response, _ in found], policies)
    rules = policies.rewards
    noted = [
        verdicts[parts.id].notes if parts.id in verdicts else merge_notes(parts.annotations, rules) if parts.annotations else {}
        for parts in read
    ]
    rewards = _rollout_rewards(names, noted, session.name, rules) if any(noted) else {}
    advantages = group_advantages(rewards, policies.advantages) if rewards else {}
    calls = []
    for order, ((response, parts), notes) in enumerate(zip(found, noted, strict=True)):
        name = parts.id
        rollout, reward, advantage = session.name, None, None
        if notes:
            rollout = _rollout_name(notes, session.name)
            reward, advantage = response_reward(notes, rules, name), number(notes, "advantage", name)
        record = parts.call or NO_CALL
        if name in verdicts:
            reason = verdicts[name].refused or None
        else:
            reason = _refusal_in_notes(notes, is_redacted=parts.redacted) or _refusal_in_record(record, policies) or refused.get(name)
        if not record.token_ids and record.token_ids is not None and has_text(parts.message):
            record = replace(record, token_ids=None)  # the server returned the text and an empty list of ids: they are not known
        if tokenizer is not None and reason is None and record.token_ids is None:
            record = _tokenise_record(record, response, tokenizer)
        whole = b"".join([_buffer(values) for values in (record.prompt_token_ids, record.token_ids) if values])
        grades = _grade_tokens(record, reason)
        calls.append(
            SampledCall(
                session=session.name,
                rollout=rollout,
                order=order,
                sample_id=parts.sample_id,
                response_id=name,
                response=response,
                message=parts.message,
                overlay=parts.overlay,
                tokenizer=record.tokenizer or "",
                whole=whole,
                start=len(record.prompt_token_ids or ()),
                logprobs=grades.logprobs,
                sampled=grades.sampled,
                trained=grades.trained,
                excluded=grades.excluded,
                on_policy=not record.prompt_derived,
                policy=record.policy_version or "",
                reward=reward,
                advantage=advantages.get(rollout) if advantage is None else advantage,
                rollout_reward=rewards.get(rollout),
                refused=reason or "",
                notes=notes,
            )
        )
    return calls


def has_text(message: Mapping[str, Any]) -> bool:
    """Whether a model wrote anything in a message: text, reasoning, a tool call or a refusal."""
    return any(message.get(name) for name in ("content", *REASONING, "tool_calls", "function_call", "refusal"))


def _tokenise_record(record: CallRecord, response: Response, tokenizer: Tokenizer) -> CallRecord:
    """Return the record with the tokenizer's ids, marked as derived. There are no logprobs, so they are all 0."""
    prompt, completion = tokenizer.encode(response)
    return replace(
        record,
        prompt_token_ids=prompt,
        prompt_derived=True,
        token_ids=completion,
        logprobs=[0.0] * len(completion),
        usage=None,
        tokenizer=tokenizer.name,
    )


class TokenGrades(NamedTuple):
    """What becomes of a call's tokens."""

    logprobs: bytes
    sampled: int
    trained: int
    excluded: tuple[ExcludedSpan, ...]


def _grade_tokens(record: CallRecord, refused: str | None) -> TokenGrades:
    """Grade the tokens: those that the server returned with a logprob are trained, the others are excluded with a reason."""
    returned = len(record.token_ids or ())
    sampled = returned if record.usage is None else max(returned, _counted_by_server(record))
    logprobs = _buffer(record.logprobs or ()).tobytes()[: returned * TOKEN_BYTES]
    if refused is None and record.token_ids is None:
        refused = NO_IDS
    if refused is None and record.prompt_token_ids is None:
        refused = NO_PROMPT_IDS
    if refused is None and not record.prompt_token_ids:
        refused = EMPTY_PROMPT
    if refused is not None:
        return TokenGrades(logprobs, sampled, 0, (ExcludedSpan(0, sampled, refused),))
    scored = len(logprobs) // TOKEN_BYTES
    trained = scored if _are_negative(record.logprobs) else _usable_count((record.logprobs or ())[:scored])
    if trained == sampled:
        return TokenGrades(logprobs, sampled, trained, () if trained else (ExcludedSpan(0, 0, EMPTY_COMPLETION),))
    parts = (
        ExcludedSpan(trained, scored, INVALID_LOGPROB),
        ExcludedSpan(scored, returned, NO_LOGPROBS),
        ExcludedSpan(returned, sampled, NOT_RETURNED),
    )
    return TokenGrades(logprobs, sampled, trained, tuple(part for part in parts if part.start < part.end))


def _counted_by_server(record: CallRecord) -> int:
    counted = record.usage.get("completion_tokens") if record.usage is not None else 0
    return counted if isinstance(counted, int) and not isinstance(counted, bool) else 0


def _are_negative(logprobs: Sequence[float] | None) -> bool:
    return isinstance(logprobs, array) and are_negative(logprobs)


def _usable_count(logprobs: Sequence[float]) -> int:
    """Return how many values come before the first that a trainer cannot use: an infinite one, or one that is not a logprob."""
    if not logprobs or (max(logprobs) <= MAX_LOGPROB and math.isfinite(min(logprobs))):
        return len(logprobs)
    return next(at for at, value in enumerate(logprobs) if not (value <= MAX_LOGPROB and math.isfinite(value)))


def _buffer(values: Sequence[Any]) -> Any:
    """Return values as little-endian memory, 4 bytes each; an array of this form is not copied."""
    compact = values if isinstance(values, array) else array("i", values)
    if sys.byteorder == "big":
        compact = compact[:]
        compact.byteswap()
    return compact


def _refusal_in_notes(notes: Mapping[str, Any], *, is_redacted: bool) -> str | None:
    if is_redacted:
        return REDACTED
    if notes.get("consent") is False:
        return NO_CONSENT
    if isinstance(notes.get("exclude"), str) and notes["exclude"]:
        return str(notes["exclude"])
    return None


def _refusal_in_record(record: CallRecord, policies: SamplePolicies) -> str | None:
    if _is_scripted(record, policies):
        return SCRIPTED_ANSWER
    if policies.policy_versions is not None:
        for version in [span.version for span in record.policy_spans or ()] or [record.policy_version or ""]:
            if version not in policies.policy_versions:
                return f"policy version {version or 'unknown'} not asked for"
    if record.prompt_derived and record.prompt_token_ids is not None and policies.derived == "exclude":
        return DERIVED
    return None


def _refused_by_policies(session: ExportSession, responses: Sequence[Response], policies: SamplePolicies) -> dict[str, str]:
    """Return the reasons for responses that the policies leave out, by response id."""
    refused: dict[str, str] = {}
    if policies.keep == "accepted":
        refused |= dict(_abandoned_responses(session))
    if policies.retries == "last":
        drawn = [response for response in responses if response.id not in refused and not _is_scripted(response.call, policies)]
        last = {response.context_id: response.id for response in drawn}
        refused |= {response.id: RETRIED for response in drawn if last[response.context_id] != response.id}
    return refused


def _is_scripted(record: CallRecord | None, policies: SamplePolicies) -> bool:
    """Whether a script gave the answer and the policies exclude scripted answers."""
    return record is not None and record.model == SCRIPTED and policies.scripted == "exclude"


def _abandoned_responses(session: ExportSession) -> Iterator[tuple[str, str]]:
    """Yield id and reason of each abandoned response: it lies on no version that the conversation continued from. Attached chats count.

    A chat is abandoned if every version with the message that carries it is abandoned."""
    accepted: set[str] = set()
    graphs: list[MessageGraph] = [session.graph]
    seen: set[int] = set()
    for graph in graphs:  # the loop appends to `graphs`
        versions = list(graph.versions)
        places = _accepted_places(versions)
        prefixes = {_prefix_key(versions[place], index) for place in places for index in versions[place].sampled}
        for response in graph.responses():
            if response.is_own and _prefix_key(versions[response.version], response.index) in prefixes:
                accepted.add(response.id)
        for chat in (node.chat for place in places for node in versions[place]):
            if chat is not None and id(chat.history) not in seen:
                seen.add(id(chat.history))
                graphs.append(chat.graph)
    attempts = {version.successor for version in session.graph.versions if version.kind == "compaction_attempt"}
    for response in session.graph.responses():
        if response.id not in accepted:
            is_attempt = response.version in attempts if response.is_own else _is_carried_by(response, session.graph, attempts)
            yield response.id, REJECTED if is_attempt else SUPERSEDED


def _accepted_places(versions: Sequence[Version]) -> set[int]:
    """Return the places of the current list and of every version that leads to it along accepted edges."""
    accepted = {len(versions) - 1}
    for version in reversed(versions[:-1]):
        if version.successor in accepted and version.kind in ACCEPTED_EDGES:
            accepted.add(version.place)
    return accepted


def _is_carried_by(response: Response, graph: MessageGraph, places: set[int | None]) -> bool:
    """Whether a chat attached to one of these versions holds a response."""
    chats = (node.chat for version in graph.versions if version.place in places for node in version)
    return any(chat is not None and response.id in chat.response_ids for chat in chats)


def _prefix_key(version: Sequence[Any], index: int) -> tuple[bytes, ...]:
    return tuple(node.digest for node in version[: index + 1])


def _rollout_name(notes: Mapping[str, Any], session: str) -> str:
    mark = notes.get("rollout")
    return mark.encode("utf-8", "backslashreplace").decode() if isinstance(mark, str) and mark else session


def _rollout_rewards(
    names: Sequence[str], noted: Sequence[Mapping[str, Any]], session: str, rules: Sequence[RewardRule]
) -> dict[str, float]:
    """Return each rollout's reward: the one that is annotated for the rollout, else the reward of its last response that has one."""
    stated: dict[str, float] = {}
    last: dict[str, float] = {}
    for name, notes in zip(names, noted, strict=True):
        if not notes:
            continue
        rollout = _rollout_name(notes, session)
        for read, into in ((stated_rollout_reward, stated), (response_reward, last)):
            value = read(notes, rules, name)
            if value is not None:
                into[rollout] = value
    return {**last, **stated}
