"""One turn as JSON, below `/v1/ops`: everything without content, why it went so, and, with a reason, its content."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends

from hermes.console.turn_content import content_json, context_json
from hermes.console.turn_view import call_json, turn_json, why_json
from hermes.ports.operators import Actor
from hermes.web.console.console_json import ConsoleJson
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.visits import ReasonHeader
from hermes.web.errors import ApiError


def turn_api_routes(web: ConsoleWeb) -> APIRouter:
    """`/v1/ops/turns/{turn_id}`, `/why`, `/context`, and `/v1/ops/calls/{call_id}`."""
    routes = APIRouter(tags=["operations"], default_response_class=ConsoleJson)
    visits, part, access = web.visits, web.console.turns, web.console.access
    program = Annotated[Actor, Depends(visits.find_program)]

    @routes.get("/v1/ops/turns/{turn_id}", summary="One turn without its content")
    async def get_turn(turn_id: UUID, actor: program) -> dict[str, Any]:
        """Return everything of a turn that needs no key: its ten steps, its calls with tokens and rates, its deliveries and credits."""
        return {"data": turn_json(await part.reader.read(actor, turn_id), actor.operator)}

    @routes.get("/v1/ops/turns/{turn_id}/why", summary="Why a turn went as it did")
    async def get_why(turn_id: UUID, actor: program) -> dict[str, Any]:
        """Return in one sentence, and in causes, why the turn went as it did."""
        return {"data": why_json((await part.reader.read(actor, turn_id)).why)}

    @routes.get("/v1/ops/turns/{turn_id}/context", summary="What was written and sent in a turn; opens it")
    async def get_context(turn_id: UUID, actor: program, reason: ReasonHeader = "") -> dict[str, Any]:
        """Return the content of a turn: what the user wrote, each context exactly as it was sent, answers, tools and delivered texts.

        Opens the conversation: the audit log has an entry of it. In production the header `X-Hermes-Reason` says why."""
        view = await part.reader.read(actor, turn_id)
        opened = await access.open(actor, view.subject, reason)
        return {"data": content_json(await part.content.read(opened, view.turn))}

    @routes.get("/v1/ops/calls/{call_id}", summary="One model call without its content")
    async def get_call(call_id: UUID, actor: program) -> dict[str, Any]:
        """Return a model call, whether it belongs to a turn or not, without its content."""
        return {"data": call_json((await part.reader.read_call(actor, call_id)).loose.recorded)}

    @routes.get("/v1/ops/calls/{call_id}/context", summary="What was sent in a call; opens it")
    async def get_call_context(call_id: UUID, actor: program, reason: ReasonHeader = "") -> dict[str, Any]:
        """Return the context and the answer of a call that was recorded in a conversation's graph. Opens it, as for a turn."""
        view = await part.reader.read_call(actor, call_id)
        if view.subject is None:
            raise ApiError(404, "not_found", "This call was recorded in no conversation; it has no content.")
        opened = await access.open(actor, view.subject, reason)
        return {"data": context_json(await part.content.read_call(opened, view.loose))}

    return routes
