"""A conversation as one HTML file, to send to a colleague: its stylesheet is inside, it has no script, and it loads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from importlib import resources

from hermes import __version__
from hermes.console.conversation_views import GraphView, RowFold, RowView
from hermes.console.gutter import draw_gutter, draw_shapes, gutter_width
from hermes.console.masking import show_identifier
from hermes.console.message_text import first_line, message_text, show_hidden
from hermes.ports.operators import Operator

LINE_CHARS = 180
HEADINGS = "".join(f'<th scope="col">{name}</th>' for name in ("Graph", "#", "Message", "Sampled by"))
STYLES = ("console.css", "conversation.css")


def write_conversation(view: GraphView, operator: Operator, *, at: datetime | None = None) -> str:
    """Return the file. Its last line says who exported it, and when."""
    facts = view.facts
    width = gutter_width(view.layout.lanes, has_hidden=any(row.hidden for row in view.layout.rows))
    shapes = draw_shapes(view.layout.lanes, width)
    columns = f'<col width="{max(width, 56)}"><col width="44"><col><col width="160">'
    title = f"Conversation {str(facts.session_id)[:8]}"
    who = "erased" if view.is_erased else show_identifier(facts.channel_id, operator)
    about = (
        f"{facts.platform} · {who} · {facts.messages:,} messages · {len(view.versions):,} versions · "
        f"{facts.started_at.astimezone(UTC):%Y-%m-%d %H:%M} to {facts.last_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    )
    content = "with what was said" if view.is_open else "without what was said: sizes stand for words"
    footer = f"Exported by {operator.name} on {at or datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC from Hermes {__version__}, {content}."
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{escape(title)}</title><style>{read_styles()}</style></head>",
            '<body class="file"><main>',
            f'<h1>{escape(title)}</h1><p class="faint">{escape(about)}</p>',
            f'<div class="table graph{"" if view.is_open else " closed"}">{shapes}',
            f"<table><colgroup>{columns}</colgroup><thead><tr>{HEADINGS}</tr></thead><tbody>",
            *file_rows(view, width),
            f'</tbody></table></div><footer class="faint">{escape(footer)}</footer></main></body></html>',
            "",
        )
    )


def read_styles() -> str:
    static = resources.files("hermes") / "web" / "console" / "static"
    return "".join((static / name).read_text(encoding="utf-8") for name in STYLES)


def file_rows(view: GraphView, width: int) -> Iterator[str]:
    for item in view.items:
        if not isinstance(item, RowFold):
            gutter = draw_gutter(item.row, item.glyph, width)
            cells = f"<td>{gutter}</td><td>{item.row.number}</td>"
            yield f'<tr id="m{item.row.number}">{cells}<td>{message_cell(item)}</td><td>{escape(sampling_models(item))}</td></tr>'


def message_cell(item: RowView) -> str:
    labels = "".join(f'<span class="chip warn">{escape(label)}</span> ' for label in item.starts)
    if item.replay is not None:
        return f"replay with {escape(item.replay.model)}"
    if item.message is None:
        return f"{labels}{item.size or 0:,} bytes"
    text = message_text(item.message)
    role, line = f'<b class="role">{escape(item.message.role)}</b>', first_line(text, LINE_CHARS)
    if line == text:
        return f'<div class="m">{labels}<span class="line">{role} {escape(show_hidden(line))}</span></div>'
    return (
        f'<div class="m">{labels}<details class="line"><summary>{role} {escape(show_hidden(line))}</summary>'
        f'<pre class="text">{escape(show_hidden(text))}</pre></details></div>'
    )


def sampling_models(item: RowView) -> str:
    """Return the models behind a row."""
    models = [sample.call.model or "a model" for sample in item.samples if sample.call is not None]
    return ", ".join(dict.fromkeys(models))
