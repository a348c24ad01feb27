"""Errors as the client sees them: one JSON shape, with advice, and without internal details.

{"error": {"message": "txt: unknown field; did you mean text?", "type": "invalid_request", "param": "txt", "code": "extra_forbidden"}}"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from hermes.ports.errors import IdempotencyKeyReused, InboxFull, NotFound, PortError, RequestStillRunning, StoreUnavailable, UserErased


class ErrorDetail(BaseModel):
    """The error, for a person and for a program."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    """The body of every error response."""

    error: ErrorDetail


class ApiError(Exception):
    """An error response of Hermes."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        kind: str | None = None,
    ) -> None:
        """`kind` is the error's type if it is not the default of its status."""
        super().__init__(message)
        self.status, self.code, self.message, self.param, self.headers, self.kind = status, code, message, param, headers, kind


TYPE_BY_STATUS = {
    401: "authentication",
    403: "permission",
    404: "not_found",
    409: "conflict",
    410: "gone",
    413: "too_large",
    429: "rate_limited",
    503: "unavailable",
}

PORT_ERRORS: dict[type[PortError], tuple[int, str, str, dict[str, str]]] = {
    StoreUnavailable: (503, "store_unavailable", "The message could not be stored; send it again.", {"Retry-After": "1"}),
    InboxFull: (503, "inbox_full", "Too many messages wait for this account; send it again later.", {"Retry-After": "5"}),
    IdempotencyKeyReused: (422, "idempotency_key_reused", "This Idempotency-Key was used for a request with another body.", {}),
    RequestStillRunning: (409, "still_running", "The first request with this Idempotency-Key has no answer yet.", {"Retry-After": "1"}),
    NotFound: (404, "not_found", "There is no such message.", {}),
    UserErased: (410, "user_erased", "The message's sender was deleted, and the answer too.", {}),
}
"""The error response for each error of a port. The port's own text is left out: it may name hosts."""
OPERATORS_PATH = "/v1/ops/"


def install_error_handlers(web: FastAPI) -> None:
    """Make the app answer every error in this shape."""

    @web.exception_handler(ApiError)
    async def refused(_: Request, error: ApiError) -> JSONResponse:
        return api_error_response(error)

    @web.exception_handler(PortError)
    async def port_failed(request: Request, error: PortError) -> JSONResponse:
        if type(error) not in PORT_ERRORS:
            raise error
        status, code, message, headers = PORT_ERRORS[type(error)]
        if isinstance(error, NotFound) and request.url.path.startswith(OPERATORS_PATH):
            message = f"{error}."  # an operator asks for many things, and the console's own words say which is missing
        return error_response(status, code, message, headers=headers)

    @web.exception_handler(RequestValidationError)
    async def not_valid(_: Request, error: RequestValidationError) -> JSONResponse:
        return validation_response(error.errors())

    @web.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        status = HTTPStatus(error.status_code)
        message = str(error.detail) if error.detail != status.phrase else f"{status.phrase}."
        return error_response(status, status.phrase.lower().replace(" ", "_"), message, headers=error.headers)

    @web.exception_handler(ClientDisconnect)
    async def left(_: Request, __: ClientDisconnect) -> JSONResponse:
        return error_response(499, "client_left", "The client has disconnected.")

    @web.exception_handler(Exception)
    async def unexpected(_: Request, __: Exception) -> JSONResponse:
        # The server logs it; the client learns only that the fault is not its own.
        return error_response(500, "internal_error", "Something went wrong on our side.")


def api_error_response(error: ApiError) -> JSONResponse:
    return error_response(error.status, error.code, error.message, param=error.param, headers=error.headers, kind=error.kind)


def error_response(
    status: int,
    code: str,
    message: str,
    *,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
    kind: str | None = None,
) -> JSONResponse:
    kind = kind or TYPE_BY_STATUS.get(status, "invalid_request" if status < 500 else "server_error")
    body = ErrorBody(error=ErrorDetail(message=message, type=kind, param=param, code=code))
    return JSONResponse(body.model_dump(), status, dict(headers or {}))


def validation_response(errors: Sequence[Any]) -> JSONResponse:
    """Name the wrong field, without repeating the values that the client sent."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return error_response(400, "invalid_json", f"The body is not valid JSON: {first['ctx']['error']} at character {first['loc'][-1]}.")
    place, *path = first["loc"]
    param = ".".join(str(part) for part in path) or str(place)
    message = f"unknown field{suggest_field(param)}" if first["type"] == "extra_forbidden" else first["msg"]
    return error_response(422, first["type"], f"{param}: {message}", param=param)


MESSAGE_FIELDS = ("text", "user", "channel", "shared", "stream", "media_url", "media_type", "id", "approve", "refuse", "choice")


def suggest_field(unknown: str) -> str:
    near = get_close_matches(unknown, MESSAGE_FIELDS, n=1)
    return f"; did you mean {near[0]}?" if near else ""
