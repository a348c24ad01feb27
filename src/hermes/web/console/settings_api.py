"""`/v1/ops/settings` and `/v1/ops/kill-switch`: the settings and the kill switch for operators' programs."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from hermes.console.kill_switch import KillSwitchState
from hermes.ports.operators import Actor
from hermes.web.answers import json_only
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.settings_pages import require_reason
from hermes.web.errors import ErrorBody

ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (401, 403, 422, 503)}
NO_STORE = {"Cache-Control": "no-store"}


class KillSwitchPosition(BaseModel):
    """The position that the kill switch shall have."""

    model_config = ConfigDict(extra="forbid", strict=True)

    engaged: bool = Field(description="true: stop all model calls; false: allow them again.")
    reason: str = Field(default="", max_length=500, description="Needed to stop calls: other operators see it.")


def settings_api_routes(web: ConsoleWeb) -> APIRouter:
    """The settings as JSON, and the kill switch."""
    routes = APIRouter(tags=["operations"], responses=ERRORS)

    @routes.get("/v1/ops/settings", summary="The settings with their origins, models with prices, tiers, and the kill switch")
    async def settings(_: Annotated[Actor, Depends(web.visits.find_program)]) -> JSONResponse:
        """Secrets are never shown: their value is `set` or `not set`."""
        overview = await web.console.settings.overview()
        body = {
            "data": [asdict(line) for line in overview.settings],
            "next": None,
            "models": [{**asdict(line), "since": line.since.isoformat()} for line in overview.models],
            "tiers": [asdict(line) for line in overview.tiers],
            "kill_switch": kill_switch_json(await web.console.kill_switch.read()),
        }
        return JSONResponse(body, headers=NO_STORE)

    @routes.post("/v1/ops/kill-switch", summary="Stop all model calls, or allow them again", dependencies=[Depends(json_only)])
    async def kill_switch(body: KillSwitchPosition, actor: Annotated[Actor, Depends(web.visits.find_program)]) -> JSONResponse:
        """To stop calls needs the role operator, to allow them again the role owner. If it is engaged already, the first reason stays."""
        if body.engaged:
            await web.console.kill_switch.engage(actor, require_reason(body.reason))
        else:
            await web.console.kill_switch.release(actor)
        return JSONResponse(kill_switch_json(await web.console.kill_switch.read()), headers=NO_STORE)

    return routes


def kill_switch_json(state: KillSwitchState) -> dict[str, Any]:
    engaged, until = state.engaged, state.capped_until
    values = {"engaged_at": engaged.engaged_at.isoformat(), "by": engaged.by, "reason": engaged.reason} if engaged else {}
    uses = [
        {
            "engaged_at": use.engaged_at.isoformat(),
            "by": use.by,
            "reason": use.reason,
            "released_at": use.released_at.isoformat() if use.released_at else None,
            "released_by": use.released_by,
        }
        for use in state.uses
    ]
    return {"engaged": engaged is not None, **values, "capped_until": until.isoformat() if until else None, "uses": uses}
