"""Text rows: the message-level counterpart of `rows`. One row for each leaf of the trie of message lists.

A response needs no token ids to be trained as text: only redacted responses, responses without consent and deliberately excluded ones
are left out. The base system prompt of a call is in its row. Ephemeral text, notes of user messages and metadata are not; a row that
differs from what was sent for that reason says so. A response is trained in the first row that holds it and is context in the others.
Two samples of equal text in one place are two samples, so the second gets a row of its own. Authored messages are never trained. Knows
nothing about files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

from hermes.graph import Overlay
from hermes.graph.context import SYSTEM_ROLES, with_system_text
from hermes.graph.message import METADATA, NOTE, REASONING, FrozenDict, FrozenList, canonical
from hermes.graph.node import Node
from hermes.trajectories.calls import (
    DERIVED,
    EMPTY_PROMPT,
    INVALID_LOGPROB,
    NO_IDS,
    NO_LOGPROBS,
    NO_PROMPT_IDS,
    NOT_RETURNED,
    TOKEN_BYTES,
    SampledCall,
)

TOKEN_REASONS = frozenset({NO_IDS, NO_PROMPT_IDS, EMPTY_PROMPT, NO_LOGPROBS, INVALID_LOGPROB, NOT_RETURNED, DERIVED})
"""Reasons to exclude tokens that do not matter for text: the model sampled the text, and its context is known."""

EPHEMERAL = "ephemeral prompt left out"
NOTES = "notes of user messages left out"
REASONING_BACK = "reasoning of earlier turns put back"
REASONING_GONE = "reasoning left out"
REPLACED = "half a surrogate pair replaced"

_REASONING = frozenset(REASONING)


@dataclass(slots=True, eq=False)  # never changed; `frozen` would make its constructor three times as slow
class TextRow:
    """A list of messages, and which of them are trained for which call."""

    session: str
    rollout: str
    tools: Sequence[Any] | None
    """The tool schemas that were sent with every call trained here."""
    messages: tuple[Node, ...] = field(repr=False)
    trained: Mapping[int, SampledCall]
    """The calls trained here, by the index of the message, ascending; the last message is always one of them."""
    context: Mapping[int, SampledCall]
    """The calls of messages that were sampled too but are trained in another row, by the index of the message."""
    notes: int = 0
    """How many of the messages were sent with a note that is left out here."""

    @property
    def calls(self) -> list[SampledCall]:
        """The calls trained here, in the order of their messages."""
        return list(self.trained.values())

    def differences(self, *, has_reasoning: bool) -> list[str]:
        """Return how this row differs from what was sent for its calls; an empty list if it does not.

        `has_reasoning` says whether the format writes the reasoning of every message that has some, or of none."""
        found: dict[str, None] = {}
        is_thoughtful = any(map(reasoning_of, [message for message in self.messages if not _REASONING.isdisjoint(message)]))
        for call in self.trained.values():
            is_exact = 0 < call.start * TOKEN_BYTES < len(call.whole) and call.on_policy and call.overlay.ephemeral is None
            if is_thoughtful or not is_exact:
                found |= dict.fromkeys(_differences(call, has_reasoning=has_reasoning, is_thoughtful=is_thoughtful))
        return [*found, NOTES] if self.notes else list(found)

    @property
    def left_out(self) -> dict[str, int]:
        """Return what was sent and is not in the row: for how many trained calls an ephemeral prompt, for how many messages a note."""
        return {"ephemeral": sum([call.overlay.ephemeral is not None for call in self.trained.values()]), "notes": self.notes}


def can_train_as_text(call: SampledCall) -> bool:
    """Whether a call can be trained as text."""
    return not call.excluded or all(part.reason in TOKEN_REASONS for part in call.excluded)


def text_rows(calls: Iterable[SampledCall], can_train: Callable[[Node], bool] = lambda _: True) -> Iterator[TextRow]:
    """Yield the rows of one session, depth first; calls that cannot be trained as text, or not in this format, have none.

    Rollouts do not share rows, nor do calls with different tools: tools are part of the context."""
    groups: dict[tuple[str, bytes], list[SampledCall]] = {}
    for call in calls:
        if can_train_as_text(call) and can_train(call.message):
            tools = call.overlay.tools
            groups.setdefault((call.rollout, canonical(tools) if tools else b""), []).append(call)
    for members in groups.values():
        only = _only_row(members)
        yield from _rows(members) if only is None else (only,)


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
    return hashlib.sha256(canonical(turn)).hexdigest()


@dataclass(slots=True, eq=False)
class _TextNode:
    """A node of the trie: one message, which follows the messages of its parents."""

    message: Node | None
    has_note: bool
    """Whether the message was sent with a note, which is left out here."""
    calls: list[SampledCall]
    children: dict[bytes, _TextNode]


def _only_row(calls: Sequence[SampledCall]) -> TextRow | None:
    """Return the one row of calls that were sampled one after the other in one list; None if there may be more, or if the row differs from
    the list. The usual case, without a trie."""
    first, last = calls[0], calls[-1]
    messages = (*last.response.prefix, last.message)
    if [message for message in messages if METADATA in message]:
        return None
    trained: dict[int, SampledCall] = {}
    before = -1
    for call in calls:
        is_on_list = call is last or call.response.shares_list(last.response)
        prefix = () if is_on_list else call.response.prefix
        index = call.response.index
        is_next = before < index < len(messages) and messages[index] is call.message
        if not is_next or call.overlay.system is not None or not all(map(is_, prefix, messages)):
            return None
        trained[index] = call
        before = index
    return TextRow(first.session, first.rollout, first.overlay.tools, messages, trained, {})


def _rows(calls: Sequence[SampledCall]) -> Iterator[TextRow]:
    root = _TextNode(None, has_note=False, calls=[], children={})
    systems: dict[tuple[str, bytes], Node] = {}
    for call in calls:
        place = root
        for message in (*_context(call, systems), call.message):
            digest = message.digest
            child = place.children.get(digest)
            if child is None:
                child = place.children[digest] = _text_node(message)
            place = child
        place.calls.append(call)
    placed: set[int] = set()
    for path in _leaves(root):
        firsts = {index: place.calls[0] for index, place in enumerate(path) if place.calls}
        new = {index: call for index, call in firsts.items() if id(call) not in placed}
        placed |= {id(call) for call in new.values()}
        yield _row(path, new, firsts)
        for index in new:
            for twin in path[index].calls[1:]:
                yield _row(path[: index + 1], {index: twin}, firsts)


def _row(path: Sequence[_TextNode], trained: Mapping[int, SampledCall], sampled: Mapping[int, SampledCall]) -> TextRow:
    one = next(iter(trained.values()))
    context = {index: call for index, call in sampled.items() if index not in trained and index < len(path)}
    messages = tuple([place.message for place in path if place.message is not None])
    notes = sum([place.has_note for place in path])
    return TextRow(one.session, one.rollout, one.overlay.tools, messages, trained, context, notes)


def _context(call: SampledCall, systems: dict[tuple[str, bytes], Node]) -> Sequence[Node]:
    """Return the messages before a call with its base system prompt among them. `systems` keeps the system messages made for earlier
    calls, so that calls with the same prompt share one."""
    prefix, text = call.response.prefix, call.overlay.system
    if text is None:
        return prefix
    at = next((index for index, message in enumerate(prefix) if message["role"] in SYSTEM_ROLES), None)
    listed = [] if at is None else [prefix[at]]
    key = (text, listed[0].digest if listed else b"")
    if key not in systems:
        systems[key] = Node(with_system_text(listed, text)[0])
    return (*prefix[: at or 0], systems[key], *prefix[(at or 0) + len(listed) :])


def _text_node(message: Node) -> _TextNode:
    words = _without_note(message) if METADATA in message else None
    return _TextNode(words or message, words is not None, [], {})


def _without_note(message: Node) -> Node | None:
    """Return a user's message with the user's words alone; None if it has no note, or if its content was edited since."""
    note = (message.get(METADATA) or {}).get(NOTE) if message["role"] == "user" else None
    if not isinstance(note, str) or not note:
        return None
    content = message.get("content")
    if isinstance(content, str):
        words: Any = _after_note(content, note)
    else:
        parts = list(content or ())
        at = next((index for index, part in enumerate(parts) if part.get("type") == "text"), 0)
        text = None if not parts else _after_note(parts[at].get("text"), note)
        words = None if text is None else FrozenList([*parts[:at], FrozenDict({**parts[at], "text": text}), *parts[at + 1 :]])
    return None if words is None else Node({**message, "content": words})


def _after_note(text: Any, note: str) -> str | None:
    """Return the words behind a note; None if the text does not begin with the note."""
    if not isinstance(text, str) or not text.startswith(note):
        return None
    rest = text[len(note) :]
    return rest[2:] if rest.startswith("\n\n") else None if rest else ""


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


def _differences(call: SampledCall, *, has_reasoning: bool, is_thoughtful: bool) -> Iterator[str]:
    """`is_thoughtful`: whether any message of the row has reasoning."""
    overlay = call.overlay
    if not 0 < call.start * TOKEN_BYTES < len(call.whole):
        yield NO_IDS  # the text is exact, but without token ids the exact tokens are not known
    elif not call.on_policy:
        yield DERIVED
    if overlay.ephemeral is not None:
        yield EPHEMERAL
    if is_thoughtful:
        prefix = call.response.prefix
        sent = Overlay(keep_reasoning=overlay.keep_reasoning).render(prefix)
        for listed, shown in zip(prefix, sent, strict=True):
            if reasoning_of(listed) and has_reasoning is not bool(reasoning_of(shown)):
                yield REASONING_BACK if has_reasoning else REASONING_GONE
                break
    if not has_reasoning and reasoning_of(call.message):
        yield REASONING_GONE


def reasoning_of(message: Mapping[str, Any]) -> str:
    """Return a message's reasoning, under either of its two names; empty if it has none."""
    for name in REASONING:
        if value := message.get(name):
            return str(value)
    return ""


def replace_surrogates(value: Any) -> Any:
    """Return a JSON value with U+FFFD for each half of a surrogate pair: a single half makes readers refuse the whole file."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}
    return [replace_surrogates(item) for item in value] if isinstance(value, list | tuple) else value
