"""A visit: the operator of a request to the console or to `/v1/ops`, and what a form must bring with it.

A browser has the cookie of a session, a program sends `Authorization: Bearer ho_…`. The store knows their digests only."""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import parse_qsl
from uuid import UUID

from fastapi import Header, Request

from hermes.app.console import Console
from hermes.config import ConsoleSettings, SsoRole
from hermes.console.operators import OPERATOR_NAME
from hermes.console.sign_in import SESSION_TTL_S, Arrival, is_same_name
from hermes.ports.operators import ENTRY_ID_CHARS, Actor, AuditEntry, Face, Operator, Role
from hermes.web.console.compression import CONSOLE_PATH
from hermes.web.cookies import BrowserCookie
from hermes.web.errors import ApiError
from hermes.web.hosts import is_in, peer_of
from hermes.web.limits import RateLimit, address_of, source_of, too_many_requests
from hermes.web.program_auth import ProgramAuth

SESSION_COOKIE = BrowserCookie("hermes_console", ttl_s=int(SESSION_TTL_S))
FORM_TOKEN = "form_token"  # noqa: S105  # the name of a field
MAX_FORM_FIELDS = 200
REASON_HEADER = "X-Hermes-Reason"
ReasonHeader = Annotated[str, Header(alias=REASON_HEADER, max_length=500, description="Why you open it; needed in production.")]
UNKNOWN = Operator(id=UUID(int=0), name="unknown", role=Role.VIEWER, created_at=datetime.fromtimestamp(0, UTC), created_by="")
"""In the audit log: a request that was refused before it was known who sent it."""


class SignInNeeded(Exception):
    """The request has no session. A page shows how to sign in."""


@dataclass(frozen=True, slots=True)
class Visit:
    """An operator at a page, by the session of their browser."""

    actor: Actor
    session: bytes
    """The digest of the session."""

    @property
    def operator(self) -> Operator:
        return self.actor.operator

    @property
    def session_id(self) -> str:
        """The id of the session, as lists show it."""
        return self.session.hex()[:ENTRY_ID_CHARS]

    def may(self, role: str) -> bool:
        """For templates: whether the operator's role covers this one."""
        return self.operator.role.covers(Role(role))

    def form_token(self) -> str:
        """Return a token for a form, other bytes each time: a page that is compressed must not repeat a secret."""
        pad = secrets.token_bytes(32)
        masked = bytes(a ^ b for a, b in zip(pad, self._token(), strict=True))
        return base64.urlsafe_b64encode(pad + masked).decode()

    def check_form(self, token: str) -> bool:
        """Whether a form of this session brought the token."""
        try:
            raw = base64.urlsafe_b64decode(token.encode("utf-8", "replace"))
        except ValueError:
            return False
        unmasked = bytes(a ^ b for a, b in zip(raw[:32], raw[32:], strict=False))
        return hmac.compare_digest(unmasked, self._token())

    def _token(self) -> bytes:
        return hmac.digest(self.session, b"form", "sha256")


class Visits:
    """Finds the operator of a request."""

    def __init__(self, console: Console, settings: ConsoleSettings, programs: ProgramAuth, guesses: RateLimit) -> None:
        self._console, self._settings, self._programs, self._guesses = console, settings, programs, guesses

    async def find(self, request: Request) -> Visit:
        """Return the visit of a browser. Raises SignInNeeded, or ApiError with 422 for an address with a zero byte."""
        refuse_zero_bytes(request)
        visit = await self._find_visit(request)
        if visit is None:
            raise SignInNeeded
        return visit

    async def find_posted(self, request: Request) -> Visit:
        """Return the visit of a browser that sent a form of ours. Raises SignInNeeded, or ApiError with 403 for a form of another site,
        after the audit log has the refusal."""
        if not is_same_origin(request):
            await self.refuse_form(request, await self._find_visit(request), "another origin")
        visit = await self.find(request)
        form = await read_form(request)
        if not visit.check_form(form.get(FORM_TOKEN, "")):
            await self.refuse_form(request, visit, "no token of this session")
        return visit

    async def find_program(self, request: Request) -> Actor:
        """Return the operator of a program, by its token. Raises ApiError: 401 without a token or for an unknown one, 403 for a customer's
        API key, 422 for an address with a zero byte. An API key with the scope `ops` is a viewer: it sees numbers, and no content."""
        refuse_zero_bytes(request)
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            challenge = {"WWW-Authenticate": "Bearer"}
            message = "Send an operator's token: `Authorization: Bearer ho_…`; `hermes console token` makes one."
            raise ApiError(401, "missing_token", message, headers=challenge)
        try:
            return await self._programs.find(secret.strip(), request)
        except ApiError as error:
            if error.code != "wrong_scope":
                raise
        raise ApiError(403, "operators_only", "An API key opens nothing here; `hermes console token` makes an operator's token.")

    async def enter(self, request: Request, secret: str) -> str | None:
        """Use a link up; return the secret of the new session. None for a wrong one, after the audit log has it. Raises ApiError with 429
        for an address that keeps guessing."""
        entered = await self._console.desk.sign_in.enter(secret, arrival_of(request))
        if entered is None:
            await self._audit_refusal(request, None, "operator.sign_in", "link")
            return None
        return entered[1]

    async def enter_by_proxy(self, request: Request) -> str | None:
        """Return the secret of a new session, if a trusted proxy has signed the operator in; else None."""
        name, role = self._name_by_proxy(request), self._settings.sso_role
        if not name:
            return None
        entered = None
        if OPERATOR_NAME.fullmatch(name):
            new_role = None if role is SsoRole.NONE else Role(role.value)
            entered = await self._console.desk.sign_in.enter_by_proxy(name, new_role, arrival_of(request))
        if entered is None:
            await self._audit_refusal(request, None, "operator.sign_in", "proxy")
            return None
        return entered[1]

    async def refuse_form(self, request: Request, visit: Visit | None, why: str) -> None:
        """Audit a form that does not come from our page, and raise ApiError with 403; 429 for an address that keeps sending them."""
        await self._audit_refusal(request, visit, "form.refused", why)
        raise ApiError(403, "foreign_form", "This form does not come from this page; load the page again.")

    async def _find_visit(self, request: Request) -> Visit | None:
        secret = SESSION_COOKIE.read(request)
        entry = await self._console.desk.sign_in.find_session(secret) if secret else None
        if entry is None:
            return None
        name = self._name_by_proxy(request)
        if name and not is_same_name(name, entry.operator.name):  # another person at the same browser
            return None
        return Visit(Actor(entry.operator, Face.CONSOLE, source_of(address_of(request))), entry.digest)

    def _name_by_proxy(self, request: Request) -> str:
        """The name that a trusted proxy gives; empty if there is none, or several: then one of them is the client's own."""
        header = self._settings.sso_header
        if header is None or not is_in(peer_of(request), self._settings.sso_addresses):
            return ""
        names = request.headers.getlist(header)
        return names[0].strip() if len(names) == 1 else ""

    async def _audit_refusal(self, request: Request, visit: Visit | None, action: str, why: str) -> None:
        # Anyone can cause these entries, and none is ever deleted: so an address may cause a few a minute.
        if wait_s := self._guesses.wait_s(address_of(request)):
            raise too_many_requests(wait_s)
        actor = visit.actor if visit is not None else Actor(UNKNOWN, Face.CONSOLE, source_of(address_of(request)))
        entry = AuditEntry(action=action, subject_kind="page", subject=page_of(request), allowed=False, facts={"why": why})
        async with self._console.transactions.begin() as tx:
            await self._console.audit.add(tx, actor, entry)


def page_of(request: Request) -> str:
    """The page that a request is for, as its route is written. The address itself is a stranger's text, which no one could erase."""
    return str(getattr(request.scope.get("route"), "path", CONSOLE_PATH))


def arrival_of(request: Request) -> Arrival:
    return Arrival(source_of(address_of(request)), request.headers.get("user-agent", ""))


def is_same_origin(request: Request) -> bool:
    """Whether a page of this server sent the request. Every browser says so, in one header or both; a request with neither is refused."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is None and origin is None:
        return False
    host = request.headers.get("host", "")
    return site in (None, "same-origin") and origin in (None, f"http://{host}", f"https://{host}")


def refuse_zero_bytes(request: Request) -> None:
    """Raise ApiError with 422 for an address that no store could look for: a text in PostgreSQL has no zero byte."""
    if "\0" in request.scope["path"] or b"%00" in request.scope["query_string"]:
        raise ApiError(422, "invalid_address", "The address has a zero byte, and nothing is called that; type it again.")


async def read_form(request: Request) -> Mapping[str, str]:
    """Return the fields of a form. Starlette keeps the body, so a route may read it again."""
    try:
        text = (await request.body()).decode().replace("%00", " ").replace("\0", " ")  # no store takes a zero byte
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS))
    except (UnicodeDecodeError, ValueError):
        raise ApiError(422, "invalid_form", "The form could not be read.") from None
