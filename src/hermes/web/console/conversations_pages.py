"""`/console/conversations` and `/console/conversations/{session_id}`: the list, and one conversation as a message graph."""

import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse, Response

from hermes.console.conversation_file import write_conversation
from hermes.console.conversation_views import MAX_RUN, WINDOW_ROWS, GraphView, RowFold, RowView
from hermes.console.conversations import subject_of
from hermes.console.graph_windows import GraphQuery
from hermes.console.gutter import draw_fold, draw_gutter, draw_shapes, gutter_width
from hermes.console.message_text import first_line, message_text
from hermes.ports.conversations import ConversationFilter
from hermes.ports.errors import NotFound
from hermes.turn import Platform
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.pages import CONSOLE_HEADERS
from hermes.web.console.visits import Visit, read_form
from hermes.web.errors import ApiError

PAGE_ROWS = 50
SHOWN_VERSIONS = 12
LINE_CHARS, TEXT_CHARS = 180, 4_000
NUMBERS = re.compile(r"[0-9]{1,9}(,[0-9]{1,9}){0,99}")


def conversation_page_routes(web: ConsoleWeb) -> APIRouter:
    """The list, a graph, and its file."""
    routes = APIRouter(include_in_schema=False)
    conversations = web.console.conversations

    @routes.get("/console/conversations")
    async def list_conversations(
        visit: Annotated[Visit, Depends(web.visits.find)],
        *,
        platform: str = "",
        user: UUID | None = None,
        conversation: UUID | None = None,
        before: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    ) -> Response:
        wanted = ConversationFilter(platform=platform or None, user_id=user, conversation_id=conversation)
        rows = await conversations.list(visit.actor, wanted, before=before, limit=PAGE_ROWS + 1)
        kept = {"platform": platform, "user": user or "", "conversation": conversation or ""}
        return web.pages.render(
            "conversations.html",
            {
                "visit": visit,
                "page": "conversations",
                "rows": rows[:PAGE_ROWS],
                "kept": kept,
                "filters": [(name, "/console/conversations" + query_of(kept | {"platform": name})) for name in ("", *Platform)],
                "next_href": query_of(kept | {"before": rows[PAGE_ROWS - 1].number}) if len(rows) > PAGE_ROWS else "",
            },
        )

    @routes.get("/console/conversations/{name}")
    async def show_conversation(
        name: str,
        visit: Annotated[Visit, Depends(web.visits.find)],
        *,
        start: Annotated[int, Query(alias="from", ge=0)] = 0,
        row: Annotated[int | None, Query(ge=0)] = None,
        turn: UUID | None = None,
        unfold: str = "",
        whole: Annotated[int | None, Query(ge=0)] = None,
        chat: Annotated[int | None, Query(ge=0, le=1_000_000)] = None,
        versions: str = "",
        diff: str = "",
    ) -> Response:
        try:
            facts = await conversations.find(visit.actor, name)
        except NotFound as error:
            raise ApiError(404, "not_found", str(error)) from None
        if name != str(facts.session_id):
            more = {"turn": name} if turn is None and row is None else {}
            return RedirectResponse(f"/console/conversations/{facts.session_id}{query_of(more)}", 302)
        opened = None if facts.is_erased else await conversations.find_opened(visit.actor, facts)
        if chat is not None and opened is None:  # even the shape of a nested chat is sealed
            return RedirectResponse(f"/console/conversations/{facts.session_id}", 302)
        query = GraphQuery(start=start, row=row if whole is None else whole, turn_id=turn, unfolded=numbers_of(unfold), chat=chat)
        view = await conversations.read(facts, query, opened)
        compared, fault = None, ""
        if diff:
            try:
                compared = await conversations.diff(facts, diff, opened, chat)
            except ValueError as error:
                fault = str(error)
        values = page_values(
            view, {"unfold": unfold, "chat": "" if chat is None else chat}, whole=whole, has_all_versions=versions == "all"
        )
        return web.pages.render(
            "conversation.html",
            {
                "visit": visit,
                "page": "conversations",
                "opened": opened if view.is_open else None,
                "needs_reason": web.console.access.needs_reason,
                "subject": subject_of(facts),
                "compared": compared,
                "fault": fault,
                **values,
            },
        )

    @routes.post("/console/conversations/{session_id}/export")
    async def export_conversation(session_id: UUID, request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        form = await read_form(request)
        facts = await conversations.find(visit.actor, str(session_id))
        opened = await conversations.find_opened(visit.actor, facts)
        await conversations.permit_export(visit.actor, facts, is_open=opened is not None, reason=form.get("reason", ""))
        view = await conversations.read(facts, GraphQuery(is_whole=True), opened)
        headers = {**CONSOLE_HEADERS, "Content-Disposition": f'attachment; filename="conversation-{str(session_id)[:8]}.html"'}
        return Response(write_conversation(view, visit.operator), headers=headers, media_type="text/html; charset=utf-8")

    return routes


def query_of(values: Mapping[str, object]) -> str:
    kept = {name: str(value) for name, value in values.items() if value not in ("", None)}
    return f"?{urlencode(kept)}" if kept else ""


def numbers_of(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(","))) if NUMBERS.fullmatch(text) else frozenset()


def page_values(view: GraphView, kept: Mapping[str, object], *, whole: int | None, has_all_versions: bool) -> dict[str, object]:
    """What the template needs of a window: rows with their gutters and texts, and the addresses of what is around it."""
    layout = view.layout
    width = gutter_width(layout.lanes, has_hidden=any(row.hidden for row in layout.rows))
    versions = view.versions if has_all_versions else view.versions[:SHOWN_VERSIONS]
    return {
        "view": view,
        "facts": view.facts,
        "width": width,
        "shapes": draw_shapes(layout.lanes, width),
        "rows": [item_values(item, width, kept, whole) for item in view.items],
        "versions": versions,
        "more_versions": len(view.versions) - len(versions),
        "names": {"max_run": MAX_RUN, "window": WINDOW_ROWS},
        "here": query_of({**kept, "from": view.start or ""}),
        "previous_href": None if view.previous_start is None else query_of({**kept, "from": view.previous_start or ""}) or "?",
        "next_href": None if view.next_start is None else query_of({**kept, "from": view.next_start}),
        "chat_kept": query_of({"chat": kept["chat"]}),
    }


def item_values(item: RowView | RowFold, width: int, kept: Mapping[str, object], whole: int | None) -> dict[str, object]:
    if isinstance(item, RowFold):
        opened = ",".join(filter(None, (str(kept["unfold"]), str(item.first))))
        return {"fold": item, "gutter": draw_fold(item.row, width), "href": query_of({**kept, "unfold": opened, "row": item.first})}
    text = "" if item.message is None else message_text(item.message)
    line = first_line(text, LINE_CHARS)
    is_long = line != text
    limit = None if whole == item.row.number else TEXT_CHARS
    return {
        "fold": None,
        "view": item,
        "gutter": draw_gutter(item.row, item.glyph, width),
        "line": line,
        "text": text[:limit] if is_long else "",
        "left_out": 0 if limit is None else max(0, len(text) - limit),
    }
