"""What the messages of a conversation take in tokens: all together, one by one, with tool results cut, and with summaries in their places.

A tool result is cut inside its turn: the head and the tail stay, and a mark between them says how much was left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from hermes.graph.message import REASONING
from hermes.trajectories.compress.settings import CompressionSettings, TargetSettings
from hermes.trajectories.compress.token_counter import TOKENS_PER_MESSAGE, TokenCounter, message_texts
from hermes.trajectories.compress.turns import is_summary
from hermes.trajectories.errors import SessionError
from hermes.trajectories.sharegpt_turns import is_text_part
from hermes.trajectories.text_rows import reasoning_of

_MARK = re.compile(r"\n\[… ([\d,]+) tokens left out …\]\n")


def result_text(message: Mapping[str, Any]) -> str | None:
    """Return the text of a tool result that can be cut: its content, or the longest text among its parts; None for other messages."""
    if message["role"] not in ("tool", "function"):
        return None
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = [part["text"] for part in content if is_text_part(part)] if isinstance(content, list) else []
    return max(texts, key=len, default=None)


def with_text(message: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return a tool result with another text; all its other fields stay, also an attached chat."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": new}
    at = next(place for place, part in enumerate(content) if is_text_part(part) and part["text"] == old)
    return {**message, "content": [{**part, "text": new} if place == at else part for place, part in enumerate(content)]}


def min_result_tokens(settings: TargetSettings, counter: TokenCounter) -> int:
    """Return the shortest length that a result is cut to. A result that is no longer is left alone, so cutting twice changes nothing."""
    return max(settings.trim_keep_tokens, 3 * counter.count_text(_mark(999_999_999)))


def trim(text: str, keep_tokens: int, settings: TargetSettings, counter: TokenCounter) -> str:
    """Return a text cut to at most `keep_tokens` tokens, the mark included; the text itself if it is no longer than that."""
    total = counter.count_text(text)
    keep = max(keep_tokens, min_result_tokens(settings, counter))
    if total <= keep:
        return text
    room = keep - counter.count_text(_mark(total))
    while True:
        head = counter.head(text, round(room * settings.trim_head_share))
        tail = counter.tail(text[len(head) :], room - round(room * settings.trim_head_share))
        gone = text[len(head) : len(text) - len(tail)]
        left_out = counter.count_text(gone) + sum(int(number.replace(",", "")) for number in _MARK.findall(gone))
        short = f"{head}{_mark(left_out)}{tail}"
        over = counter.count_text(short) - keep
        if over <= 0:
            return short
        room -= over


def _mark(tokens: int) -> str:
    return f"\n[… {tokens:,} tokens left out …]\n"


REFUSED_TOKENS = 1 << 60
"""The tokens of a conversation that the chat template refuses: more than any target."""
SUMMARY_HEADER = "[CONTEXT SUMMARY"
"""How summaries begin with the default settings, also those of hermes-agent."""
_FRAME = re.compile(r"\A\[CONTEXT SUMMARY[^\]]*\]:?\s*")
_SENTENCE_END = re.compile(r"[.!?…](?=[\s\"')\]]|$)|[\u3002\uff01\uff1f]|\n")


class TokenScale:
    """Counts and trims messages under one set of settings."""

    def __init__(self, settings: CompressionSettings, counter: TokenCounter, tools: Sequence[Any]) -> None:
        self.settings, self.counter, self.tools = settings, counter, tools
        self.target = settings.compression.target_max_tokens
        self.headers = (settings.output.summary_header, settings.live.summary_header, SUMMARY_HEADER)

    def total(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """Return the tokens of a conversation; REFUSED_TOKENS if the template refuses it."""
        try:
            return self.count(messages)
        except SessionError:
            return REFUSED_TOKENS

    def count(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """Return the tokens of a conversation; raise SessionError if the template refuses it."""
        return self.counter.count([self.counted_form(message) for message in messages], self.tools)

    def counted_form(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a message as it is counted: with its reasoning in the content, as a ShareGPT row has it, or without reasoning."""
        if not any(name in message for name in REASONING):
            return message
        shown = {key: value for key, value in message.items() if key not in REASONING}
        thought, content = reasoning_of(message), message.get("content")
        if thought and self.settings.tokenizer.count_reasoning:
            think = f"<think>\n{thought}\n</think>\n"
            shown["content"] = [{"type": "text", "text": think}, *content] if isinstance(content, list) else f"{think}{content or ''}"
        return shown

    def tokens(self, message: Mapping[str, Any]) -> int:
        """Return about how many tokens a message takes. Counts text by text: a tool result's text is counted again when it is cut."""
        return sum(map(self.counter.count_text, message_texts(self.counted_form(message)))) + TOKENS_PER_MESSAGE

    # Tool results ------------------------------------------------------------------------------------------------

    def result_tokens(self, message: Mapping[str, Any]) -> int:
        text = result_text(message)
        return self.counter.count_text(text) if text is not None else 0

    @cached_property
    def min_result_tokens(self) -> int:
        """The shortest length that a tool result is cut to, in tokens."""
        return min_result_tokens(self.settings.compression, self.counter)

    def trim_result(self, message: Mapping[str, Any], keep_tokens: int) -> Mapping[str, Any]:
        """Return a tool result with at most so many tokens of text."""
        text = result_text(message) or ""
        short = trim(text, keep_tokens, self.settings.compression, self.counter)
        return message if short == text else with_text(message, text, short)

    # Summaries ---------------------------------------------------------------------------------------------------

    def stand_in(self, text: str, *, has_notice: bool) -> dict[str, Any]:
        """Return the message that replaces the summarised messages."""
        output = self.settings.output
        notice = output.summary_notice_text.strip() if has_notice and output.add_summary_notice else ""
        return {"role": "user", "content": f"{output.summary_header} {text}" + (f"\n\n{notice}" if notice else "")}

    def without_frame(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a message as a summariser sees it: an earlier summary without header and notice, and not as a user's message."""
        if not is_summary(message, self.headers):
            return message
        text = _FRAME.sub("", message["content"])
        for header in self.headers[:2]:
            text = text.removeprefix(header)
        return {"role": "system", "content": text.removesuffix(self.settings.output.summary_notice_text.strip()).strip()}

    def shortest_stand_in(self, turns: int) -> dict[str, Any]:
        """Return the shortest message that can replace so many turns."""
        return self.stand_in(f"{turns} turns left out." if turns != 1 else "1 turn left out.", has_notice=False)

    @cached_property
    def summary_overhead(self) -> int:
        """The tokens that a summary message takes beyond its text."""
        spare = 4  # tokens where texts meet that were counted separately
        return self.counter.count_text(self.stand_in("", has_notice=True)["content"]) + spare


def shorten(text: str, tokens: int, counter: TokenCounter) -> str:
    """Return a text cut to at most so many tokens, after a sentence if one ends near, else after a word."""
    if counter.count_text(text) <= tokens:
        return text
    head = counter.head(text, max(tokens, 0))
    ends = [match.end() for match in _SENTENCE_END.finditer(head)]
    if ends and ends[-1] >= 0.4 * len(head):
        return head[: ends[-1]].rstrip()
    is_between = head[-1:].isspace() or text[len(head) : len(head) + 1].isspace()
    return (head if is_between or len(head.split()) < 2 else head.rsplit(None, 1)[0]).rstrip()
