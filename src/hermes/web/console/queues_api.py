"""`/v1/ops/queues`, `/v1/ops/workers` and `/v1/ops/alerts`, with their acts: revive, requeue, give away, end. For an operator's
programs."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from hermes.console.alerts import AlertView
from hermes.console.masking import show_identifier
from hermes.console.queues import PlaceInvalid, RevivalRefused
from hermes.console.workers import ActRefused, ChoreView, ProcessView
from hermes.ports.errors import NotFound
from hermes.ports.operators import Actor, Operator, Role
from hermes.ports.outbox import DeadLetterQuery
from hermes.web.answers import json_only
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.errors import ApiError, ErrorBody

ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (401, 403, 404, 409, 422, 429, 503)}
MAX_IDS = 1_000
JSON_ONLY: Final = [Depends(json_only)]
Place = Annotated[str | None, Query(max_length=100, description="The `next` of the page before.")]
PageSize = Annotated[int, Query(ge=1, le=500)]


class ChosenEntries(BaseModel):
    """Entries of a queue."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ids: list[str] = Field(min_length=1, max_length=MAX_IDS, description="Numbers of dead letters, or ids of turns that were given up.")


def queue_api_routes(web: ConsoleWeb) -> APIRouter:
    """The routes for queues."""
    routes = APIRouter(tags=["operations"], responses=ERRORS)
    operations, find_actor = web.console.operations, web.visits.find_program
    actions = operations.queue_actions

    @routes.get("/v1/ops/queues", summary="How long each queue is")
    async def counts(actor: Annotated[Actor, Depends(find_actor)]) -> JSONResponse:
        """A count ends at 1,000: a queue of that length may be longer. `at` is since when the oldest waits; for `buried` and `dead`, when
        the newest came."""
        found = await operations.queues.counts(actor.operator)
        jobs = await operations.queues.jobs(actor.operator)
        return respond({"data": [plain(asdict(each)) for each in found.values()], "jobs": [asdict(job) for job in jobs], "next": None})

    @routes.get("/v1/ops/queues/{name}", summary="The entries of a queue: waiting, buried, outbox or dead")
    async def entries(name: str, actor: Annotated[Actor, Depends(find_actor)], before: Place = None, limit: PageSize = 50) -> JSONResponse:
        page = await translate(lambda: operations.queues.entries(name, actor.operator, place=before, limit=limit))
        return respond({"data": [entry_json(each, actor.operator) for each in page.entries], "next": page.next})

    @routes.post(
        "/v1/ops/queues/{name}/requeue", summary="Send dead letters again, or revive messages that were given up", dependencies=JSON_ONLY
    )
    async def requeue(name: str, body: ChosenEntries, actor: Annotated[Actor, Depends(find_actor)]) -> JSONResponse:
        """Dead letters: all of them, or none. Messages that were given up: each by itself; `refused` says why some were not revived."""
        if name == "dead":
            chosen = DeadLetterQuery(ids=[letter_number(each) for each in body.ids])
            sent = await translate(lambda: actions.requeue(actor, chosen))
            return respond({"data": [str(letter.id) for letter in sent], "refused": {}, "next": None})
        if name != "buried":
            raise ApiError(404, "queue_not_found", "Only entries of the queues dead and buried can be requeued.", param="name")
        done = await actions.revive_each(actor, [turn_of(each) for each in body.ids])
        refused = {str(turn_id): why for turn_id, why in done.refused.items()}
        return respond({"data": [str(turn_id) for turn_id in done.revived], "refused": refused, "next": None})

    @routes.post("/v1/ops/turns/{turn_id}/revive", summary="Have a message answered that was given up")
    async def revive(turn_id: UUID, actor: Annotated[Actor, Depends(find_actor)]) -> JSONResponse:
        """409 if the message was not given up, was revived already, or cannot be read any more. Nothing changed then."""
        await translate(lambda: actions.revive(actor, turn_id))
        return respond({"turn_id": str(turn_id), "state": "waiting"})

    return routes


def worker_api_routes(web: ConsoleWeb) -> APIRouter:
    """The routes for workers, chores and alerts."""
    routes = APIRouter(tags=["operations"], responses=ERRORS)
    operations, find_actor = web.console.operations, web.visits.find_program

    @routes.get("/v1/ops/workers", summary="The processes, what each does, and who does the chores")
    async def workers(actor: Annotated[Actor, Depends(find_actor)]) -> JSONResponse:
        found = await operations.workers.list(actor.operator)
        chores = await operations.workers.list_chores()
        return respond({"data": [process_json(view) for view in found], "chores": [chore_json(chore) for chore in chores], "next": None})

    @routes.post("/v1/ops/workers/{process_id}/give-away", summary="Give the turns of a stalled or silent process to other workers")
    async def give_away(process_id: UUID, actor: Annotated[Actor, Depends(find_actor)]) -> JSONResponse:
        return respond({"turns": await translate(lambda: operations.workers.give_away(actor, process_id))})

    @routes.post("/v1/ops/chores/{name}/run", summary="Have a chore done soon, by a worker")
    async def run_chore(name: str, actor: Annotated[Actor, Depends(find_actor)]) -> JSONResponse:
        await translate(lambda: operations.workers.ask_for_chore(actor, name))
        return respond({"chore": name, "state": "due"})

    @routes.get("/v1/ops/alerts", summary="The alerts, open or all")
    async def alerts(
        actor: Annotated[Actor, Depends(find_actor)], show: Literal["open", "all"] = "open", before: Place = None, limit: PageSize = 50
    ) -> JSONResponse:
        page = await translate(lambda: operations.alerts.list(actor.operator, is_open=show != "all", place=before, limit=limit))
        return respond({"data": [alert_json(view) for view in page.alerts], "next": page.next})

    @routes.post("/v1/ops/alerts/{alert_id}/end", summary="End an alert")
    async def end_alert(alert_id: int, actor: Annotated[Actor, Depends(find_actor)]) -> JSONResponse:
        ended = await translate(lambda: operations.alerts.end(actor, alert_id))
        return respond(plain(asdict(ended)))

    return routes


async def translate(act: Callable[[], Awaitable[Any]]) -> Any:
    """Do an act, and raise ApiError where it raises NotFound: 409 if the thing is there and in another state."""
    try:
        return await act()
    except (RevivalRefused, ActRefused) as error:
        raise ApiError(409, "refused", f"{error}.") from None
    except PlaceInvalid as error:
        raise ApiError(422, "invalid_cursor", f"{error}.", param="before") from None
    except NotFound as error:
        raise ApiError(404, "not_found", f"{error}.") from None


def letter_number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ApiError(422, "invalid_id", f"{text[:60]!r} is not the number of a dead letter.", param="ids")
    return int(text)


def turn_of(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ApiError(422, "invalid_id", f"{text[:60]!r} is not the id of a turn.", param="ids") from None


def entry_json(entry: Any, operator: Operator) -> dict[str, Any]:
    """An entry of a queue as this operator may see it."""
    columns = plain(asdict(entry))
    columns["channel_id"] = show_identifier(entry.channel_id, operator)
    if "doubts" in columns and not operator.role.covers(Role.OPERATOR):
        del columns["reason"]  # of a dead letter: a platform's own words, which may name the receiver
    return columns


def process_json(view: ProcessView) -> dict[str, Any]:
    turns = [plain(asdict(turn)) for turn in view.turns]
    return {**plain(asdict(view.record)), "state": str(view.state), "turns": turns}


def chore_json(chore: ChoreView) -> dict[str, Any]:
    record = None if chore.record is None else plain(asdict(chore.record))
    return {"chore": chore.name, "every_s": chore.every_s, "next_at": chore.next_at.isoformat(), "record": record}


def alert_json(view: AlertView) -> dict[str, Any]:
    words = {"meaning": view.words.meaning, "advice": view.words.advice}
    muted_until = None if view.mute is None else view.mute.until.isoformat()
    return {**plain(asdict(view.alert)), **words, "told": [plain(asdict(told)) for told in view.told], "muted_until": muted_until}


def plain(columns: dict[str, Any]) -> dict[str, Any]:
    """Return the columns as JSON has them."""
    return {name: plain_value(value) for name, value in columns.items()}


def plain_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def respond(body: dict[str, Any]) -> JSONResponse:
    return JSONResponse(body, headers={"Cache-Control": "no-store"})
