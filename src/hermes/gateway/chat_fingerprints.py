"""The digests by which a chat is recognised in what a client sends. Pure: messages in, fingerprints out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256

from hermes.gateway.chat_request import echo_key, message_key
from hermes.gateway.quoted_answers import MIN_ANSWERS, answer_traces, has_words, system_digest, text_of
from hermes.graph.message import canonical
from hermes.ports.backends import ChatMessage
from hermes.ports.sessions import ChatFingerprint

MIN_ECHO_WORDS = 4
"""An answer with fewer words is recognised only together with the message before it."""


class ChatFingerprinter:
    """Takes a fingerprint of a list after each assistant message with content: there a chat may be recognised.

    An empty message recognises nothing: two chats that each hold an empty answer have nothing in common."""

    def __init__(self, messages: Sequence[ChatMessage] = ()) -> None:
        self._messages = messages
        self._shown, self._whole = sha256(), sha256()
        self._length = 0
        self._before = b""
        self.fingerprints: list[ChatFingerprint] = []
        for message in messages:
            self._add(message)

    @cached_property
    def system(self) -> bytes:
        """The digest of the system prompt."""
        return system_digest(self._messages)

    @property
    def shown(self) -> bytes:
        """The digest of the list, without its reasoning: the context of its next answer."""
        return self._shown.digest()

    def fingerprint_after(self, message: ChatMessage) -> ChatFingerprint | None:
        """The fingerprint of the list with this message at its end; None for an empty message. The list itself stays as it is."""
        if not has_content(message):
            return None
        longer = ChatFingerprinter()
        longer._shown, longer._whole, longer._length = self._shown.copy(), self._whole.copy(), self._length
        longer._before = self._before
        longer._add(message)
        [fingerprint] = longer.fingerprints
        return replace(fingerprint, traces=answer_traces(fingerprint.context, self.system, self._quotable(message)))

    def _quotable(self, message: ChatMessage) -> list[ChatMessage]:
        """The answers that a summary may quote from here on: none of a chat's only answer, because there is nothing to sum up yet; with
        the second one the first, too."""
        before = [shown for shown in self._messages if shown["role"] == "assistant" and has_content(shown)]
        return [*(before if len(before) < MIN_ANSWERS else ()), message] if before else []

    def _add(self, message: ChatMessage) -> None:
        key, before, context = message_key(message), self._before, b""
        if message["role"] == "assistant":
            context = self._shown.digest()
        full = canonical(message) if "reasoning" in message else key
        self._shown.update(len(key).to_bytes(8, "big") + key)
        self._whole.update(len(full).to_bytes(8, "big") + full)
        self._length += 1
        if message["role"] == "assistant" and has_content(message):
            quoted = echo_key(message) if message.get("tool_calls") else key
            echo = sha256(quoted if says_enough(message) else before + key).digest()
            self.fingerprints.append(ChatFingerprint(self._length, self._shown.digest(), self._whole.digest(), echo, context))
        self._before = key


def says_enough(message: ChatMessage) -> bool:
    """Whether an answer is recognised without the message before it. A "yes" may also be an example that the client wrote itself."""
    return bool(message.get("tool_calls")) or has_words(text_of(message), MIN_ECHO_WORDS)


def has_content(message: ChatMessage) -> bool:
    return bool(message.get("content") or message.get("tool_calls") or message.get("refusal"))
