"""A window of a message graph: which rows a page shows, and those rows with what was read for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from hermes.console.conversation_views import (
    WINDOW_ROWS,
    GraphView,
    RowContents,
    RowFold,
    RowGlyph,
    RowView,
    VersionView,
    fold_rows,
    view_row,
    view_versions,
)
from hermes.console.lane_rows import GraphLayout, LaneRow
from hermes.ports.conversations import SessionFacts, SessionReplay, SessionTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphQuery:
    """Which part of a graph: a window, by its place or by a row or turn in it."""

    start: int = 0
    row: int | None = None
    """The window with this row, instead of `start`."""
    turn_id: UUID | None = None
    """The window with the first row of this turn, instead of `start`."""
    unfolded: frozenset[int] = frozenset()
    is_whole: bool = False
    """All rows, without folds: for files."""
    chat: int | None = None
    """An attached chat instead of the conversation; opened graphs only."""


@dataclass(frozen=True, slots=True)
class PreparedGraph:
    """A layout with the turns of its nodes, and what every window of it needs."""

    layout: GraphLayout
    turns: dict[int, SessionTurn]
    replays: Sequence[SessionReplay]
    items: Sequence[int | RowFold]
    """What a page lists if the reader has unfolded nothing."""
    versions: Sequence[VersionView]

    @classmethod
    def of(cls, layout: GraphLayout, turns: dict[int, SessionTurn] | None = None, replays: Sequence[SessionReplay] = ()) -> PreparedGraph:
        return cls(layout, turns or {}, replays, fold_rows(layout), view_versions(layout))

    def rows_of_turn(self, turn_id: UUID) -> list[int]:
        """Return the numbers of the rows that a turn added."""
        return [row.number for row in self.layout.rows if (turn := self.turns.get(row.node)) is not None and turn.turn_id == turn_id]


@dataclass(frozen=True, slots=True)
class GraphWindow:
    """The part of a graph that a page shows."""

    prepared: PreparedGraph
    start: int
    """The first item's place among all items."""
    total: int
    items: Sequence[int | RowFold]
    marked: frozenset[int]
    """Rows that the reader asked for."""

    def rows(self) -> list[LaneRow]:
        """Return the rows of messages in it."""
        rows = [self.prepared.layout.rows[item] for item in self.items if isinstance(item, int)]
        return [row for row in rows if row.node >= 0]


def cut_window(prepared: PreparedGraph, query: GraphQuery) -> GraphWindow:
    """Return the window that a reader asked for."""
    layout = prepared.layout
    marked = [] if query.row is None else [query.row]
    if query.turn_id is not None:
        marked = prepared.rows_of_turn(query.turn_id)
    if query.is_whole:
        return GraphWindow(prepared, 0, len(layout.rows), range(len(layout.rows)), frozenset(marked))
    items = fold_rows(layout, query.unfolded) if query.unfolded else prepared.items
    start = max(0, query.start)
    if marked:
        start = next((at for at, item in enumerate(items) if (item if isinstance(item, int) else item.last) >= marked[0]), 0)
        start -= start % WINDOW_ROWS
    return GraphWindow(prepared, start, len(items), items[start : start + WINDOW_ROWS], frozenset(marked))


def view_window(
    facts: SessionFacts, window: GraphWindow, read: RowContents, *, chat: int | None = None, is_erased: bool = False
) -> GraphView:
    """Return a window with what was read for its rows."""
    prepared = window.prepared
    return GraphView(
        facts=facts,
        layout=prepared.layout,
        is_open=read.is_open,
        items=[item if isinstance(item, RowFold) else view_item(prepared, prepared.layout.rows[item], read) for item in window.items],
        start=window.start,
        total=window.total,
        versions=prepared.versions,
        replays=prepared.replays,
        chat=chat,
        marked=window.marked,
        is_erased=is_erased,
    )


def view_item(prepared: PreparedGraph, row: LaneRow, read: RowContents) -> RowView:
    if row.segment is not None and row.segment.replay_id is not None:
        replay = next((replay for replay in prepared.replays if replay.replay_id == row.segment.replay_id), None)
        return RowView(row=row, glyph=RowGlyph.REPLAY, replay=replay)
    return view_row(prepared.layout, row, prepared.turns, read)
