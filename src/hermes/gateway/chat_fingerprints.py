"""The digests by which a chat is recognised in what a client sends. Pure: messages in, fingerprints out."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from hermes.gateway.chat_request import echo_key, message_key
from hermes.gateway.quoted_answers import MIN_ANSWERS, answer_traces, has_words, system_digest, text_of
from hermes.graph.message import canonical
from hermes.ports.backends import ChatMessage
from hermes.ports.sessions import NO_TRACES, ChatFingerprint, ChatTraces

if TYPE_CHECKING:
    from _hashlib import HASH

MIN_ECHO_WORDS = 4
"""An answer with fewer words is recognised only together with the message before it."""


class ChatFingerprinter:
    """Takes a fingerprint of a list after each assistant message with content: there a chat may be recognised.

    An empty message recognises nothing: two chats that each hold an empty answer have nothing in common."""

    def __init__(self, messages: Sequence[ChatMessage] = ()) -> None:
        self._messages = messages
        self._keys = [message_key(message) for message in messages]
        self._shown = sha256()
        self._whole: HASH | None = None
        """As `_shown`, with the reasoning; None as long as no message has any."""
        self.fingerprints: list[ChatFingerprint] = []
        for at, (message, key) in enumerate(zip(messages, self._keys, strict=True)):
            is_answer = message["role"] == "assistant"
            context = self._shown.digest() if is_answer else b""
            self._whole = feed_message(message, key, self._shown, self._whole)
            if is_answer and has_content(message):
                echo = echo_digest(message, self._keys[at - 1] if at else b"", key)
                self.fingerprints.append(fingerprint_of(at + 1, self._shown, self._whole, echo, context))
        self.system = system_digest(messages, self._keys)
        """The digest of the system prompt."""
        self.shown = self._shown.digest()
        """The digest of the list, without its reasoning: the context of its next answer."""

    def fingerprint_after(self, message: ChatMessage) -> ChatFingerprint | None:
        """The fingerprint of the list with this message at its end; None for an empty message. The list itself stays as it is."""
        if not has_content(message):
            return None
        key, shown, whole = message_key(message), self._shown.copy(), None if self._whole is None else self._whole.copy()
        whole = feed_message(message, key, shown, whole)
        traces = answer_traces(self.shown, self.system, self._quotable(message))
        echo = echo_digest(message, self._keys[-1] if self._keys else b"", key)
        return fingerprint_of(len(self._keys) + 1, shown, whole, echo, self.shown, traces=traces)

    def _quotable(self, message: ChatMessage) -> list[ChatMessage]:
        """The answers that a summary may quote from here on: none of a chat's only answer, because there is nothing to sum up yet; with
        the second one the first, too."""
        before = [shown for shown in self._messages if shown["role"] == "assistant" and has_content(shown)]
        return [*(before if len(before) < MIN_ANSWERS else ()), message] if before else []


def feed_message(message: ChatMessage, key: bytes, shown: HASH, whole: HASH | None) -> HASH | None:
    """Feed a message into the digest of its list, and into the one with the reasoning; that one begins with the first reasoning."""
    if "reasoning" in message:
        whole, full = shown.copy() if whole is None else whole, canonical(message)
        whole.update(len(full).to_bytes(8, "big") + full)
    elif whole is not None:
        whole.update(len(key).to_bytes(8, "big") + key)
    shown.update(len(key).to_bytes(8, "big") + key)
    return whole


def fingerprint_of(
    length: int, shown: HASH, whole: HASH | None, echo: bytes, context: bytes, *, traces: ChatTraces = NO_TRACES
) -> ChatFingerprint:
    digest = shown.digest()
    return ChatFingerprint(length, digest, digest if whole is None else whole.digest(), echo, context, traces)


def echo_digest(message: ChatMessage, before: bytes, key: bytes) -> bytes:
    """The digest of an answer alone, or with the message before it."""
    quoted = echo_key(message) if message.get("tool_calls") else key
    return sha256(quoted if says_enough(message) else before + key).digest()


def says_enough(message: ChatMessage) -> bool:
    """Whether an answer is recognised without the message before it. A "yes" may also be an example that the client wrote itself."""
    return bool(message.get("tool_calls")) or has_words(text_of(message), MIN_ECHO_WORDS)


def has_content(message: ChatMessage) -> bool:
    return bool(message.get("content") or message.get("tool_calls") or message.get("refusal"))
