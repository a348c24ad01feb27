"""A message graph as one SVG image: its rows, the lanes of its versions, and the first line of each message.

It needs no browser, no script and nothing beside it, so a document, a ticket or a chat can show it. It shows a stored conversation, or a
graph in memory. In a closed conversation sizes stand for words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from hermes import __version__
from hermes.console.amounts import count_phrase
from hermes.console.chat_shapes import calls_of, messages_of, shape_of
from hermes.console.conversation_file import sampling_models
from hermes.console.conversation_views import GLYPH_NAMES, GraphView, RowContents, RowFold, RowGlyph, RowView, VersionView
from hermes.console.graph_windows import PreparedGraph, view_item
from hermes.console.gutter import MIDDLE_PX, ROW_PX, draw_fold, draw_glyph, draw_gutter, draw_shapes, gutter_width
from hermes.console.lane_rows import GraphLayout
from hermes.console.lanes import lay_out
from hermes.console.masking import show_identifier
from hermes.console.message_text import first_line, message_text, show_hidden
from hermes.graph import MessageGraph
from hermes.graph.stored_graph import history_of
from hermes.ports.operators import Operator

LINE_CHARS = 160
HOVER_CHARS = 4_000
"""How much of a message a viewer of SVG shows when the pointer rests on its row."""
NUMBER_PX, ROLE_PX, LINE_PX, MODEL_PX, PAD_PX = 40, 76, 800, 170, 16
HEAD_PX, VERSION_PX, FOOT_PX = 58, 18, 46
BASELINE_PX = MIDDLE_PX + 5

LANE_COLOURS = {
    "light": ("#1a1a1a", "#b4541a", "#1f6fb2", "#7a3fb0", "#1a7f43", "#b3266f", "#6b6410", "#2a7d7d", "#6b6b6b"),
    "dark": ("#ececec", "#f0a36b", "#7cbcf2", "#c79bf2", "#6fd394", "#f28fc0", "#d6cc6a", "#7fd4d4", "#a0a0a0"),
}
PAPER = {"light": ("#ffffff", "#fff3c4"), "dark": ("#17181a", "#4a3f12")}
STYLE = """text { font: 13px system-ui, sans-serif; fill: var(--c0); white-space: pre; }
.faint { fill: var(--c8); } .role { font-weight: 600; fill: var(--c8); } .title { font-size: 17px; font-weight: 600; }
.start { font-weight: 600; } .small { font-size: 12px; } .paper { fill: var(--paper); } .marked { fill: var(--mark); }
path, circle { stroke: currentColor; stroke-width: 2; fill: none; } .f { fill: currentColor; } .h { fill: var(--paper); }
.d { stroke-dasharray: 2 3; } .r { stroke-dasharray: 5 4; }"""

# Beyond what XML can hold at all: halves of surrogate pairs and two code points.
_NO_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDrawing:
    """What an image shows."""

    title: str
    about: str
    footer: str
    layout: GraphLayout
    items: Sequence[RowView | RowFold]
    versions: Sequence[VersionView]
    marked: frozenset[int] = frozenset()
    """Rows with a coloured ground."""


def svg_of_conversation(view: GraphView, operator: Operator, *, at: datetime | None = None) -> str:
    """Return the image of a stored conversation. Its last line says who exported it, and when."""
    facts = view.facts
    who = "erased" if view.is_erased else show_identifier(facts.channel_id, operator)
    counts = f"{count_phrase(facts.messages, 'message')} · {count_phrase(len(view.versions), 'version')}"
    content = "with what was said" if view.is_open else "without what was said: sizes stand for words"
    drawing = GraphDrawing(
        title=f"Conversation {str(facts.session_id)[:8]}",
        about=f"{facts.platform} · {who} · {counts} · {facts.started_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        footer=f"Exported by {operator.name} on {at or datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC from Hermes {__version__}, {content}.",
        layout=view.layout,
        items=view.items,
        versions=view.versions,
        marked=view.marked,
    )
    return draw_svg(drawing)


def svg_of_graph(graph: MessageGraph, name: str) -> str:
    """Return the image of a graph in memory. The graph must not change meanwhile."""
    history = history_of(graph)
    prepared = PreparedGraph.of(lay_out(shape_of(history)))
    chats = {id(node.chat.history): number for number, node in enumerate(history.all_nodes()) if node.chat is not None}
    contents = RowContents(messages=messages_of(history, chats), calls=calls_of(history), is_open=True)
    rows = [view_item(prepared, row, contents) for row in prepared.layout.rows]
    drawing = GraphDrawing(
        title=name,
        about=f"{count_phrase(len(graph), 'message')} · {count_phrase(len(prepared.versions), 'version')}",
        footer=f"Drawn by Hermes {__version__}. verify: {graph.verify().status}.",
        layout=prepared.layout,
        items=rows,
        versions=prepared.versions,
    )
    return draw_svg(drawing)


def draw_svg(drawing: GraphDrawing) -> str:
    """Return the image as text."""
    layout, items = drawing.layout, drawing.items
    gutter = gutter_width(layout.lanes, has_hidden=any(row.hidden for row in layout.rows))
    top = HEAD_PX + VERSION_PX * len(drawing.versions)
    width = PAD_PX * 2 + gutter + NUMBER_PX + ROLE_PX + LINE_PX + MODEL_PX
    height = top + ROW_PX * len(items) + FOOT_PX
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{xml_text(drawing.title)}</title>",
            f"<style>{draw_styles()}</style>",
            draw_shapes(layout.lanes, gutter),
            f'<rect class="paper" width="{width}" height="{height}"/>',
            f'<text class="title" x="{PAD_PX}" y="28">{xml_text(drawing.title)}</text>',
            f'<text class="faint" x="{PAD_PX}" y="46">{xml_text(drawing.about)}</text>',
            *_version_lines(drawing.versions),
            *(_row(item, drawing, gutter, top + ROW_PX * place) for place, item in enumerate(items)),
            *_foot(drawing.footer, height - FOOT_PX),
            "</svg>",
            "",
        )
    )


def draw_styles() -> str:
    """Return the stylesheet: colours of the lanes by their number, for light and for dark readers."""
    sheets = []
    for kind, colours in LANE_COLOURS.items():
        paper, mark = PAPER[kind]
        names = "".join(f"--c{lane}:{colour};" for lane, colour in enumerate(colours))
        sheets.append(f":root{{{names}--paper:{paper};--mark:{mark}}}")
    lanes = "".join(f".c{lane}{{color:var(--c{lane})}}" for lane in range(len(LANE_COLOURS["light"])))
    return f"{sheets[0]}@media (prefers-color-scheme: dark){{{sheets[1]}}}\n{STYLE}\n{lanes}"


def xml_text(text: str) -> str:
    """Return a text as XML can hold it, with hidden characters made visible."""
    return escape(_NO_XML.sub("�", show_hidden(text)))


def _version_lines(versions: Sequence[VersionView]) -> Iterator[str]:
    for place, version in enumerate(versions):
        kind = f" · {version.kind} → {version.successor}" if version.kind is not None else ""
        own = "" if version.successor is None else f", {version.own} of its own"
        text = f"{version.name}{kind}: {count_phrase(version.messages, 'message')}{own}, {version.samples} sampled"
        yield f'<text class="small faint" x="{PAD_PX}" y="{HEAD_PX + VERSION_PX * place + 4}">{xml_text(text)}</text>'


def _row(item: RowView | RowFold, drawing: GraphDrawing, gutter: int, y: int) -> str:
    lanes = draw_fold(item.row, gutter) if isinstance(item, RowFold) else draw_gutter(item.row, item.glyph, gutter)
    drawn = f'<svg x="{PAD_PX}" y="{y}" width="{gutter}" height="{ROW_PX}" overflow="hidden">{lanes}</svg>'
    x, base = PAD_PX + gutter, y + BASELINE_PX
    if isinstance(item, RowFold):
        return f'{drawn}<text class="faint" x="{x + NUMBER_PX}" y="{base}">{count_phrase(item.count, "more message")}</text>'
    number = item.row.number
    ground = f'<rect class="marked" x="{x}" y="{y}" width="{NUMBER_PX + ROLE_PX + LINE_PX}" height="{ROW_PX}"/>'
    place = f'<text class="faint" text-anchor="end" x="{x + NUMBER_PX - 10}" y="{base}">{number}</text>'
    role = "" if item.message is None else f'<text class="role" x="{x + NUMBER_PX}" y="{base}">{xml_text(item.message.role)}</text>'
    words = f'<svg x="{x + NUMBER_PX + ROLE_PX}" y="{y}" width="{LINE_PX}" height="{ROW_PX}" overflow="hidden">{_words(item)}</svg>'
    model = f'<text class="small faint" x="{x + NUMBER_PX + ROLE_PX + LINE_PX + 10}" y="{base}">{xml_text(sampling_models(item))}</text>'
    return f"<g>{ground if number in drawing.marked else ''}{drawn}{place}{role}{words}{model}</g>"


def _words(item: RowView) -> str:
    colour = f"fill:var(--c{item.row.lane})"
    starts = "".join(f'<tspan class="start" style="{colour}">{xml_text(label)}</tspan>  ' for label in item.starts)
    if item.replay is not None:
        text = whole = f"replay with {item.replay.model}: {item.replay.state}"
    elif item.message is None:
        text = whole = f"{item.size or 0:,} bytes"
    else:
        whole = message_text(item.message)
        text = first_line(whole, LINE_CHARS)
    hover = "" if whole == text else f"<title>{xml_text(whole[:HOVER_CHARS])}</title>"
    return f'<text y="{BASELINE_PX}">{hover}{starts}{xml_text(text)}</text>'


def _foot(footer: str, y: int) -> Iterator[str]:
    x = PAD_PX
    for glyph in (glyph for glyph in RowGlyph if glyph is not RowGlyph.REPLAY):
        yield f'<svg x="{x}" y="{y}" width="20" height="{ROW_PX}">{draw_glyph(glyph, 9, 0)}</svg>'
        yield f'<text class="small faint" x="{x + 20}" y="{y + BASELINE_PX}">{GLYPH_NAMES[glyph]}</text>'
        x += 40 + 7 * len(GLYPH_NAMES[glyph])
    yield f'<text class="small faint" x="{PAD_PX}" y="{y + ROW_PX + 10}">{xml_text(footer)}</text>'
