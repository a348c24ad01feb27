"""The Turn page, and the page of a call that has no turn. All state is in the address: `?tab=calls`, `?show=new`, `#s8`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from hermes.app.console_turn_content import TurnPart
from hermes.console.access import ConsoleAccess, Opened, Subject
from hermes.console.amounts import show_usd
from hermes.console.turn_content import SentContext, TurnContent
from hermes.console.turn_view import PriceLine, call_json, price_lines, turn_json
from hermes.ports.errors import NotFound
from hermes.ports.turn_record import WhyHidden
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.pages import ConsolePages
from hermes.web.console.visits import Visit

TABS = ("context", "answer", "calls", "delivery", "credit", "json")
CALL_TABS = ("context", "answer", "calls", "json")
KIBIBYTE = 1_024


@dataclass(frozen=True, slots=True)
class MessageBlock:
    """A piece of a message, as the page shows it."""

    text: str
    label: str = ""
    """What the piece is, if it is not the plain text of the message."""


def turn_page_routes(web: ConsoleWeb) -> APIRouter:
    """`/console/turns/{turn_id}` and `/console/calls/{call_id}`."""
    routes = APIRouter(include_in_schema=False)
    visits, pages, part, access = web.visits, web.pages, web.console.turns, web.console.access

    async def find_opened(visit: Visit, subject: Subject | None) -> Opened | None:
        return None if subject is None else await access.find_opened(visit.actor, subject)

    @routes.get("/console/turns/{turn_id}")
    async def show_turn(turn_id: str, visit: Annotated[Visit, Depends(visits.find)], tab: str = "context", show: str = "") -> Response:
        try:
            view = await part.reader.read(visit.actor, read_id(turn_id))
        except NotFound:
            return show_missing(pages, visit, "turn", turn_id)
        opened = await find_opened(visit, view.subject)
        content = await part.content.read(opened, view.turn) if opened is not None and tab in ("context", "answer") else TurnContent()
        chosen = tab if tab in TABS else "context"
        document = json.dumps(turn_json(view, visit.operator), indent=2, ensure_ascii=False) if chosen == "json" else ""
        values = {
            "view": view,
            "turn": view.turn,
            "tabs": TABS,
            "subject": view.subject,
            "path": f"/console/turns/{view.turn.turn_id}",
            "content": content,
            "contexts": content.contexts,
            "json": document,
        }
        return pages.render("turn.html", {**values, **shared_values(visit, part, access, opened, tab=chosen, show=show)})

    @routes.get("/console/calls/{call_id}")
    async def show_call(call_id: str, visit: Annotated[Visit, Depends(visits.find)], tab: str = "context", show: str = "") -> Response:
        try:
            view = await part.reader.read_call(visit.actor, read_id(call_id))
        except NotFound:
            return show_missing(pages, visit, "call", call_id)
        opened = await find_opened(visit, view.subject)
        chosen = tab if tab in CALL_TABS else "context"
        wants_content = chosen in ("context", "answer")
        contexts = [await part.content.read_call(opened, view.loose)] if opened is not None and wants_content else []
        document = json.dumps(call_json(view.loose.recorded), indent=2, ensure_ascii=False) if chosen == "json" else ""
        values = {
            "view": view,
            "call": view.loose.recorded,
            "tabs": CALL_TABS,
            "subject": view.subject,
            "path": f"/console/calls/{view.loose.recorded.call.id}",
            "content": TurnContent(contexts=contexts),
            "contexts": contexts,
            "json": document,
        }
        return pages.render("call.html", {**values, **shared_values(visit, part, access, opened, tab=chosen, show=show)})

    return routes


def shared_values(visit: Visit, part: TurnPart, access: ConsoleAccess, opened: Opened | None, *, tab: str, show: str) -> dict[str, Any]:
    """What both pages need: the tab, whether the content is open, and how values are written."""
    return {
        "visit": visit,
        "page": "turns",
        "tab": tab,
        "opened": opened,
        "needs_reason": access.needs_reason,
        "only_new": show == "new",
        "blocks_of": blocks_of,
        "price_lines": price_lines,
        "per_million": show_usd,
        "line_usd": line_usd,
        "say_hidden": partial(say_hidden, part.keep_days),
        "pretty": pretty_json,
        "unshown": count_unshown,
    }


def read_id(text: str) -> UUID:
    """Raises NotFound for a text that is no id."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound("this is no id") from None


def show_missing(pages: ConsolePages, visit: Visit, what: str, identity: str) -> Response:
    return pages.render("turn_missing.html", {"visit": visit, "page": "turns", "what": what, "identity": identity[:80]}, status=404)


# --- how content is written


def say_hidden(keep_days: int, hidden: WhyHidden | None) -> str:
    """Why a text is not shown, in a line."""
    after = f" after {keep_days} days, as journal.keep_days says" if keep_days else ""
    return {
        WhyHidden.ERASED: "erased: its user was forgotten",
        WhyHidden.EXPIRED: f"expired{after}: names, numbers and times are kept",
        WhyHidden.UNREADABLE: "cannot be opened: its key is missing, or its bytes were changed; `hermes doctor` says more",
        WhyHidden.RUNNING: "not there yet: it has not ended, or was cut off",
    }.get(hidden or WhyHidden.RUNNING, "")


def blocks_of(message: Mapping[str, Any]) -> list[MessageBlock]:
    """The pieces of a message, whole: its text, then every other field by its name. An image is named by its kind and size."""
    content = message.get("content")
    blocks = [MessageBlock(content)] if isinstance(content, str) else [block_of(part) for part in content or ()]
    for call in message.get("tool_calls") or ():
        function = call.get("function", {})
        blocks.append(MessageBlock(str(function.get("arguments", "")), f"calls {function.get('name', '')} · {call.get('id', '')}"))
    rest = [name for name in message if name not in ("role", "content", "tool_calls", "metadata")]
    return blocks + [MessageBlock(plain_or_json(message[name]), name) for name in rest if message[name] is not None]


def block_of(part: Any) -> MessageBlock:
    if not isinstance(part, Mapping):
        return MessageBlock(plain_or_json(part))
    if part.get("type") == "text":
        return MessageBlock(str(part.get("text", "")))
    url = str((part.get("image_url") or {}).get("url", "")) if isinstance(part.get("image_url"), Mapping) else ""
    if url.startswith("data:"):
        kind = url[5:].partition(";")[0] or "image"
        return MessageBlock("", f"{kind}, {len(url) / KIBIBYTE:,.0f} KiB as text")
    return MessageBlock(plain_or_json(part), str(part.get("type", "part")))


def plain_or_json(value: object) -> str:
    return value if isinstance(value, str) else pretty_json(value)


def pretty_json(value: object) -> str:
    """A value as JSON; a text that is JSON itself is written on several lines."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return json.dumps(value, indent=2, ensure_ascii=False, default=list)


def line_usd(line: PriceLine) -> str:
    """Dollars of one kind of tokens, to a hundredth of a micro-dollar: only the sum is rounded."""
    return f"${line.micro_usd / 1_000_000:.8f}".rstrip("0").ljust(4, "0")


def count_unshown(contexts: Sequence[SentContext]) -> int:
    """How many messages `only new` leaves out."""
    return sum(not each.is_new for context in contexts for each in context.messages)
