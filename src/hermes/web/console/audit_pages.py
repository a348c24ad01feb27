"""`/console/audit`: what operators did, opened, and were refused."""

import shlex
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from hermes.ports.operators import AuditFilter
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.visits import Visit

AUDIT_PATH = "/console/audit"
MAX_FILTER_CHARS = 200
FilterText = Annotated[str, Query(max_length=MAX_FILTER_CHARS)]
SUBJECT_PATHS = {
    "turn": "/console/turns/{}",
    "user": "/console/people/{}",
    "replay": "/console/replays/{}",
    "replay_batch": "/console/replay-batches/{}",
    "process": "/console/workers#{}",
}
"""The pages of subjects. The others are found by search."""


def audit_page_routes(web: ConsoleWeb) -> APIRouter:
    """The page of the audit log."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/console/audit")
    async def show_audit(
        visit: Annotated[Visit, Depends(web.visits.find)],
        *,
        operator: FilterText = "",
        action: FilterText = "",
        subject: FilterText = "",
        user: FilterText = "",
        refused: FilterText = "",
        before: FilterText = "",
    ) -> Response:
        chosen = {"operator": operator.strip(), "action": action.strip(), "subject": subject.strip(), "user": user.strip()}
        chosen["refused"] = "1" if refused else ""
        page = await web.console.audit_reader.read(visit.actor, read_filter(chosen), before=int(before) if is_number(before) else None)
        values = {
            "visit": visit,
            "page": "audit",
            "chosen": chosen,
            "found": page,
            "all_href": AUDIT_PATH,
            "refused_href": audit_href({**chosen, "refused": "" if refused else "1"}),
            "opened_href": audit_href({**chosen, "action": "" if action == "content.open" else "content.open"}),
            "next_href": "" if page.next is None else audit_href({**chosen, "before": str(page.next)}),
            "command": audit_command(chosen),
            "subject_paths": SUBJECT_PATHS,
        }
        return web.pages.render("audit.html", values)

    return routes


def read_filter(chosen: Mapping[str, str]) -> AuditFilter:
    """Read the fields of the form. What is no id of a user finds nothing."""
    try:
        user_id = UUID(chosen["user"]) if chosen["user"] else None
    except ValueError:
        user_id = UUID(int=0)
    return AuditFilter(
        operator=chosen["operator"] or None,
        action=chosen["action"] or None,
        subject=chosen["subject"] or None,
        user_id=user_id,
        only_refused=bool(chosen["refused"]),
    )


def audit_href(chosen: Mapping[str, str]) -> str:
    query = urlencode({name: value for name, value in chosen.items() if value})
    return f"{AUDIT_PATH}?{query}" if query else AUDIT_PATH


def audit_command(chosen: Mapping[str, str]) -> str:
    """The same as a command."""
    words = [word for name, value in chosen.items() if value and name != "refused" for word in (f"--{name}", value)]
    return shlex.join(["hermes", "audit", *words, *(["--refused"] if chosen["refused"] else [])])


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
