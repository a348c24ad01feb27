"""`GET /v1/ops/audit`: the audit log for the operators' programs."""

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from fastapi.responses import JSONResponse

from hermes.console.audit import audit_json
from hermes.console.moments import parse_moment
from hermes.ports.operators import Actor, AuditFilter
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.errors import ApiError

Name = Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")]


def parse_since(text: str) -> datetime | None:
    try:
        return parse_moment(text, datetime.now(UTC)) if text else None
    except ValueError as error:
        raise ApiError(422, "invalid_filter", str(error), param="since") from None


def audit_api_routes(web: ConsoleWeb) -> APIRouter:
    """The route of the audit log."""
    routes = APIRouter(tags=["operations"])

    @routes.get("/v1/ops/audit", summary="What operators did, opened and were refused, newest first")
    async def list_audit(
        actor: Annotated[Actor, Depends(web.visits.find_program)],
        *,
        operator: Name = None,
        action: Name = None,
        subject_kind: Name = None,
        subject: Name = None,
        user: UUID | None = None,
        since: Annotated[str, Query(max_length=50, description="24h, 7d, or a time.")] = "",
        refused: bool = False,
        before: Annotated[int | None, Query(ge=1, lt=2**63)] = None,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
    ) -> JSONResponse:
        """`next` is the `before` of the following page; null at the end."""
        wanted = AuditFilter(
            operator=operator,
            action=action,
            subject_kind=subject_kind,
            subject=subject,
            user_id=user,
            since=parse_since(since),
            only_refused=refused,
        )
        page = await web.console.audit_reader.read(actor, wanted, before=before, limit=limit)
        following = None if page.next is None else str(page.next)
        return JSONResponse(
            {"data": [audit_json(entry) for entry in page.entries], "next": following}, headers={"Cache-Control": "no-store"}
        )

    return routes
