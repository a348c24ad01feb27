"""`/v1/ops/models` and `/v1/ops/models/plan`: the models with their health, and the plan of their chains, for operators' programs."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from hermes.console.models import ModelBoard, model_json, plan_json
from hermes.gateway.model_plans import MAX_CHAIN, PlanRefused
from hermes.ports.errors import NotFound
from hermes.ports.models import ModelPlan
from hermes.ports.operators import Actor
from hermes.web.answers import json_only
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.errors import ApiError, ErrorBody

ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (401, 403, 404, 409, 422, 503)}
NO_STORE = {"Cache-Control": "no-store"}


class NewPlan(BaseModel):
    """A change of the plan. Exactly one of `tier` with `chain`, `old` with `new`, `share` alone, or `roll_back`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tier: str | None = Field(default=None, max_length=64, description="Give this tier another chain.")
    chain: list[str] | None = Field(
        default=None, max_length=MAX_CHAIN, description="Its models in the order in which they are tried; empty for the settings' chain."
    )
    old: str | None = Field(default=None, max_length=64, description="Exchange this model in every chain …")
    new: str | None = Field(default=None, max_length=64, description="… for this one.")
    roll_back: bool = Field(default=False, description="End the trial, or else return to the chains before.")
    share: int | None = Field(default=None, ge=1, le=100, description="Per cent of the chats that use the plan; 100 where left out.")
    reason: str = Field(default="", max_length=500, description="Other operators see it.")


def model_api_routes(web: ConsoleWeb) -> APIRouter:
    """The models as JSON, and their plan."""
    routes = APIRouter(tags=["operations"], responses=ERRORS)
    board = web.console.models

    async def find_actor(actor: Annotated[Actor, Depends(web.visits.find_program)]) -> Actor:
        if actor.operator.accounts is not None:
            raise ApiError(403, "access_refused", "The models belong to no account: they are for operators of all accounts.")
        return actor

    @routes.get("/v1/ops/models", summary="Every model with its place, price, health and speed")
    async def models(_: Annotated[Actor, Depends(find_actor)]) -> JSONResponse:
        plans = await board.plans(limit=1)
        data = [model_json(model) for model in await board.read()]
        return JSONResponse({"data": data, "next": None, "plan": plan_json(plans[0]) if plans else None}, headers=NO_STORE)

    @routes.get("/v1/ops/models/plans", summary="The plans of the models, newest first")
    async def plans(_: Annotated[Actor, Depends(find_actor)]) -> JSONResponse:
        return JSONResponse({"data": [plan_json(plan) for plan in await board.plans()], "next": None}, headers=NO_STORE)

    @routes.post("/v1/ops/models/plan", summary="Exchange models, tiers and chains without a restart", dependencies=[Depends(json_only)])
    async def change(body: NewPlan, actor: Annotated[Actor, Depends(find_actor)]) -> JSONResponse:
        """409 if the plan was refused: then nothing changed. Every process follows within about a second."""
        try:
            return JSONResponse(plan_json(await apply_plan(board, body, actor)), headers=NO_STORE)
        except NotFound as error:
            raise ApiError(404, "not_found", f"{error}.") from None
        except PlanRefused as error:
            raise ApiError(409, "plan_refused", f"{error}.") from None

    return routes


async def apply_plan(board: ModelBoard, body: NewPlan, actor: Actor) -> ModelPlan:
    share, reason = body.share, body.reason
    match body:
        case NewPlan(tier=str(tier), chain=list(chain), old=None, new=None, roll_back=False):
            return await board.set_chain(actor, tier, chain, percent=share or 100, reason=reason)
        case NewPlan(tier=None, chain=None, old=str(old), new=str(new), roll_back=False):
            return await board.swap(actor, old, new, percent=share or 100, reason=reason)
        case NewPlan(tier=None, chain=None, old=None, new=None, roll_back=True, share=None):
            return await board.roll_back(actor, reason=reason)
        case NewPlan(tier=None, chain=None, old=None, new=None, roll_back=False, share=int(percent)):
            return await board.set_share(actor, percent, reason=reason)
    raise ApiError(422, "invalid_plan", "Give one of: tier with chain, old with new, share alone, or roll_back.")
