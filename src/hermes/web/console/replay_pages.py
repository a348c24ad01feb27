"""`/console/replays` and `/console/turns/{id}/replay`: what another model would have said about one turn, on pages."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from hermes.console.access import Opened
from hermes.console.replay_forms import DEFAULT_LAST, read_change, read_cursor, read_number, write_cursor
from hermes.console.replay_keep import NotKept
from hermes.console.replay_record import NotReplayable, ReplayPrompt
from hermes.console.replays import ReplayConsole, ReplayInvalid, conversation_subject
from hermes.ports.errors import NotFound, StaleHead, UserErased
from hermes.ports.replays import MAX_ANSWERS, MAX_BATCH_MODELS, MAX_BATCH_TURNS, ReplaySource
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.visits import Visit, read_form

PAGE_ROWS = 50
PROBLEMS = (NotFound, ReplayInvalid, NotKept, UserErased, StaleHead)
MESSAGES: Mapping[type[Exception], str] = {
    UserErased: "The person was forgotten, and this was erased with them.",
    StaleHead: "The conversation went on at this moment; try again.",
}


def replay_page_routes(web: ConsoleWeb) -> APIRouter:
    """The pages of single replays."""
    routes, pages = APIRouter(include_in_schema=False), ReplayPages(web)

    @routes.get("/console/turns/{source_id}/replay")
    async def show_form(source_id: UUID, visit: Annotated[Visit, Depends(web.visits.find)]) -> Response:
        return await show_problems(web, visit, pages.show_form(visit, source_id))

    @routes.post("/console/turns/{source_id}/replay")
    async def run(source_id: UUID, request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        return await show_problems(web, visit, pages.run(visit, source_id, await read_form(request)))

    @routes.get("/console/replays")
    async def show_list(visit: Annotated[Visit, Depends(web.visits.find)], before: str = "") -> Response:
        return await show_problems(web, visit, pages.show_list(visit, before))

    @routes.get("/console/replays/{replay_id}")
    async def show_replay(replay_id: UUID, visit: Annotated[Visit, Depends(web.visits.find)]) -> Response:
        return await show_problems(web, visit, pages.show_replay(visit, replay_id))

    @routes.post("/console/replays/{replay_id}/keep")
    async def keep(replay_id: UUID, request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        return await show_problems(web, visit, pages.keep(visit, replay_id, await read_form(request)))

    return routes


async def show_problems(web: ConsoleWeb, visit: Visit, work: Awaitable[Response]) -> Response:
    """Return the page, or one that says in a line why there is none."""
    try:
        return await work
    except PROBLEMS as error:
        is_missing = isinstance(error, NotFound) and not isinstance(error, NotReplayable)
        message = MESSAGES.get(type(error), str(error))
        values = {"visit": visit, "page": "replay", "message": message, "is_missing": is_missing}
        return web.pages.render("replay_problem.html", values, status=404 if is_missing else 409)


@dataclass(frozen=True, slots=True)
class ReplayPages:
    """Makes the pages of single replays."""

    web: ConsoleWeb

    @property
    def replay(self) -> ReplayConsole:
        return self.web.console.replay

    async def show_form(self, visit: Visit, source_id: UUID) -> Response:
        replay = self.replay
        source = await replay.find_source(visit.actor, source_id)
        opened = await self._find_opened(visit, source)
        recorded: ReplayPrompt | None = None
        why_not = source.why_not
        if opened is not None and not why_not:
            try:
                recorded = await replay.read_request(opened, source)
            except NotReplayable as error:
                why_not = str(error)
        values = {
            "visit": visit,
            "page": "replay",
            "source": source,
            "why_not": why_not,
            "is_open": opened is not None,
            "needs_reason": self.web.console.access.needs_reason,
            "recorded": recorded,
            "tools": [] if recorded is None else [(name, replay.tools.effect_of(name)) for name in recorded.tool_names],
            "models": self._price_models(source),
            "replays": await replay.of_source(source),
            "max_answers": MAX_ANSWERS,
            "left_today": await replay.models.left_today(),
        }
        return self.web.pages.render("replay_form.html", values)

    async def run(self, visit: Visit, source_id: UUID, form: Mapping[str, str]) -> Response:
        source = await self.replay.find_source(visit.actor, source_id)
        opened = await self._find_opened(visit, source)
        recorded = await self.replay.read_request(opened, source) if opened is not None and not source.why_not else None
        if recorded is None and "system" in form:
            raise ReplayInvalid("the conversation is closed again; open it to change its system text or tools")
        count = read_number(form.get("count", "1"), "answers")
        ids = await self.replay.run(visit.actor, source, form.get("model", ""), read_change(form, recorded), count=count)
        self.replay.worker.start(ids)
        return RedirectResponse(f"/console/replays/{ids[0]}" if count == 1 else f"/console/turns/{source.id}/replay#replays", 303)

    async def show_list(self, visit: Visit, before: str) -> Response:
        replay = self.replay
        found = await replay.list(visit.actor, read_cursor(before), limit=PAGE_ROWS + 1)
        values = {
            "visit": visit,
            "page": "replay",
            "replays": found[:PAGE_ROWS],
            "next_href": f"/console/replays?before={write_cursor(found[PAGE_ROWS - 1])}" if len(found) > PAGE_ROWS else "",
            "batches": [] if before else await replay.batches(visit.actor),
            "is_first": not before,
            "models": replay.models.names(),
            "last": DEFAULT_LAST,
            "max_last": MAX_BATCH_TURNS,
            "max_models": MAX_BATCH_MODELS,
            "left_today": await replay.models.left_today(),
        }
        return self.web.pages.render("replays.html", values)

    async def show_replay(self, visit: Visit, replay_id: UUID) -> Response:
        found, source = await self.replay.get(visit.actor, replay_id)
        opened = await self._find_opened(visit, source)
        values = {
            "visit": visit,
            "page": "replay",
            "replay": found,
            "source": source,
            "view": None if opened is None else await self.replay.view(opened, found, source),
            "needs_reason": self.web.console.access.needs_reason,
        }
        return self.web.pages.render("replay.html", values)

    async def keep(self, visit: Visit, replay_id: UUID, form: Mapping[str, str]) -> Response:
        await self.replay.keep(visit.actor, replay_id, reason=form.get("reason", ""))
        return RedirectResponse(f"/console/replays/{replay_id}", 303)

    async def _find_opened(self, visit: Visit, source: ReplaySource) -> Opened | None:
        return await self.web.console.access.find_opened(visit.actor, conversation_subject(source))

    def _price_models(self, source: ReplaySource) -> list[tuple[str, int]]:
        """The models with what the turn would cost; without those that have no price today, because no call of them is made."""
        found = []
        for name in self.replay.models.names():
            try:
                found.append((name, self.replay.estimate(source, name)))
            except ReplayInvalid:
                continue
        return found
