"""The difference between two versions of a graph, or between two of its messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from hermes.console.conversation_views import NOW, RowContents, version_name
from hermes.console.lane_rows import GraphLayout
from hermes.console.message_text import DiffPart, diff_words, message_text

SIDE = re.compile(rf"{NOW}|v[1-9][0-9]{{0,8}}|m[0-9]{{1,9}}")
MAX_DIFF_BLOCKS = 200
"""More differences than this are not shown."""


@dataclass(frozen=True, slots=True)
class DiffBlock:
    """Messages that both sides have, or one message that was changed, removed or added."""

    kind: str
    """same, changed, gone or new."""
    count: int = 1
    """How many messages, of those that both have."""
    old_row: int | None = None
    new_row: int | None = None
    role: str | None = None
    parts: Sequence[DiffPart] = ()


@dataclass(frozen=True, slots=True)
class ComparedSides:
    """Two versions, or two messages: which rows stand against each other. What they say is not read yet."""

    old_name: str
    new_name: str
    blocks: Sequence[DiffBlock]
    left_out: int
    """How many blocks are not shown."""

    def rows(self) -> list[int]:
        """The rows whose messages are needed."""
        return [row for block in self.blocks for row in (block.old_row, block.new_row) if row is not None]


@dataclass(frozen=True, slots=True)
class GraphDiff:
    """The difference between two sides, from the top."""

    old_name: str
    new_name: str
    blocks: Sequence[DiffBlock]
    left_out: int = 0
    """How many differences are not shown."""


def read_sides(text: str, layout: GraphLayout) -> ComparedSides:
    """Read `v1,now` or `m3,m17`. Raises ValueError."""
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or not all(SIDE.fullmatch(name) for name in names):
        raise ValueError("a diff is between two versions or two messages: v1,now or m3,m17")
    if (names[0][0] == "m") != (names[1][0] == "m"):
        raise ValueError("a version is compared with a version, a message with a message")
    (old_name, old), (new_name, new) = (read_side(name, layout) for name in names)
    blocks = compare_rows(set(old), set(new))
    return ComparedSides(old_name, new_name, blocks[:MAX_DIFF_BLOCKS], max(0, len(blocks) - MAX_DIFF_BLOCKS))


def read_side(name: str, layout: GraphLayout) -> tuple[str, list[int]]:
    count = len(layout.shape.versions)
    if name.startswith("m"):
        row = int(name[1:])
        if row >= len(layout.rows) or layout.rows[row].node < 0:
            raise ValueError(f"there is no message {row}")
        return f"message {row}", [row]
    place = count if name == NOW else int(name[1:]) - 1
    if place > count:
        raise ValueError(f"there is no version {place + 1}; there are {count}")
    return version_name(place, count), layout.path(place)


def compare_rows(old: set[int], new: set[int]) -> list[DiffBlock]:
    """Return what both sides have, and what was removed beside what stands in its place, from the top."""
    blocks: list[DiffBlock] = []
    gone: list[int] = []
    added: list[int] = []
    same = 0
    for row in sorted(old | new):
        if row in old and row in new:
            blocks += pair_rows(gone, added)
            gone, added = [], []
            same += 1
            continue
        if same:
            blocks.append(DiffBlock("same", same))
            same = 0
        (gone if row in old else added).append(row)
    blocks += pair_rows(gone, added)
    return [*blocks, DiffBlock("same", same)] if same else blocks


def pair_rows(gone: Sequence[int], added: Sequence[int]) -> list[DiffBlock]:
    kinds = {(True, True): "changed", (True, False): "gone", (False, True): "new"}
    return [DiffBlock(kinds[old is not None, new is not None], 1, old, new) for old, new in zip_longest(gone, added)]


def diff_graph(layout: GraphLayout, sides: ComparedSides, read: RowContents) -> GraphDiff:
    """Return the difference. Without content, sizes stand for the words."""
    blocks = [block if block.kind == "same" else fill_block(layout, block, read) for block in sides.blocks]
    return GraphDiff(sides.old_name, sides.new_name, blocks, sides.left_out)


def fill_block(layout: GraphLayout, block: DiffBlock, read: RowContents) -> DiffBlock:
    parts = diff_words(*(text_of(layout, row, read) for row in (block.old_row, block.new_row)))
    return replace(block, role=role_of(layout, block.old_row if block.new_row is None else block.new_row, read), parts=parts)


def text_of(layout: GraphLayout, row: int | None, read: RowContents) -> str:
    if row is None:
        return ""
    address = layout.shape.addresses[layout.rows[row].node]
    message = read.messages.get(address)
    return message_text(message) if message is not None else f"{read.sizes.get(address, 0):,} bytes"


def role_of(layout: GraphLayout, row: int | None, read: RowContents) -> str | None:
    message = None if row is None else read.messages.get(layout.shape.addresses[layout.rows[row].node])
    return None if message is None else message.role
