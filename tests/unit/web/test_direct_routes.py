"""A direct route reads its own requests; FastAPI describes it, and names the faults of the requests that it does not understand."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Header, Request
from fastapi.responses import PlainTextResponse, Response
from fastapi.testclient import TestClient
from pydantic import BaseModel

from hermes.web.direct_routes import DirectRoute, read_by
from hermes.web.errors import ApiError, install_error_handlers


class Order(BaseModel):
    """The body of a request."""

    count: int


async def read(request: Request) -> Mapping[str, Any] | None:
    if "refused" in request.headers:
        raise ApiError(403, "refused", "No.")
    body = await request.body()
    return {"body": Order(count=int(body)), "mark": "direct"} if body.isdigit() else None


routes = APIRouter(route_class=DirectRoute)


@routes.post("/orders")
@read_by(read)
async def order(body: Order, mark: Annotated[str, Header()] = "none") -> Response:
    return PlainTextResponse(f"{body.count} {mark}")


def shop() -> TestClient:
    web = FastAPI()
    web.include_router(routes)
    install_error_handlers(web)
    return TestClient(web)


def test_the_endpoint_gets_the_arguments_that_were_read() -> None:
    client = shop()
    assert client.post("/orders", content=b"7").text == "7 direct"


def test_fastapi_reads_what_the_reader_does_not_understand() -> None:
    client = shop()
    assert client.post("/orders", json={"count": 8}, headers={"mark": "x"}).text == "8 x"
    refused = client.post("/orders", json={"count": "many"})
    assert refused.status_code == 422
    assert refused.json()["error"]["param"] == "count"


def test_what_the_reader_raises_is_answered_as_an_error_of_the_endpoint() -> None:
    client = shop()
    refused = client.post("/orders", content=b"7", headers={"refused": "yes"})
    described = client.get("/openapi.json").json()["paths"]["/orders"]["post"]
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "refused")
    assert described["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Order"}
