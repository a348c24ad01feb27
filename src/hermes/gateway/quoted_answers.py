"""Recognise our own answers in a request that does not show them word for word: rewritten by the client, quoted, or summed up. Pure.

Two traces are evidence that a request continues a chat. Both need the system prompt under which the chat's answer was sampled.

- Continuation: the request begins with exactly the messages that an answer was sampled in, and its next message is an assistant's that
  carries the answer: its words, or its tool calls. Agent libraries that write tool calls as text leave this trace.
- Compaction: a message quotes at least half of an answer, or parts of two answers, in spans of `SPAN_WORDS` words. Words that the answer
  itself repeated from its own prompt do not count: they were the client's.

What is no evidence: a short answer; a span that answers of several chats have; a quote from a chat that has a single answer, because there
is nothing to sum up; a quote while the chat waits for the results of its tools, because then a subagent works on it; and a second quote of
what one summary already quoted, because a chat is summed up once. A subagent or a copy in a new chat has a chat of its own."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from heapq import nsmallest
from itertools import islice
from typing import Any
from uuid import UUID
from zlib import crc32

from hermes.gateway.chat_request import message_key
from hermes.graph import MessageGraph, Response
from hermes.graph.edit import COMPACTION
from hermes.graph.message import METADATA
from hermes.ports.backends import ChatMessage
from hermes.ports.sessions import ChatTraces

CONTINUATION = "continuation"
SPAN_WORDS = 10
"""A span of so many words is the same in two texts by copying alone. A sign of a script without spaces counts as a word."""
MIN_QUOTED_SHARE = 0.5
MIN_QUOTED_ANSWERS = 2
MAX_ANSWER_SPANS, MAX_REQUEST_SPANS = 12, 128
"""How many spans of a text are looked for: those with the smallest hashes, so that two texts with a common part have some in common."""
MAX_WORDS = 50_000
MIN_ANSWERS = 2
JOINED_BY = "joined_by"
"""The name under which evidence is noted in the metadata of the message that shows it."""
MAX_NOTED = 8
MAX_RESPONSES = 64
"""How many of a chat's newest answers are compared."""
CARRIED = ("words", "tool_calls", "tool_call_ids")
"""What a rewritten answer may hold of the original, the weakest first."""
MIN_CALL_ID_CHARS = 12
"""A shorter id of a tool call may be a number that every chat has."""
ASCII_WORD = re.compile("[a-z0-9]+")
"""The same as `WORD` in a text of ASCII alone, and several times as fast."""
WORD = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
    r"|(?:(?![\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])[^\W_])+"
)
BASE, MODULUS = 1_000_003, (1 << 61) - 1
TOP = pow(BASE, SPAN_WORDS - 1, MODULUS)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a request belongs to a chat: the kind of edge that it makes, the message that shows it, and what that message holds."""

    kind: str
    at: int
    facts: Mapping[str, Any]
    """Numbers, names and ids, as they are noted in the message's metadata."""
    strength: tuple[int, ...] = ()
    """Of evidence for several chats, the strongest counts if it is the strongest alone."""


def answer_traces(context: bytes, system: bytes, quotable: Sequence[ChatMessage]) -> ChatTraces:
    """The traces of an answer: of the list that it was sampled in, and of the words of the answers that may be quoted. `context` is that
    list's digest."""
    spans = [span for message in quotable for span in nsmallest(MAX_ANSWER_SPANS, set(span_hashes(words_of(text_of(message)))))]
    return ChatTraces(contexts=(trace(b"context", system, context),), spans=tuple(span_trace(system, span) for span in spans))


def request_traces(contexts: Sequence[bytes], system: bytes, messages: Sequence[ChatMessage]) -> ChatTraces:
    """The traces that a request shows: of each list that ends before an assistant's message, the longest first, and of possible quotes."""
    hashes = {span for message in without_system(messages) for span in span_hashes(words_of(text_of(message)))}
    spans = tuple(span_trace(system, span) for span in nsmallest(MAX_REQUEST_SPANS, hashes))
    return ChatTraces(contexts=tuple(trace(b"context", system, context) for context in reversed(contexts)), spans=spans)


def find_evidence(graph: MessageGraph, messages: Sequence[ChatMessage]) -> Evidence | None:
    """Return why a request continues a chat; None if the chat's answers do not show it."""
    newest = list(graph.responses())[-MAX_RESPONSES:]
    return find_continuation(newest, messages) or find_quotes(graph, newest, messages)


def strongest(found: Sequence[tuple[UUID, Evidence]]) -> tuple[UUID, Evidence] | None:
    """Return the chat with the strongest evidence; None if two have equal evidence, so that it does not say which one it is."""
    ranked = sorted(found, key=lambda one: one[1].strength, reverse=True)
    if not ranked or (len(ranked) > 1 and ranked[0][1].strength == ranked[1][1].strength):
        return None
    return ranked[0]


def find_continuation(responses: Sequence[Response], messages: Sequence[ChatMessage]) -> Evidence | None:
    keys = [message_key(message) for message in messages]
    for response in sorted(responses, key=lambda one: len(one.context), reverse=True):
        at = len(response.context)
        if at < len(messages) and messages[at]["role"] == "assistant" and keys[:at] == [message_key(one) for one in response.context]:
            carried = carried_part(messages[at], response.message)
            if carried:
                facts = {"signal": "rewritten", "responses": [response.id], "carried": carried}
                return Evidence(CONTINUATION, at, facts, (1, at, CARRIED.index(carried)))
    return None


def carried_part(message: ChatMessage, answer: ChatMessage) -> str:
    """What of an answer a message holds, as one of `CARRIED`; empty if nothing."""
    text, calls = text_of(message), answer.get("tool_calls") or ()
    if calls and all(len(call.get("id") or "") >= MIN_CALL_ID_CHARS and call["id"] in text for call in calls):
        return "tool_call_ids"
    if calls and all(is_call_in(call["function"], text) for call in calls):
        return "tool_calls"
    words = words_of(text_of(answer))
    return "words" if quoted_words(words, words_of(text), ()) >= max(SPAN_WORDS, MIN_QUOTED_SHARE * len(words)) else ""


def is_call_in(function: Mapping[str, Any], text: str) -> bool:
    """Whether a text holds a tool call: its name, and all words of its arguments in their order."""
    wanted, found = words_of(str(function["arguments"])), words_of(text)
    return bool(wanted) and function["name"] in text and any(found[at : at + len(wanted)] == wanted for at in range(len(found)))


def find_quotes(graph: MessageGraph, responses: Sequence[Response], messages: Sequence[ChatMessage]) -> Evidence | None:
    if len({len(response.context) for response in responses}) < MIN_ANSWERS or not len(graph) or graph[-1].get("tool_calls"):
        return None
    system = system_keys(messages)
    texts = {at: words_of(text_of(message)) for at, message in enumerate(messages) if at >= len(system)}
    quoted: dict[str, tuple[int, int, bool]] = {}  # by response: how many words, where, and whether it is most of the answer
    for response in responses:
        words = words_of(text_of(response.message))
        if len(words) < SPAN_WORDS or system_keys(response.context) != system:
            continue
        prompt = [words_of(text_of(message)) for message in response.context]
        at, count = max(((at, quoted_words(words, text, prompt)) for at, text in texts.items()), key=lambda found: found[1], default=(0, 0))
        if count:
            quoted[response.id] = (count, at, count >= MIN_QUOTED_SHARE * len(words))
    if not any(is_most for _, _, is_most in quoted.values()) and len(quoted) < MIN_QUOTED_ANSWERS:
        return None
    total, (_, at, _) = sum(count for count, _, _ in quoted.values()), max(quoted.values())
    if is_summed_up(graph, set(quoted), messages[at]):
        return None
    return Evidence(COMPACTION, at, {"signal": "quoted", "responses": list(quoted)[-MAX_NOTED:], "words": total}, (0, total))


def is_summed_up(graph: MessageGraph, responses: Collection[str], summary: ChatMessage) -> bool:
    """Whether another message than this has quoted the same answers and replaced the chat before."""
    for version in graph.versions:
        for message in version:
            joined = (message.get(METADATA) or {}).get(JOINED_BY)
            if joined and any(known in responses for known in joined.get("responses", ())) and message_key(message) != message_key(summary):
                return True
    return False


def quoted_words(answer: Sequence[str], text: Sequence[str], prompt: Sequence[Sequence[str]]) -> int:
    """How many words of an answer stand in a text, in spans that the answer's own prompt does not have."""
    spans = list(span_hashes(answer))
    shown = set(span_hashes(text)).intersection(spans)
    if not shown:
        return 0
    shown -= {span for part in prompt for span in span_hashes(part)}
    covered = {at + offset for at, span in enumerate(spans) if span in shown for offset in range(SPAN_WORDS)}
    return len(covered)


# --- texts as words, and spans of words as numbers


def text_of(message: ChatMessage) -> str:
    """The text of a message, whether its content is a text or a list of parts."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))


def words_of(text: str) -> list[str]:
    if text.isascii() and len(text) < 2 * MAX_WORDS:  # it has no more words than that
        return ASCII_WORD.findall(text.lower())
    return [word[0] for word in islice(find_words(text), MAX_WORDS)]


def has_words(text: str, count: int) -> bool:
    """Whether a text has so many words; reads no further than that."""
    return next(islice(find_words(text), count - 1, None), None) is not None


def find_words(text: str) -> Iterator[re.Match[str]]:
    return ASCII_WORD.finditer(text.lower()) if text.isascii() else WORD.finditer(text.casefold())


def span_hashes(words: Sequence[str]) -> Iterator[int]:
    """Yield a number for each span of `SPAN_WORDS` words, in their order."""
    codes = [crc32(word.encode("utf-8", "replace")) for word in words]
    rolling = 0
    for at, code in enumerate(codes):
        if at >= SPAN_WORDS:
            rolling -= codes[at - SPAN_WORDS] * TOP
        rolling = (rolling * BASE + code) % MODULUS
        if at >= SPAN_WORDS - 1:
            yield rolling


def system_keys(messages: Sequence[ChatMessage]) -> list[bytes]:
    """The keys of the system prompt: of all system messages at the beginning."""
    return [message_key(message) for message in messages[: len(messages) - len(without_system(messages))]]


def without_system(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    start = next((at for at, message in enumerate(messages) if message["role"] not in ("system", "developer")), len(messages))
    return messages[start:]


def hint_evidence(messages: Sequence[ChatMessage], signal: str) -> Evidence:
    """The evidence that the client itself gives: a name that it uses for this chat alone."""
    return Evidence(COMPACTION, min(len(system_keys(messages)), len(messages) - 1), {"signal": signal})


def system_digest(messages: Sequence[ChatMessage]) -> bytes:
    return sha256(b"".join(len(key).to_bytes(8, "big") + key for key in system_keys(messages))).digest()


def span_trace(system: bytes, span: int) -> bytes:
    return trace(b"span", system, span.to_bytes(8, "big"))


def trace(kind: bytes, system: bytes, value: bytes) -> bytes:
    return sha256(kind + system + value).digest()
