"""How two answers differ: their words, the arguments of their tool calls, and one number for how alike they are. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from hermes.ports.tools import ToolCall

MAX_WORDS = 4_000
"""Words of a text that are compared; an answer is far shorter, and the comparison takes time with the square of it."""
WORDS = re.compile(r"\s+|[^\s]+")


@dataclass(frozen=True, slots=True)
class DiffPiece:
    """A piece of text: `same` in both, `del` in the first alone, `ins` in the second alone."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolDiff:
    """A tool call of both answers, side by side."""

    name: str
    is_same: bool
    pieces: Sequence[DiffPiece]
    """The arguments as JSON, with sorted names."""


def canonical_arguments(text: str) -> str:
    """Arguments in one spelling; a text that is no JSON as it is."""
    try:
        return json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        return text


def call_key(call: ToolCall) -> tuple[str, str]:
    """Equal for calls with equal names and arguments, however the model spelled them."""
    return call.name, canonical_arguments(call.arguments)


def same_calls(first: Sequence[ToolCall], second: Sequence[ToolCall]) -> bool:
    """Whether two answers call the same tools with the same arguments, in any order."""
    return sorted(map(call_key, first)) == sorted(map(call_key, second))


def likeness(first: str, second: str) -> float:
    """From 0, no word in common, to 1, the same words in the same order."""
    left, right = first.split()[:MAX_WORDS], second.split()[:MAX_WORDS]
    return 1.0 if left == right else SequenceMatcher(None, left, right, autojunk=False).ratio()


def diff_words(first: str, second: str) -> list[DiffPiece]:
    """Both texts as pieces, in reading order."""
    return diff_parts(WORDS.findall(first)[: 2 * MAX_WORDS], WORDS.findall(second)[: 2 * MAX_WORDS])


def diff_parts(left: Sequence[str], right: Sequence[str]) -> list[DiffPiece]:
    """Compare two sequences of texts. A gap of white space between two changes belongs to both, so that a changed phrase stays whole."""
    pieces: list[DiffPiece] = []
    gone, new = "", ""
    codes = SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    for at, (kind, a, b, c, d) in enumerate(codes):
        before, after = "".join(left[a:b]), "".join(right[c:d])
        if kind != "equal" or (0 < at < len(codes) - 1 and not before.strip()):
            gone, new = gone + before, new + after
            continue
        pieces += [*changed_pieces(gone, new), DiffPiece("same", before)]
        gone, new = "", ""
    return [*pieces, *changed_pieces(gone, new)]


def changed_pieces(gone: str, new: str) -> list[DiffPiece]:
    return [DiffPiece(kind, text) for kind, text in (("del", gone), ("ins", new)) if text]


def diff_calls(first: Sequence[ToolCall], second: Sequence[ToolCall]) -> list[ToolDiff]:
    """Pair the tool calls of two answers by name, in their order, and compare the arguments. A call without a partner is compared with
    nothing."""
    rest = list(second)
    found = []
    for call in first:
        partner = next((other for other in rest if other.name == call.name), None)
        if partner is not None:
            rest.remove(partner)
        found.append(compare_calls(call, partner))
    return [*found, *(compare_calls(None, other) for other in rest)]


def compare_calls(first: ToolCall | None, second: ToolCall | None) -> ToolDiff:
    name = (first or second or ToolCall("", "", "")).name
    left, right = (spread_arguments(call.arguments) if call is not None else "" for call in (first, second))
    return ToolDiff(name, first is not None and second is not None and left == right, diff_lines(left, right))


def spread_arguments(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False, indent=2)
    except ValueError:
        return text


def diff_lines(first: str, second: str) -> list[DiffPiece]:
    return diff_parts(first.splitlines(keepends=True), second.splitlines(keepends=True))
