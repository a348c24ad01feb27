"""`/v1/ops/conversations`: the list, and the message graph of one, for programs of operators."""

import hashlib
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from hermes.console.conversation_json import conversation_json, facts_json, item_json, versions_json
from hermes.console.graph_windows import GraphQuery
from hermes.ports.conversations import ConversationFilter
from hermes.ports.errors import NotFound
from hermes.ports.operators import Actor
from hermes.web.console.console_json import ConsoleJson
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.visits import ReasonHeader
from hermes.web.errors import ApiError

MAX_PAGE = 200
NO_STORE = {"Cache-Control": "private, no-cache"}


def conversation_api_routes(web: ConsoleWeb) -> APIRouter:
    """`GET /v1/ops/conversations` and `GET /v1/ops/conversations/{name}/graph`."""
    routes = APIRouter(tags=["operations"], default_response_class=ConsoleJson)
    conversations = web.console.conversations

    @routes.get("/v1/ops/conversations", summary="Sessions, the newest first")
    async def list_sessions(
        actor: Annotated[Actor, Depends(web.visits.find_program)],
        *,
        platform: Annotated[str | None, Query(max_length=100, pattern=r"^[^\x00]*$")] = None,
        user: UUID | None = None,
        conversation: UUID | None = None,
        before: Annotated[int | None, Query(ge=1, lt=2**63, description="`next` of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    ) -> dict[str, Any]:
        """A session is one message graph; `conversation` and `user` narrow the list by id."""
        wanted = ConversationFilter(platform=platform, user_id=user, conversation_id=conversation)
        rows = await conversations.list(actor, wanted, before=before, limit=limit + 1)
        following = str(rows[limit - 1].number) if len(rows) > limit else None
        return {"data": [conversation_json(row, actor.operator) for row in rows[:limit]], "next": following}

    @routes.get("/v1/ops/conversations/{name}/graph", summary="A window of a conversation's message graph")
    async def read_graph(
        name: str,
        request: Request,
        actor: Annotated[Actor, Depends(web.visits.find_program)],
        *,
        before: Annotated[int, Query(alias="from", ge=0)] = 0,
        content: bool = False,
        chat: Annotated[int | None, Query(ge=0, le=1_000_000)] = None,
        reason: ReasonHeader = "",
    ) -> Response:
        """`content=true` opens it: the audit log notes that, with `X-Hermes-Reason`. `next` is the `from` of the following window."""
        try:
            facts = await conversations.find(actor, name)
        except NotFound as error:
            raise ApiError(404, "not_found", str(error)) from None
        opened = await conversations.open(actor, facts, reason) if content or chat is not None else None
        view = await conversations.read(facts, GraphQuery(start=before, chat=chat), opened)
        body = {
            "data": [item_json(item, view) for item in view.items],
            "next": None if view.next_start is None else str(view.next_start),
            "session": facts_json(facts, actor.operator),
            "versions": versions_json(view),
            "is_open": view.is_open,
            "lanes": view.layout.lanes,
        }
        response = ConsoleJson(body, headers=NO_STORE)
        if opened is not None:
            return response
        # Of what is answered, not of the session's mark: who reads, and that its owner was forgotten, changes no message.
        tag = f'"{hashlib.sha256(response.body).hexdigest()[:32]}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag, **NO_STORE})
        response.headers["ETag"] = tag
        return response

    return routes
