"""What a message says, as one text, and the difference between two texts by words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from hermes.ports.conversations import GraphMessage

ERASED = "erased"
WORD = re.compile(r"\s+|\w+|[^\w\s]")
MAX_DIFF_WORDS = 6_000
"""Of one text: longer ones are compared by lines, so that a page never takes seconds."""


def message_text(message: GraphMessage) -> str:
    """Return what a message says: its text, its parts, and the calls of tools in it."""
    if message.is_erased:
        return ERASED
    return "\n".join(part for part in _parts(message.fields) if part)


NOTE = re.compile(r"<context>\n.*?\n</context>\s+(?=\S)", re.DOTALL)
"""What Hermes writes before a user's words: the time, and what comes to mind."""


def first_line(text: str, chars: int) -> str:
    """Return the beginning of a text on one line: of the user's own words, if a note of Hermes stands before them."""
    line = " ".join(NOTE.sub("", text, count=1)[: 4 * chars].split() if NOTE.match(text) else text[: 4 * chars].split())
    return line if len(line) <= chars else line[: chars - 1] + "…"


HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Controls, marks of writing direction, characters without a width, and halves of characters; no page can hold those."""


def show_hidden(text: str) -> str:
    """Make characters visible that would change how the text around them is read, or that cannot be written: `⟨U+202E⟩`."""
    return HIDDEN.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", text)


def _parts(fields: Mapping[str, Any]) -> Iterator[str]:
    content = fields.get("content")
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        text = part.get("text") if isinstance(part, Mapping) else None
        yield text if isinstance(text, str) else f"[{part.get('type', 'part') if isinstance(part, Mapping) else 'part'}]"
    for call in fields.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, Mapping) else None
        yield f"→ {_call_text(function)}" if isinstance(function, Mapping) else "→ a tool"


def _call_text(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments", "")
    return f"{function.get('name', '?')}({arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)})"


class DiffPart(NamedTuple):
    """A piece of a diff: in both texts, or only in the old or in the new one."""

    kind: str
    """same, gone or new."""
    text: str


def diff_words(old: str, new: str) -> list[DiffPart]:
    """Return the difference between two texts, word by word; of long texts line by line."""
    one, other = WORD.findall(old), WORD.findall(new)
    if max(len(one), len(other)) > MAX_DIFF_WORDS:
        one, other = old.splitlines(keepends=True), new.splitlines(keepends=True)
    parts: list[DiffPart] = []
    for tag, a, b, c, d in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if tag == "equal":
            _add(parts, "same", one[a:b])
        else:
            _add(parts, "gone", one[a:b])
            _add(parts, "new", other[c:d])
    return parts


def _add(parts: list[DiffPart], kind: str, words: Sequence[str]) -> None:
    if words:
        parts.append(DiffPart(kind, "".join(words)))
