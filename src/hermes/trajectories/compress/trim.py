"""Cut a tool result inside its turn: the head and the tail stay, and a mark between them says how much was left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hermes.trajectories.compress.settings import TargetSettings
from hermes.trajectories.compress.token_counter import TokenCounter
from hermes.trajectories.sharegpt_turns import is_text_part

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
