"""`GET /v1/ops/people` and `GET /v1/ops/keys`: people and API keys for an operator's programs. Senders are masked for a viewer."""

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query

from hermes.console.key_limits import limits_as_json, usage_as_json
from hermes.console.keys import KeySummary
from hermes.console.masking import show_identifier
from hermes.console.people import PAGE, PersonQueryInvalid
from hermes.ports.errors import UserErased
from hermes.ports.operators import Actor
from hermes.ports.people import PersonSummary
from hermes.ports.users import UserState
from hermes.soul.json_values import to_json_value
from hermes.soul.my_data import memory_as_json
from hermes.web.console.console_json import ConsoleJson
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.people_pages import read_cursor, write_cursor
from hermes.web.console.visits import ReasonHeader
from hermes.web.errors import ApiError


def people_api_routes(web: ConsoleWeb) -> APIRouter:
    """People, one person, their memory, and API keys."""
    routes = APIRouter(tags=["operations"], default_response_class=ConsoleJson)
    console, visits = web.console, web.visits

    @routes.get("/v1/ops/people", summary="People, the newest first")
    async def list_people(
        actor: Annotated[Actor, Depends(visits.find_program)],
        q: Annotated[str, Query(max_length=200, description="A user id, or the beginning of a sender's id.")] = "",
        state: UserState | None = None,
        before: Annotated[str, Query(max_length=100, description="`next` of the page before.")] = "",
        limit: Annotated[int, Query(ge=1, le=1_000)] = PAGE,
    ) -> dict[str, Any]:
        try:
            page = await console.people.list(actor, search=q, state=state, before=read_cursor(before), limit=limit)
        except PersonQueryInvalid as error:
            raise ApiError(422, "invalid_search", str(error)) from None
        return {
            "data": [person_as_json(person, actor) for person in page.people],
            "next": None if page.next is None else write_cursor(page.next),
        }

    @routes.get("/v1/ops/people/{user_id}", summary="One person, without content")
    async def read_person(user_id: UUID, actor: Annotated[Actor, Depends(visits.find_program)]) -> dict[str, Any]:
        person = await console.people.read(actor, user_id)
        return {
            "data": {
                **person_as_json(person.summary, actor),
                "balance": asdict(person.balance),
                "ledger": to_json_value([asdict(line) for line in person.ledger]),
                "days": to_json_value([asdict(day) for day in person.days]),
                "memory": asdict(person.memory),
                "kept": person.kept.by_kind(),
                "opened": person.opened,
            }
        }

    @routes.get("/v1/ops/people/{user_id}/memory", summary="What is known about a person; opens content")
    async def read_memory(
        user_id: UUID,
        actor: Annotated[Actor, Depends(visits.find_program)],
        reason: ReasonHeader = "",
    ) -> dict[str, Any]:
        person = await console.people.read(actor, user_id)
        opened = await console.access.open(actor, person.subject, reason)
        try:
            return {"data": memory_as_json(await console.people.read_memory(opened))}
        except UserErased:
            raise ApiError(410, "user_erased", "This person was erased.") from None

    @routes.get("/v1/ops/keys", summary="API keys with what they cost, the newest first")
    async def list_keys(actor: Annotated[Actor, Depends(visits.find_program)], before: UUID | None = None) -> dict[str, Any]:
        page = await console.keys.list(actor, before=before)
        return {
            "data": [key_as_json(each) for each in page.keys],
            "next": None if page.next is None else str(page.next),
        }

    return routes


def key_as_json(summary: KeySummary) -> dict[str, Any]:
    used = None if summary.used is None else usage_as_json(summary.used)
    costs = {"micro_usd_today": summary.today, "micro_usd_30d": summary.month}
    written: dict[str, Any] = to_json_value({**asdict(summary.key), "limits": limits_as_json(summary.key.limits), "used": used, **costs})
    return written


def person_as_json(person: PersonSummary, actor: Actor) -> dict[str, Any]:
    user = person.user
    written: dict[str, Any] = to_json_value(
        {
            "id": user.id,
            "state": user.state,
            "tier": user.tier,
            "language": user.language,
            "trains": user.trains,
            "created_at": user.created_at,
            "erased_at": person.erased_at,
            "wrote_at": person.wrote_at,
            "credits": person.credits,
            "micro_usd_30d": person.micro_usd,
            "channels": [
                {"account": channel.account, "platform": channel.platform, "sender": show_identifier(channel.sender_id, actor.operator)}
                for channel in person.channels
            ],
        }
    )
    return written
