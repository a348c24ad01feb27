"""Renders the console's pages: templates in the frame, the same headers for each, and how values are written.

A page needs nothing but this server: no address of another one, no style attribute, no script but ours."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any
from uuid import UUID

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from hermes import __version__
from hermes.console.amounts import NOTHING, count_phrase, show_age, show_ms, show_round_usd, show_usd
from hermes.console.masking import mask_identifier, show_identifier
from hermes.console.message_text import show_hidden
from hermes.time_ids import shorten_id

CONSOLE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STATIC_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class NavItem:
    """One page of the side navigation."""

    name: str
    title: str
    path: str


NAVIGATION = (
    NavItem("live", "Live", "/console"),
    NavItem("turns", "Turns", "/console/turns"),
    NavItem("conversations", "Conversations", "/console/conversations"),
    NavItem("replay", "Replay", "/console/replays"),
    NavItem("costs", "Costs", "/console/costs"),
    NavItem("queues", "Queues", "/console/queues"),
    NavItem("people", "People", "/console/people"),
    NavItem("keys", "Keys", "/console/keys"),
    NavItem("fleet", "Fleet", "/console/fleet"),
    NavItem("workers", "Workers", "/console/workers"),
    NavItem("alerts", "Alerts", "/console/alerts"),
    NavItem("settings", "Settings", "/console/settings"),
    NavItem("audit", "Audit", "/console/audit"),
)


class ConsolePages:
    """Renders templates. One for each process: it caches them."""

    def __init__(self, *, has_chat: bool = False) -> None:
        """`has_chat`: this server has a chat page too, so empty pages send the operator there."""
        self._templates = Environment(
            loader=PackageLoader(__package__, "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS)
        self._templates.globals.update(navigation=NAVIGATION, version=__version__, static_version=STATIC_VERSION, has_chat=has_chat)

    def render(self, template: str, values: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        """Return the page. `values` has what the frame needs too: `visit` and `page`, the name of the page in the navigation."""
        text = self._templates.get_template(template).render(values).encode("utf-8", "replace")  # a model can write half a character
        return HTMLResponse(text, status, {**CONSOLE_HEADERS, **(headers or {})})

    def fragment(self, template: str, values: Mapping[str, Any]) -> str:
        """Return the text of a template without a frame, for server-sent events and files."""
        return self._templates.get_template(template).render(values)


# --- how values are written


def show_count(count: int | None) -> str:
    return NOTHING if count is None else f"{count:,}"


def show_clock(at: datetime | None) -> str:
    """The time in UTC; console.js writes the reader's own into `time` elements."""
    return NOTHING if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def show_iso(at: datetime | None) -> str:
    return "" if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds")


def show_short_id(identity: UUID | str | None) -> str:
    return NOTHING if identity is None else shorten_id(identity)


def show_pattern(text: str) -> str:
    """The text as the pattern of an input: the operator must type exactly this."""
    return re.sub(r"[\^$\\.*+?()\[\]{}|/]", lambda found: "\\" + found.group(), text)


FILTERS = {
    "usd": show_usd,
    "round_usd": show_round_usd,
    "ms": show_ms,
    "count": show_count,
    "phrase": count_phrase,
    "clock": show_clock,
    "iso": show_iso,
    "age": show_age,
    "short": show_short_id,
    "mask": mask_identifier,
    "identifier": show_identifier,
    "visible": show_hidden,
    "pattern": show_pattern,
    "quoted": shlex.quote,
}


# --- the files beside the pages


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A stylesheet, a script or an icon, as the server sends it."""

    body: bytes
    content_type: str


def read_static() -> dict[str, StaticFile]:
    """Return the files by name. They are read once: they belong to this version."""
    files = {}
    for file in (resources.files(__package__) / "static").iterdir():
        kind = STATIC_TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            files[file.name] = StaticFile(file.read_bytes(), f"{kind}; charset=utf-8")
    return files


STATIC = read_static()
STATIC_VERSION = hashlib.sha256(b"".join(file.body for _, file in sorted(STATIC.items()))).hexdigest()[:16]
"""Part of the address of each file, so that a browser may keep it for ever."""


def static_response(file: StaticFile, request: Request) -> Response:
    is_this_version = request.query_params.get("v") == STATIC_VERSION
    cache = "public, max-age=31536000, immutable" if is_this_version else "no-cache"
    return Response(file.body, headers={**CONSOLE_HEADERS, "Cache-Control": cache, "Content-Type": file.content_type})
