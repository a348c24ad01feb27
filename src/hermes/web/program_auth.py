"""The operators' programs at `/v1/ops`: an operator's token, `Bearer ho_…`, or an API key with the scope `ops`. A customer's API key opens
nothing here."""

from collections.abc import Awaitable, Callable

from fastapi import Request

from hermes.console.access import ConsoleAccess, Subject
from hermes.console.sign_in import TOKEN_PREFIX, SignIn
from hermes.ports.operators import Actor, Face, Operator, Role
from hermes.ports.users import ApiKey
from hermes.web.api_auth import ApiAuth
from hermes.web.errors import ApiError
from hermes.web.limits import RateLimit, address_of, source_of, too_many_requests
from hermes.web.messages import Credentials

OPS_SCOPE = "ops"


class ProgramAuth:
    """Finds the operator of a program's request."""

    def __init__(self, api_auth: ApiAuth, guesses: RateLimit, *, sign_in: SignIn | None, access: ConsoleAccess | None) -> None:
        """`guesses` limits how often an address is told that its token is wrong. Without `sign_in` there are no operators, only keys."""
        self._api_auth, self._guesses, self._sign_in, self._access = api_auth, guesses, sign_in, access

    async def find(self, secret: str | None, request: Request, *, key_role: Role = Role.VIEWER) -> Actor:
        """Return the operator of a token. An API key with the scope `ops` acts as an operator with `key_role`. Raises ApiError: 401 for an
        unknown secret, 403 for another API key, 429 for an address that keeps guessing."""
        address = address_of(request)
        if secret is None or self._sign_in is None or not secret.startswith(TOKEN_PREFIX):
            key = await self._api_auth.admit(secret, OPS_SCOPE, address, is_counted=request.method != "GET")
            return Actor(key_operator(key, key_role), Face.API, source_of(address))
        entry = await self._sign_in.find_token(secret)
        if entry is None:
            if wait_s := self._guesses.wait_s(address):
                raise too_many_requests(wait_s)
            headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
            raise ApiError(401, "unknown_token", "This operator's token is unknown, was revoked, or is too old.", headers=headers)
        return Actor(entry.operator, Face.API, source_of(address))

    async def permit(self, actor: Actor, needed: Role, action: str, subject: Subject) -> None:
        """Audit an operator's act, and refuse it to a lower role. Raises AccessRefused."""
        if self._access is not None:
            await self._access.permit(actor, needed, action, subject)


def key_operator(key: ApiKey, role: Role) -> Operator:
    """The operator that an API key with the scope `ops` stands for, in the audit log too."""
    return Operator(id=key.id, name=f"key {key.name}", role=role, created_at=key.created_at, created_by="keys")


def make_program_dependency(programs: ProgramAuth) -> Callable[..., Awaitable[Actor]]:
    """Return the dependency of the routes from before the console: there an API key with the scope `ops` may do everything."""

    async def find_actor(request: Request, credentials: Credentials) -> Actor:
        return await programs.find(credentials.credentials if credentials else None, request, key_role=Role.OWNER)

    return find_actor
