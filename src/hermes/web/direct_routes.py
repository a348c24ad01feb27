"""Routes that read the arguments of their endpoints themselves: FastAPI takes half as long for that as accepting a message takes.

    routes = APIRouter(route_class=DirectRoute)

    @routes.post("/orders")
    @read_by(read_order)
    async def order(body: Order) -> Response: ...

FastAPI still describes the route, and reads the requests that the reader does not understand. So a client hears of every fault in the same
words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

Reader = Callable[[Request], Awaitable[Mapping[str, Any] | None]]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Awaitable[Response]])
READER = "reader"


def read_by(read: Reader) -> Callable[[Endpoint], Endpoint]:
    """Let an endpoint get the arguments that `read` finds in a request.

    `read` returns None if it finds a fault: then FastAPI reads the request, and names the fault. What `read` raises is answered as an error
    of the endpoint."""

    def note(endpoint: Endpoint) -> Endpoint:
        vars(endpoint)[READER] = read
        return endpoint

    return note


class DirectRoute(APIRoute):
    """A route whose endpoint may have a reader of its own."""

    def get_route_handler(self) -> Handler:
        """Return what answers a request: the endpoint, with the arguments of its reader; or FastAPI."""
        ordinary, endpoint = super().get_route_handler(), self.endpoint
        read: Reader | None = vars(endpoint).get(READER)
        if read is None:
            return ordinary

        async def respond(request: Request) -> Response:
            arguments = await read(request)
            response: Response = await (ordinary(request) if arguments is None else endpoint(**arguments))
            return response

        return respond
