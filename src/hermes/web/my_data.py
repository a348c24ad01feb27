"""Shows and erases what Hermes knows about a user: over the API for the users of an account, on the chat page for the visitor.

A user of the API is everyone whom the programs of an account call by one name: at `POST /v1/messages` and `/v1/runs`, and behind each key
at the APIs that send whole chats. A visitor of the page is their cookie. For a user of another account the answer is 404, so that no client
learns who writes to another account. Of a user who writes to several accounts, each account sees only what they said there, and erases only
that."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal
from urllib.parse import unquote
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.routing import Match
from starlette.types import Scope

from hermes.ports.errors import NotFound, StaleHead, StoreUnavailable, UserErased
from hermes.ports.key_use import person_forbidden
from hermes.ports.users import ApiKey, User, UserChannel
from hermes.soul.my_data import (
    ErasureIncomplete,
    MyDataStores,
    data_as_json,
    forget_fact,
    forget_memory,
    forget_user_at,
    join_data,
    limiting_account,
    my_data,
)
from hermes.turn import PROGRAM_PLATFORMS, Platform
from hermes.web.api_auth import ApiAuth, refuse_other_users
from hermes.web.chat_page import WEB_ACCOUNT, own_page_only
from hermes.web.errors import ApiError, ErrorBody
from hermes.web.key_errors import key_api_error
from hermes.web.messages import make_key_dependency
from hermes.web.visitors import VISITOR_COOKIE, Visitors, visitor_id

Name = Annotated[str, Path(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$", description="Your name for the user.")]
FactId = Annotated[UUID, Path(description="The `id` of a fact in their data.")]


class FactView(BaseModel):
    """A fact about a user, with its origin. A fact is superseded, never overwritten."""

    id: UUID
    text: str
    key: str | None = Field(description="The structural key; null for a free fact.")
    origin: str = Field(description="`said` and `rule`: the user's own words; `tool`: a tool they asked for; `system`: what Hermes did.")
    source_turn: UUID | None
    confidence: float
    valid_from: str
    expires_at: str | None
    superseded_at: str | None = Field(description="When Hermes stopped taking it for true.")
    superseded_by: UUID | None


class UserDataView(BaseModel):
    """All data of a user. If the user writes to other accounts too: what they said to this one."""

    id: UUID
    state: str
    tier: str
    language: str | None
    trains: bool = Field(description="Whether their messages may be used for training.")
    referral_code: str
    created_at: str | None
    credits: dict[str, int] = Field(description="`available` and `reserved`.")
    channels: list[dict[str, str]] = Field(description="The addresses that they write from, in this account.")
    kept: dict[str, int] = Field(description="How many other records there are, by kind.")
    opened_by_operators: int = Field(description="How often operators opened what the user and the models wrote.")
    facts: list[FactView] = Field(description="All present and past facts, oldest first.")
    dreams: list[dict[str, Any]] = Field(
        description="What Hermes concludes from all facts, and would like to know. Empty if the user writes to other accounts too."
    )


class ForgottenFacts(BaseModel):
    """How many facts Hermes has forgotten."""

    forgotten: int


class ForgottenInAccount(BaseModel):
    """The user was erased from this account, and still writes to others."""

    forgotten: Literal["account"]


RESPONSES: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (401, 403, 404, 422, 429, 503)}


def user_data_routes(stores: MyDataStores, api_auth: ApiAuth, wait_recorded: Callable[[UUID], Awaitable[None]]) -> APIRouter:
    """`/v1/users/{user}`: for programs, about the users of their own account. `wait_recorded` waits until all answers that a user has from
    this process are recorded; those of another process are, a few hundredths of a second after they were given."""
    routes = APIRouter(tags=["my data"], route_class=RawPathRoute, responses=RESPONSES)

    async def find_key(key: Annotated[ApiKey, Depends(make_key_dependency(api_auth, "users"))]) -> ApiKey:
        if key.channels is not None:
            raise ApiError(403, "wrong_channel", "The data of a user is not limited to the channels of this API key.")
        return key

    async def find_users(user: Name, key: Annotated[ApiKey, Depends(find_key)]) -> Sequence[User]:
        refuse_other_users(key, user)
        found = await find_end_users(user, key, stores)
        for each in found:
            await wait_recorded(each.id)
        return found

    Key = Annotated[ApiKey, Depends(find_key)]  # noqa: N806  # a type
    KnownUsers = Annotated[Sequence[User], Depends(find_users)]  # noqa: N806  # a type

    @routes.get("/v1/users/{user}/data", responses={200: {"model": UserDataView}}, summary="All data of a user")
    async def show(known: KnownUsers, key: Key) -> Response:
        """All that this user said in the account, by whichever API."""
        return await user_data_response(known, key.account, stores)

    @routes.delete("/v1/users/{user}/memory", responses={200: {"model": ForgottenFacts}}, summary="Forget all facts about a user")
    async def empty(known: KnownUsers, key: Key) -> Response:
        """Erases the user's facts and dreams for good. The user and their credits stay, and their next message begins a new session. If the
        user writes to other accounts too, it erases what was learnt in this one."""
        return await forget_memory_response(known, key.account, stores)

    @routes.delete("/v1/users/{user}/memory/{fact_id}", status_code=204, summary="Forget one fact")
    async def drop(fact_id: FactId, known: KnownUsers, key: Key) -> Response:
        return await forget_fact_response(known, fact_id, key.account, stores)

    @routes.delete("/v1/users/{user}/data", status_code=204, responses={200: {"model": ForgottenInAccount}}, summary="Forget a user")
    @routes.delete("/v1/users/{user}", status_code=204, responses={200: {"model": ForgottenInAccount}}, summary="Forget a user")
    async def forget(known: KnownUsers, key: Key) -> Response:
        """Discards the user's key, so that what it sealed can never be read again: all that they said in the account, by whichever API.
        A later message under that name is from a new user.

        A user who writes to other accounts too is erased in this one alone, and the response says so, with 200."""
        return await forget_user_response(known, key.account, stores)

    return routes


def visitor_data_routes(stores: MyDataStores, visitors: Visitors) -> APIRouter:
    """`/web/my-data`: for the chat page, about its visitor."""
    routes = APIRouter(include_in_schema=False, dependencies=[Depends(own_page_only)])

    async def find_visitor(cookie: Annotated[str | None, Depends(visitors.find)]) -> Sequence[User]:
        if cookie is None:
            raise unknown_user()
        return [await find_channel_user(UserChannel(WEB_ACCOUNT, Platform.WEB, visitor_id(cookie)), stores)]

    Visitor = Annotated[Sequence[User], Depends(find_visitor)]  # noqa: N806  # a type

    @routes.get("/web/my-data")
    async def show(visitor: Visitor) -> Response:
        return await user_data_response(visitor, WEB_ACCOUNT, stores)

    @routes.delete("/web/my-data/memory")
    async def empty(visitor: Visitor) -> Response:
        return await forget_memory_response(visitor, WEB_ACCOUNT, stores)

    @routes.delete("/web/my-data/memory/{fact_id}")
    async def drop(fact_id: FactId, visitor: Visitor) -> Response:
        return await forget_fact_response(visitor, fact_id, WEB_ACCOUNT, stores)

    @routes.delete("/web/my-data")
    async def forget(visitor: Visitor, request: Request) -> Response:
        response = await forget_user_response(visitor, WEB_ACCOUNT, stores)
        VISITOR_COOKIE.delete(request, response)
        return response

    return routes


class RawPathRoute(APIRoute):
    """A route that matches the path before it is decoded, so that a name may hold a slash: `team%2Falice` is one name."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches({**scope, "path": scope.get("raw_path", scope["path"].encode()).decode("ascii", "replace")})
        try:
            decoded = {name: unquote(value, errors="strict") for name, value in child.get("path_params", {}).items()}
        except UnicodeDecodeError:
            return Match.NONE, {}
        return match, {**child, "path_params": decoded} if child else child


async def find_channel_user(channel: UserChannel, stores: MyDataStores) -> User:
    with translate_errors():
        async with stores.transactions.begin() as tx:
            user = await stores.people.find(tx, channel)
    if user is None:
        raise unknown_user()
    return user


async def find_end_users(name: str, key: ApiKey, stores: MyDataStores) -> Sequence[User]:
    """Return the users whom the programs of the key's account call by this name. Raises ApiError: 404 if there are none, 403 if one of them
    is a person of a messaging channel, whom the key does not name."""
    with translate_errors():
        async with stores.transactions.begin() as tx:
            found = await stores.people.end_users(tx, key.account, name)
            channels = await stores.people.channels(tx, [user.id for user in found])
    if not found:
        raise unknown_user()
    if key.limits.users is None and any(each.platform not in PROGRAM_PLATFORMS for several in channels.values() for each in several):
        raise key_api_error(person_forbidden(name))
    return found


async def user_data_response(users: Sequence[User], account: str, stores: MyDataStores) -> Response:
    with translate_errors():
        data = join_data([await my_data(user.id, stores, account=account) for user in users])
    return JSONResponse(data_as_json(data, account=account), headers={"Cache-Control": "no-store"})


async def forget_memory_response(users: Sequence[User], account: str, stores: MyDataStores) -> Response:
    with translate_errors():
        counts = [
            await forget_memory(user.id, **memory_services(stores), account=await limiting_account(user.id, account, stores))
            for user in users
        ]
    return JSONResponse({"forgotten": sum(counts)}, headers={"Cache-Control": "no-store"})


async def forget_fact_response(users: Sequence[User], fact_id: UUID, account: str, stores: MyDataStores) -> Response:
    with translate_errors():
        were_there = [
            await forget_fact(user.id, fact_id, **memory_services(stores), account=await limiting_account(user.id, account, stores))
            for user in users
        ]
    if not any(were_there):
        raise ApiError(404, "unknown_fact", "There is no such fact.")
    return Response(status_code=204)


async def forget_user_response(users: Sequence[User], account: str, stores: MyDataStores) -> Response:
    with translate_errors():
        are_gone = [await forget_user_at(user.id, account, stores) for user in users]
    return Response(status_code=204) if all(are_gone) else JSONResponse({"forgotten": "account"}, headers={"Cache-Control": "no-store"})


def memory_services(stores: MyDataStores) -> dict[str, Any]:
    return {"transactions": stores.transactions, "memories": stores.memories, "souls": stores.souls, "eraser": stores.eraser}


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate errors: 404 for a user who was erased meanwhile, 503 and `Retry-After` for a store that is away or busy."""
    try:
        yield
    except (NotFound, UserErased):
        raise unknown_user() from None
    except (StoreUnavailable, StaleHead, ErasureIncomplete):
        raise ApiError(503, "store_unavailable", "The data cannot be reached; try it again.", headers={"Retry-After": "1"}) from None


def unknown_user() -> ApiError:
    return ApiError(404, "unknown_user", "There is no such user.")
