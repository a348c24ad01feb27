"""Which rows of text the samples of a session give, and how each differs from what was sent; and what the text formats share."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from hermes.graph import Overlay
from hermes.trajectories.verify.source_samples import SourceSample

TOKEN_REASONS = frozenset(
    {
        *("no token ids", "no prompt token ids", "empty prompt: nothing predicts the first token", "no logprobs", "not a logprob"),
        *("counted by the server but not returned", "prompt tokens derived, not recorded"),
    }
)
"""Reasons about tokens; they do not matter for text."""
REPLACED = "half a surrogate pair replaced"
REASONING = ("reasoning", "reasoning_content")
_HALF = re.compile("[\ud800-\udfff]")


@dataclass(slots=True)
class TextLayout:
    """A row of text: messages, and which of them are trained for which sample."""

    session: str
    rollout: str
    tools: Sequence[Any] | None
    messages: list[Any]
    trained: dict[int, SourceSample]
    context: dict[int, SourceSample]
    """Samples at messages that are trained in another row."""
    notes: int
    """How many messages were sent with a note that is left out."""

    @property
    def samples(self) -> list[SourceSample]:
        """The samples trained here, in the order of their messages."""
        return [self.trained[index] for index in sorted(self.trained)]

    def differences(self, *, has_reasoning: bool) -> list[str]:
        """Return how the row differs from what was sent for its samples."""
        found = dict.fromkeys(what for sample in self.samples for what in _differences(sample, has_reasoning=has_reasoning))
        return [*found, *(["notes of user messages left out"] if self.notes else [])]

    @property
    def left_out(self) -> dict[str, int]:
        """Return for how many trained samples an ephemeral prompt was left out, and for how many messages a note."""
        return {"ephemeral": sum(sample.response.overlay.ephemeral is not None for sample in self.samples), "notes": self.notes}


class TextExpectation:
    """What the text formats share."""

    schemas: ClassVar[Mapping[str, pa.Schema]] = {}
    fixed: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, source: str) -> None:
        self.source = source
        self.rows = 0


def layout_texts(samples: Sequence[SourceSample], can_train: Callable[[Mapping[str, Any]], bool]) -> list[TextLayout]:
    """Return the rows of text of one session."""
    groups: dict[tuple[str, str], list[SourceSample]] = {}
    for sample in samples:
        if all(reason in TOKEN_REASONS for *_, reason in sample.excluded) and can_train(sample.response.message):
            key = (sample.rollout, json.dumps(sample.response.overlay.tools, sort_keys=True))
            groups.setdefault(key, []).append(sample)
    return [row for members in groups.values() for row in _rows(members)]


def _rows(samples: Sequence[SourceSample]) -> Iterator[TextLayout]:
    one, placed = samples[0], set[SourceSample]()

    def row(messages: Sequence[Any], trained: dict[int, SourceSample], held: Mapping[int, SourceSample]) -> TextLayout:
        context = {index: sample for index, sample in held.items() if index not in trained and index < len(messages)}
        words = [_without_note(message) for message in messages]
        notes = sum(message is not cut for message, cut in zip(messages, words, strict=True))
        return TextLayout(one.session, one.rollout, one.response.overlay.tools, words, trained, context, notes)

    for messages, ends in _leaves(samples):
        firsts = {index: members[0] for index, members in ends.items()}
        new = {index: sample for index, sample in firsts.items() if sample not in placed}
        placed.update(new.values())
        yield row(messages, new, firsts)
        for index in new:
            for twin in ends[index][1:]:
                yield row(messages[: index + 1], {index: twin}, firsts)


def _leaves(samples: Sequence[SourceSample]) -> Iterator[tuple[list[Any], dict[int, list[SourceSample]]]]:
    """Yield the lists of messages that no other list continues, depth first, with the samples that end at each of their messages."""
    lists = [(sample, _messages(sample)) for sample in samples]
    stack: list[tuple[int, list[tuple[SourceSample, list[Any]]]]] = [(0, lists)]
    path: list[Any] = []
    ends: dict[int, list[SourceSample]] = {}
    while stack:
        depth, group = stack.pop()
        # The group shares its first `depth` messages; what the path holds beyond them belongs to another branch.
        del path[max(depth - 1, 0) :]
        ends = {index: members for index, members in ends.items() if index < depth - 1}
        if depth:
            path.append(group[0][1][depth - 1])
            here = [sample for sample, messages in group if len(messages) == depth]
            ends |= {depth - 1: here} if here else {}
        branches: dict[bytes, list[tuple[SourceSample, list[Any]]]] = {}
        for sample, messages in group:
            if len(messages) > depth:
                branches.setdefault(_key(messages[depth]), []).append((sample, messages))
        if not branches:
            yield list(path), dict(ends)
        stack += [(depth + 1, branch) for branch in reversed(branches.values())]


class WrittenMessage(dict[str, Any]):
    """A message that a row holds in another form than the graph."""

    @property
    def digest(self) -> bytes:
        known = {key: value for key, value in self.items() if key != "metadata"}
        return hashlib.sha256(json.dumps(known, sort_keys=True, separators=(",", ":")).encode("ascii")).digest()

    @property
    def chat(self) -> Any:
        return (self.get("metadata") or {}).get("chat")


def _messages(sample: SourceSample) -> list[Any]:
    """Return the messages of a row that trains a sample last, with the base system prompt that was sent and not listed."""
    messages: list[Any] = [*sample.response.prefix]
    text = sample.response.overlay.system
    at = next((index for index, message in enumerate(messages) if message["role"] in ("system", "developer")), None)
    if text is not None and at is None:
        messages.insert(0, WrittenMessage(role="system", content=text))
    elif text is not None and at is not None:
        content = messages[at].get("content")
        if isinstance(content, list):
            joined: Any = [*content, {"type": "text", "text": f"\n\n{text}"}]
        else:
            joined = f"{content}\n\n{text}" if content else text
        messages[at] = WrittenMessage({**messages[at], "content": joined})
    return [*messages, sample.response.message]


def _without_note(message: Any) -> Any:
    """Return a user's message without the note that was sent before its words; the message itself if it does not begin with one."""
    note = (message.get("metadata") or {}).get("note")
    if message["role"] != "user" or not isinstance(note, str) or not note:
        return message
    content = message.get("content")
    if isinstance(content, str):
        words = _behind(content, note)
        return message if words is None else WrittenMessage({**message, "content": words})
    parts = list(content or ())
    at = next((index for index, part in enumerate(parts) if part.get("type") == "text"), 0)
    words = _behind(parts[at].get("text"), note) if parts else None
    if words is None:
        return message
    parts[at] = {**parts[at], "text": words}
    return WrittenMessage({**message, "content": parts})


def _behind(text: Any, note: str) -> str | None:
    if text == note:
        return ""
    return text[len(note) + 2 :] if isinstance(text, str) and text.startswith(f"{note}\n\n") else None


def _key(message: Any) -> bytes:
    return bytes(message.digest)


def _differences(sample: SourceSample, *, has_reasoning: bool) -> Iterator[str]:
    overlay, prefix = sample.response.overlay, sample.response.prefix
    if not sample.has_tokens:
        yield "no token ids"
    elif not sample.on_policy:
        yield "prompt tokens derived, not recorded"
    if overlay.ephemeral is not None:
        yield "ephemeral prompt left out"
    shown = Overlay(keep_reasoning=overlay.keep_reasoning).render(prefix)
    thoughts = [(bool(reasoning_of(one)), bool(reasoning_of(other))) for one, other in zip(prefix, shown, strict=True)]
    if has_reasoning and (True, False) in thoughts:
        yield "reasoning of earlier turns put back"
    if not has_reasoning and ((True, True) in thoughts or reasoning_of(sample.response.message)):
        yield "reasoning left out"


def reasoning_of(message: Mapping[str, Any]) -> str:
    return next((message[name] for name in REASONING if message.get(name)), "")


def replace_halves(value: Any) -> Any:
    """Return a JSON value with U+FFFD for each half of a surrogate pair."""
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {replace_halves(key): replace_halves(item) for key, item in value.items()}
    return [replace_halves(item) for item in value] if isinstance(value, list | tuple) else value


def turn_digest(turn: Any) -> str:
    """Return the SHA-256 of a turn as the ledger holds it."""
    return hashlib.sha256(json.dumps(turn, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def place_turn(row: int, digests: Sequence[str], turn: int, first: int = 0) -> dict[str, Any]:
    """Return what the ledger holds for a trained turn."""
    context = hashlib.sha256("".join(digests[first:turn]).encode("ascii")).hexdigest()
    return {"row": row, "turn": turn, "sha256": digests[turn], "context": context}


def is_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def part_text(part: Mapping[str, Any]) -> str:
    return str(part["text"]) if is_text(part) else f"[{part['type']}]"
