"""Text rows: the message-level counterpart of `rows`. One row for each leaf of the trie of message lists.

A response needs no token ids to be trained as text: only redacted responses, responses without consent and deliberately excluded ones
are left out. Ephemeral text and metadata are not in rows; a row that differs from what was sent for that reason says so. A
response is trained in the first row that holds it and is context in the others. Two samples of equal text in one place are two
samples, so the second gets a row of its own. Authored messages are never trained. Knows nothing about files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes.graph import Overlay
from hermes.graph.message import REASONING, canonical
from hermes.graph.node import Node
from hermes.trajectories.calls import DERIVED, EMPTY_PROMPT, INVALID_LOGPROB, NO_IDS, NO_LOGPROBS, NO_PROMPT_IDS, NOT_RETURNED, SampledCall

TOKEN_REASONS = frozenset({NO_IDS, NO_PROMPT_IDS, EMPTY_PROMPT, NO_LOGPROBS, INVALID_LOGPROB, NOT_RETURNED, DERIVED})
"""Reasons to exclude tokens that do not matter for text: the model sampled the text, and its context is known."""

EPHEMERAL = "ephemeral prompt left out"
REASONING_BACK = "reasoning of earlier turns put back"
REASONING_GONE = "reasoning left out"
REPLACED = "half a surrogate pair replaced"


@dataclass(frozen=True, slots=True)
class TextRow:
    """A list of messages, and which of them are trained for which call."""

    session: str
    rollout: str
    tools: Sequence[Any] | None
    """The tool schemas that were sent with every call trained here."""
    messages: tuple[Node, ...] = field(repr=False)
    trained: Mapping[int, SampledCall]
    """The calls trained here, by the index of the message; the last message is always one of them."""
    context: Mapping[int, SampledCall]
    """The calls of messages that were sampled too but are trained in another row, by the index of the message."""

    @property
    def calls(self) -> list[SampledCall]:
        """The calls trained here, in the order of their messages."""
        return [self.trained[index] for index in sorted(self.trained)]

    def differences(self, *, has_reasoning: bool) -> list[str]:
        """Return how this row differs from what was sent for its calls; an empty list if it does not.

        `has_reasoning` says whether the format writes the reasoning of every message that has some, or of none."""
        found: dict[str, None] = {}
        for call in self.calls:
            found |= dict.fromkeys(_differences(call, has_reasoning=has_reasoning))
        return list(found)


def can_train_as_text(call: SampledCall) -> bool:
    """Whether a call can be trained as text."""
    return all(part.reason in TOKEN_REASONS for part in call.excluded)


def text_rows(calls: Iterable[SampledCall], can_train: Callable[[Node], bool] = lambda _: True) -> Iterator[TextRow]:
    """Yield the rows of one session, depth first; calls that cannot be trained as text, or not in this format, have none.

    Rollouts do not share rows, nor do calls with different tools: tools are part of the context."""
    groups: dict[tuple[str, bytes], list[SampledCall]] = {}
    for call in calls:
        if can_train_as_text(call) and can_train(call.response.message):
            tools = call.response.overlay.tools
            groups.setdefault((call.rollout, canonical(tools)), []).append(call)
    for members in groups.values():
        yield from _rows(members)


def is_assistant(message: Node) -> bool:
    """Whether a message is an assistant's. A model may sample a message of another role, which not every format can train."""
    return bool(message["role"] == "assistant")


def text_placement(row: int, digests: Sequence[str], turn: int, first: int = 0) -> dict[str, Any]:
    """Return what the ledger holds for a response trained as text: its turn, and the hashes of it and of the turns before it.

    `digests` are the digests of the row's turns as written; `first` is the first turn of the conversation, in a row that holds several."""
    context = hashlib.sha256("".join(digests[first:turn]).encode("ascii")).hexdigest()
    return {"row": row, "turn": turn, "sha256": digests[turn], "context": context}


def text_digest(turn: Any) -> str:
    """Return the SHA-256 of a turn as written: the hash of its JSON with sorted keys, compact, ASCII."""
    return hashlib.sha256(json.dumps(turn, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")).hexdigest()


@dataclass(slots=True, eq=False)
class _TextNode:
    """A node of the trie: one message, which follows the messages of its parents."""

    message: Node | None = None
    calls: list[SampledCall] = field(default_factory=list)
    children: dict[bytes, _TextNode] = field(default_factory=dict)


def _rows(calls: Sequence[SampledCall]) -> Iterator[TextRow]:
    root = _TextNode()
    for call in calls:
        place = root
        for message in (*call.response.prefix, call.response.message):
            child = place.children.get(message.digest)
            if child is None:
                child = place.children[message.digest] = _TextNode(message)
            place = child
        place.calls.append(call)
    placed: set[int] = set()
    for path in _leaves(root):
        messages = tuple(place.message for place in path if place.message is not None)
        firsts = {index: place.calls[0] for index, place in enumerate(path) if place.calls}
        new = {index: call for index, call in firsts.items() if id(call) not in placed}
        placed |= {id(call) for call in new.values()}
        yield _row(messages, new, firsts)
        for index in new:
            for twin in path[index].calls[1:]:
                yield _row(messages[: index + 1], {index: twin}, firsts)


def _row(messages: tuple[Node, ...], trained: Mapping[int, SampledCall], sampled: Mapping[int, SampledCall]) -> TextRow:
    one = next(iter(trained.values()))
    context = {index: call for index, call in sampled.items() if index not in trained and index < len(messages)}
    return TextRow(one.session, one.rollout, one.response.overlay.tools, messages, trained, context)


def _leaves(root: _TextNode) -> Iterator[list[_TextNode]]:
    """Yield the path to each leaf, depth first."""
    path: list[_TextNode] = []
    stack = [iter(root.children.values())]
    while stack:
        place = next(stack[-1], None)
        if place is None:
            stack.pop()
            if path:
                path.pop()
        elif place.children:
            path.append(place)
            stack.append(iter(place.children.values()))
        else:
            yield [*path, place]


def _differences(call: SampledCall, *, has_reasoning: bool) -> Iterator[str]:
    overlay, prefix = call.response.overlay, call.response.prefix
    if not call.completion or not call.prompt:
        yield NO_IDS  # the text is exact, but without token ids the exact tokens are not known
    if overlay.ephemeral is not None:
        yield EPHEMERAL
    sent = Overlay(keep_reasoning=overlay.keep_reasoning).render(prefix)
    for listed, shown in zip(prefix, sent, strict=True):
        if reasoning_of(listed) and has_reasoning is not bool(reasoning_of(shown)):
            yield REASONING_BACK if has_reasoning else REASONING_GONE
            break
    if not has_reasoning and reasoning_of(call.response.message):
        yield REASONING_GONE


def reasoning_of(message: Mapping[str, Any]) -> str:
    """Return a message's reasoning, under either of its two names; empty if it has none."""
    return next((message[name] for name in REASONING if message.get(name)), "")


def replace_surrogates(value: Any) -> Any:
    """Return a JSON value with U+FFFD for each half of a surrogate pair: a single half makes readers refuse the whole file."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}
    return [replace_surrogates(item) for item in value] if isinstance(value, list | tuple) else value
