"""What the faces show of a message graph: a window of rows, folds, versions. Assembled from a layout and what was read for its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes.console.lane_rows import GraphLayout, LaneRow
    from hermes.ports.conversations import (
        CallCost,
        GraphMessage,
        GraphShape,
        SampleCall,
        SessionFacts,
        SessionReplay,
        SessionTurn,
        TurnCost,
    )

WINDOW_ROWS = 200
MAX_RUN, KEPT_ENDS = 20, 3
"""A run of rows in which nothing happens is folded if it is longer; its first and last rows stay."""
NOW = "now"


class RowGlyph(StrEnum):
    """What a row is, in the gutter."""

    SAMPLED = "●"
    CONTEXT = "○"
    TOOL = "◆"
    ERASED = "✂"
    CHAT = "▣"
    REPLAY = "↻"


GLYPH_NAMES: Mapping[RowGlyph, str] = {
    RowGlyph.SAMPLED: "sampled",
    RowGlyph.CONTEXT: "context",
    RowGlyph.TOOL: "tool result",
    RowGlyph.ERASED: "erased",
    RowGlyph.CHAT: "made by a nested chat",
    RowGlyph.REPLAY: "replay",
}


@dataclass(frozen=True, slots=True)
class RowFold:
    """Rows that are not shown until the reader asks for them."""

    first: int
    last: int
    row: LaneRow
    """The first of them: the lanes of all are the same."""
    sampled: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class SampleView:
    """One sample of a row."""

    response: str
    call: SampleCall | None
    """Only in an opened graph."""
    cost: CallCost | None
    notes: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowView:
    """A message as the faces show it."""

    row: LaneRow
    glyph: RowGlyph
    address: bytes = b""
    message: GraphMessage | None = None
    """Only in an opened graph."""
    size: int | None = None
    """In bytes, in a closed one."""
    samples: Sequence[SampleView] = ()
    turn: SessionTurn | None = None
    """The turn that added it."""
    is_turn_start: bool = False
    turn_cost: TurnCost | None = None
    """At the first row of the turn."""
    replay: SessionReplay | None = None
    starts: Sequence[str] = ()
    """Labels of versions that begin to differ in this row: `version 2 · edit`."""

    @property
    def first_sample(self) -> SampleView | None:
        return self.samples[0] if self.samples else None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionView:
    """A version in the list of versions."""

    place: int
    name: str
    kind: str | None
    """Of the edge to its successor; None for the current list."""
    successor: str | None
    messages: int
    own: int
    """Messages that only it and older versions have."""
    samples: int
    leaves_at: int | None
    """The row where it first differs from its successor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """A window of a graph."""

    facts: SessionFacts
    layout: GraphLayout
    is_open: bool
    items: Sequence[RowView | RowFold]
    start: int
    """The first item's place among all items."""
    total: int
    versions: Sequence[VersionView]
    replays: Sequence[SessionReplay]
    chat: int | None = None
    """The number of the attached chat that this is; None for the conversation itself."""
    marked: frozenset[int] = frozenset()
    """Rows that the reader asked for."""
    is_erased: bool = False

    @property
    def next_start(self) -> int | None:
        end = self.start + len(self.items)
        return end if end < self.total else None

    @property
    def previous_start(self) -> int | None:
        return max(0, self.start - WINDOW_ROWS) if self.start else None


@dataclass(slots=True)
class RowContents:
    """What was read for the rows of a window."""

    messages: Mapping[bytes, GraphMessage] = field(default_factory=dict)
    sizes: Mapping[bytes, int] = field(default_factory=dict)
    calls: Mapping[str, SampleCall] = field(default_factory=dict)
    costs: Mapping[str, CallCost] = field(default_factory=dict)
    """By sample id."""
    notes: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    turn_costs: Mapping[Any, TurnCost] = field(default_factory=dict)
    is_open: bool = False


def version_name(place: int, count: int) -> str:
    """`now` for the current list, else `version 1` for the oldest one."""
    return NOW if place == count else f"version {place + 1}"


def fold_rows(layout: GraphLayout, unfolded: frozenset[int] = frozenset()) -> list[int | RowFold]:
    """Return what a page lists: row numbers, and folds in place of long runs. `unfolded` are first rows of folds that stay open."""
    items: list[int | RowFold] = []
    run: list[LaneRow] = []

    def flush() -> None:
        hidden = run[KEPT_ENDS:-KEPT_ENDS]
        if len(run) > MAX_RUN and hidden[0].number not in unfolded:
            items.extend(row.number for row in run[:KEPT_ENDS])
            items.append(RowFold(hidden[0].number, hidden[-1].number, hidden[0], sum(bool(row.samples) for row in hidden)))
            items.extend(row.number for row in run[-KEPT_ENDS:])
        else:
            items.extend(row.number for row in run)
        run.clear()

    for row in layout.rows:
        if run and not continues_run(run[-1], row):
            flush()
        run.append(row)
    flush()
    return items


def continues_run(above: LaneRow, row: LaneRow) -> bool:
    """Whether nothing happens between two rows: the same lanes, nothing sampled in the current list, no lane that leaves or ends."""
    is_quiet = not (row.is_crossing or above.is_crossing or row.ends or above.ends or row.copied or above.copied)
    has_news = row.segment is None and (row.samples or above.samples)
    return is_quiet and not has_news and row.segment is above.segment and row.through == above.through and row.hidden == above.hidden


def pair_turns(shape: GraphShape, turns: Sequence[SessionTurn]) -> dict[int, SessionTurn]:
    """Return the turn that added each node. Turns and writes are paired from the end, as long as they added equally many messages: after
    an erasure all earlier writes are one. A write that is no append and fits no turn is a compaction."""
    paired: dict[int, SessionTurn] = {}
    left = list(turns)
    end = len(shape.addresses)
    for write in reversed(shape.writes):
        if left and write.added == left[-1].added:
            paired.update(dict.fromkeys(range(end - write.added, end), left.pop()))
        elif write.is_append:
            break
        end -= write.added
    return paired


def view_row(layout: GraphLayout, row: LaneRow, turns: Mapping[int, SessionTurn], read: RowContents) -> RowView:
    """Return a row with what was read for it."""
    shape = layout.shape
    address = shape.addresses[row.node]
    message = read.messages.get(address)
    turn = turns.get(row.node)
    is_turn_start = turn is not None and turns.get(row.node - 1) is not turn
    samples = [view_sample(shape.samples[at].response, read) for at in row.samples]
    return RowView(
        row=row,
        glyph=glyph_of(row, message),
        address=address,
        message=message,
        size=read.sizes.get(address),
        samples=samples,
        turn=turn,
        is_turn_start=is_turn_start,
        turn_cost=read.turn_costs.get(turn.turn_id) if turn is not None and is_turn_start else None,
        starts=start_labels(layout, row),
    )


def view_sample(response: str, read: RowContents) -> SampleView:
    call = read.calls.get(response)
    return SampleView(response, call, read.costs.get(call.sample_id) if call else None, read.notes.get(response, ()))


def glyph_of(row: LaneRow, message: GraphMessage | None) -> RowGlyph:
    if message is not None and message.is_erased:
        return RowGlyph.ERASED
    if message is not None and message.chat is not None:
        return RowGlyph.CHAT
    if row.samples:
        return RowGlyph.SAMPLED
    return RowGlyph.TOOL if message is not None and message.role in {"tool", "function"} else RowGlyph.CONTEXT


def start_labels(layout: GraphLayout, row: LaneRow) -> list[str]:
    """The names of versions that differ from this row on, each with the kind of its edge."""
    segment = row.segment
    if segment is not None and segment.version >= 0 and layout.place_of_row[segment.rows[0]] == row.number:
        return [f"version {segment.version + 1} · {segment.kind}"]
    skips = [leaving for leaving in row.leaves if not leaving.rows]
    return [f"version {leaving.version + 1} · {leaving.kind}, without what follows" for leaving in skips]


def view_versions(layout: GraphLayout) -> list[VersionView]:
    """Return all versions, the current list first, then the newest kept one."""
    shape, count = layout.shape, len(layout.shape.versions)
    places = {version.number: place for place, version in enumerate(shape.versions)} | {shape.live: count}
    samples: dict[int, int] = {}
    for sample in shape.samples:
        samples[sample.head] = samples.get(sample.head, 0) + 1
    own: dict[int, int] = {}
    first: dict[int, int] = {}
    for segment in layout.segments:
        own[segment.version] = own.get(segment.version, 0) + len(segment.rows)
        at = layout.place_of_row[segment.rows[0] if segment.rows else segment.leaves]
        first[segment.version] = min(at, first.get(segment.version, at))
    length = len(layout.current)
    views = [
        VersionView(
            place=count,
            name=NOW,
            kind=None,
            successor=None,
            messages=length,
            own=length,
            samples=samples.get(shape.live, 0),
            leaves_at=None,
        )
    ]
    for place in range(count - 1, -1, -1):
        version = shape.versions[place]
        length += sum(len(splice.rows) - (splice.stop - splice.start) for splice in layout.splices[place])
        views.append(
            VersionView(
                place=place,
                name=version_name(place, count),
                kind=version.kind,
                successor=version_name(places.get(version.successor, count), count),
                messages=length,
                own=own.get(place, 0),
                samples=samples.get(version.number, 0),
                leaves_at=first.get(place),
            )
        )
    return views
