"""`/console/replay-batches`: many turns against a few models: the estimate first, then the table, while it grows and after."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from hermes.console.replay_forms import DEFAULT_LAST, FILTER_NAMES, read_filter, read_number
from hermes.console.replay_table import build_table
from hermes.console.replays import ReplayConsole
from hermes.ports.replays import ReplayFilter
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.replay_pages import PAGE_ROWS, show_problems
from hermes.web.console.visits import Visit, read_form


def replay_batch_page_routes(web: ConsoleWeb) -> APIRouter:
    """The pages of batches."""
    routes, pages = APIRouter(include_in_schema=False), ReplayBatchPages(web)

    @routes.get("/console/replay-batches/new")
    async def show_plan(request: Request, visit: Annotated[Visit, Depends(web.visits.find)]) -> Response:
        return await show_problems(web, visit, pages.show_plan(visit, request))

    @routes.post("/console/replay-batches")
    async def add_batch(request: Request, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        return await show_problems(web, visit, pages.add(visit, await read_form(request)))

    @routes.get("/console/replay-batches/{batch_id}")
    async def show_batch(batch_id: UUID, request: Request, visit: Annotated[Visit, Depends(web.visits.find)]) -> Response:
        return await show_problems(web, visit, pages.show_batch(visit, batch_id, request.query_params.get("from", "0")))

    @routes.get("/console/replay-batches/{batch_id}/table.csv")
    async def download_batch(batch_id: UUID, visit: Annotated[Visit, Depends(web.visits.find)]) -> Response:
        return await show_problems(web, visit, pages.download(visit, batch_id))

    @routes.post("/console/replay-batches/{batch_id}/stop")
    async def stop_batch(batch_id: UUID, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        return await show_problems(web, visit, pages.stop(visit, batch_id))

    @routes.post("/console/replay-batches/{batch_id}/resume")
    async def resume_batch(batch_id: UUID, visit: Annotated[Visit, Depends(web.visits.find_posted)]) -> Response:
        return await show_problems(web, visit, pages.resume(visit, batch_id))

    return routes


@dataclass(frozen=True, slots=True)
class ReplayBatchPages:
    """Makes the pages of batches."""

    web: ConsoleWeb

    @property
    def replay(self) -> ReplayConsole:
        return self.web.console.replay

    async def show_plan(self, visit: Visit, request: Request) -> Response:
        given = request.query_params
        wanted = read_filter(given, visit.operator.accounts)
        last = read_number(given.get("last", str(DEFAULT_LAST)), "last")
        plan = await self.replay.plan(visit.actor, wanted, given.getlist("model_name"), last)
        fields = {name: given[name] for name in FILTER_NAMES if given.get(name)} | {"last": str(last), "models": " ".join(plan.models)}
        fields.setdefault("until", datetime.now(UTC).isoformat())  # so that what is confirmed is what was shown
        command = batch_command(wanted, given.get("since", ""), plan.models, last)
        return self.web.pages.render(
            "replay_plan.html", {"visit": visit, "page": "replay", "plan": plan, "fields": fields, "command": command}
        )

    async def add(self, visit: Visit, form: Mapping[str, str]) -> Response:
        wanted = read_filter(form, visit.operator.accounts)
        plan = await self.replay.plan(visit.actor, wanted, form.get("models", "").split(), read_number(form.get("last", ""), "last"))
        return RedirectResponse(f"/console/replay-batches/{await self.replay.run_batch(visit.actor, plan)}", 303)

    async def show_batch(self, visit: Visit, batch_id: UUID, begin: str) -> Response:
        start = int(begin) if begin.isdecimal() and len(begin) < 6 else 0
        table = build_table(*await self.replay.get_batch(visit.actor, batch_id))
        next_href = f"/console/replay-batches/{batch_id}?from={start + PAGE_ROWS}" if len(table.rows) > start + PAGE_ROWS else ""
        rows = table.rows[start : start + PAGE_ROWS]
        return self.web.pages.render(
            "replay_batch.html", {"visit": visit, "page": "replay", "table": table, "rows": rows, "next_href": next_href}
        )

    async def download(self, visit: Visit, batch_id: UUID) -> Response:
        table = build_table(*await self.replay.get_batch(visit.actor, batch_id))
        headers = {"Content-Disposition": f'attachment; filename="replay-{batch_id}.csv"', "Cache-Control": "no-store"}
        return Response(table.to_csv(), media_type="text/csv; charset=utf-8", headers=headers)

    async def stop(self, visit: Visit, batch_id: UUID) -> Response:
        await self.replay.stop(visit.actor, batch_id)
        return RedirectResponse(f"/console/replay-batches/{batch_id}", 303)

    async def resume(self, visit: Visit, batch_id: UUID) -> Response:
        await self.replay.resume(visit.actor, batch_id)
        return RedirectResponse(f"/console/replay-batches/{batch_id}", 303)


def batch_command(wanted: ReplayFilter, since: str, models: tuple[str, ...], last: int) -> str:
    """The same batch as a command."""
    words = ["hermes replay", "--failed" if wanted.status == "failed" else "", f"--last {last}", f"--since {since}" if since else ""]
    names = ("agent", "model", "platform", "tier", "tool", "user")
    words += [f"--where {shlex.quote(f'{name}={getattr(wanted, name)}')}" for name in names if getattr(wanted, name)]
    return " ".join([word for word in words if word] + [f"--model {model}" for model in models])
