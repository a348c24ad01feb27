"""The gutter beside a row of a message graph: its lanes as SVG for pages and files, and as characters for a terminal.

No style is written into the SVG: classes name the lane (`c0`, `c1`, …) and the kind of line or mark; a stylesheet gives them looks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from hermes.console.conversation_views import GLYPH_NAMES, RowGlyph
from hermes.console.lane_rows import MAX_LANES, REPLAY, LaneRow, LaneSegment

LANE_PX, MIDDLE_PX, ROW_PX = 14, 15, 30
LEFT_PX = 9
HIDDEN_PX = 22
DOWN = "V9999"
"""To the end of the row, however high it is: the SVG is cut off there."""
BAR = f"0{DOWN}"


def gutter_width(lanes: int, *, has_hidden: bool) -> int:
    """Return how wide the gutter is, in pixels."""
    return LEFT_PX * 2 + (lanes - 1) * LANE_PX + (HIDDEN_PX if has_hidden else 0)


def draw_shapes(lanes: int, width: int) -> str:
    """Return the shapes that many rows share, once for a page: a row names them, which keeps a page of 200 rows small."""
    shapes = []
    for lane in (*range(lanes), MAX_LANES):
        x, y = lane_x(lane, width), MIDDLE_PX
        shapes += [
            f'<path id="{name}{lane}" class="c{lane}" d="M{x} {way}"/>' for name, way in (("t", BAR), ("a", f"0V{y}"), ("b", f"{y}{DOWN}"))
        ]
        shapes += [f'<circle id="{name}{lane}" class="c{lane} {name}" cx="{x}" cy="{y}" r="5"/>' for name in ("f", "h")]
    return f'<svg width="0" height="0" aria-hidden="true"><defs>{"".join(shapes)}</defs></svg>'


def draw_gutter(row: LaneRow, glyph: RowGlyph, width: int) -> str:
    """Return a row's gutter as SVG, with shapes of `draw_shapes`. Lines go on beyond it: a row may be higher than one line of text."""
    x, segment = lane_x(row.lane, width), row.segment
    shapes = [f'<use href="#t{lane}"/>' for lane in row.through]
    is_replay = segment is not None and segment.kind == REPLAY
    if row.has_above and row.has_below and not is_replay:
        shapes.append(f'<use href="#t{row.lane}"/>')
    else:
        if row.has_above:
            shapes.append(f'<path class="c{row.lane} r" d="M{x} 0V{MIDDLE_PX}"/>' if is_replay else f'<use href="#a{row.lane}"/>')
        elif segment is not None:
            shapes.append(_begin(segment, x))
        if row.has_below:
            shapes.append(f'<use href="#b{row.lane}"/>')
    shapes += [_join(joining, x, width) for joining in row.joins]
    shapes += [_leave(leaving, x, width) for leaving in row.leaves]
    if row.hidden:
        shapes.append(f'<text x="{width - HIDDEN_PX + 2}" y="{MIDDLE_PX - 5}">+{row.hidden}</text>')
    shapes.append(draw_glyph(glyph, x, row.lane))
    return f'<svg width="{width}" role="img"><title>{GLYPH_NAMES[glyph]}</title>{"".join(shapes)}</svg>'


def draw_fold(row: LaneRow, width: int) -> str:
    """Return the gutter of a fold: the lanes of its rows, without a glyph."""
    shapes = [f'<use href="#t{lane}"/>' for lane in row.through]
    shapes.append(f'<path class="c{row.lane} r" d="M{lane_x(row.lane, width)} {BAR}"/>')
    return f'<svg width="{width}" aria-hidden="true">{"".join(shapes)}</svg>'


def lane_x(lane: int, width: int) -> int:
    return LEFT_PX + lane * LANE_PX if lane < MAX_LANES else width - LEFT_PX


def draw_glyph(glyph: RowGlyph, x: int, lane: int) -> str:
    y = MIDDLE_PX
    if glyph is RowGlyph.TOOL:
        return f'<path class="c{lane} f" d="M{x} {y - 6}l6 6-6 6-6-6z"/>'
    if glyph is RowGlyph.CHAT:
        return f'<path class="c{lane} h" d="M{x - 5} {y - 5}h10v10h-10zm3 3h4v4h-4z"/>'
    if glyph is RowGlyph.ERASED:
        return f'<path class="c{lane} h" d="M{x - 4} {y - 4}l8 8m0-8l-8 8"/>'
    return f'<use href="#{"f" if glyph is RowGlyph.SAMPLED else "h"}{lane}"/>'


def _join(segment: LaneSegment, x: int, width: int) -> str:
    from_x = lane_x(segment.lane, width)
    return _edge(segment, f"M{from_x} 0Q{from_x} {MIDDLE_PX} {x} {MIDDLE_PX}")


def _leave(segment: LaneSegment, x: int, width: int) -> str:
    to_x = lane_x(segment.lane, width)
    return _edge(segment, f"M{x} {MIDDLE_PX}Q{to_x} {MIDDLE_PX} {to_x} {ROW_PX}{DOWN}")


def _begin(segment: LaneSegment, x: int) -> str:
    """A version that differs from its first message on leaves the list before the first row."""
    return _edge(segment, f"M{LEFT_PX} 0Q{x} 0 {x} {MIDDLE_PX}")


def _edge(segment: LaneSegment, way: str) -> str:
    kind = "r" if segment.kind == REPLAY else "d"
    return f'<path class="c{segment.lane} {kind}" d="{way}"><title>{escape(segment.kind)}</title></path>'


# --- in a terminal


def gutter_text(row: LaneRow, glyph: RowGlyph, lanes: int) -> str:
    """Return a row's gutter as characters, two for each lane: `○─╮`, `│ ●`, `○─╯`."""
    cells = ["│" if lane in row.through else " " for lane in range(lanes)]
    reach = row.lane
    for lanes_of, sign in ((_visible(row.joins), "╯"), (_visible(row.leaves), "╮")):
        for lane in lanes_of:
            cells[lane] = "┤" if cells[lane] == "╯" else sign
            reach = max(reach, lane)
    if row.lane < lanes:
        cells[row.lane] = glyph
    text = ""
    for lane, cell in enumerate(cells):
        is_crossed = row.lane < lane < reach
        text += ("─" if cell == " " else "┼" if cell == "│" else cell) if is_crossed else cell
        text += "─" if row.lane <= lane < reach else " "
    return text + (f"+{row.hidden}" if row.hidden else "") + (f" {glyph}" if row.lane >= lanes else "")


def fold_text(row: LaneRow, lanes: int) -> str:
    return "".join(("┊ " if lane == row.lane else "│ " if lane in row.through else "  ") for lane in range(lanes))


def _visible(segments: Iterable[LaneSegment]) -> list[int]:
    return [segment.lane for segment in segments if segment.lane < MAX_LANES]
