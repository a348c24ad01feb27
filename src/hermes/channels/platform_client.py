"""The client of all channels. Its errors separate requests that were proven not sent from those that may have arrived."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hermes.http_client import AnswerTooLong, HttpClient, HttpReply, TransportError
from hermes.ports.channels import MaybeSent, NotSent, PlatformRequest, PlatformResponse
from hermes.ports.tools import ImageTooLarge

MAX_RESPONSE_BYTES = 1024 * 1024
"""The client gives up a longer response: no platform says that much about one message. A file has its own limit."""


class PlatformHttpClient:
    """The ports PlatformClient and PlatformFiles. Made by `open_platform_client`."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    async def send(self, call: PlatformRequest, *, timeout_s: float) -> PlatformResponse:
        headers, body = dict(call.headers), None
        if call.json is not None:
            headers["Content-Type"] = "application/json"
            try:
                body = json.dumps(call.json, ensure_ascii=False, separators=(",", ":")).encode()
            except ValueError:
                raise NotSent("the body cannot be encoded") from None
        try:
            async with self._client.send(call.method, call.url, headers=headers, timeout_s=timeout_s, body=body) as reply:
                return make_response(reply, await reply.read(MAX_RESPONSE_BYTES))
        except AnswerTooLong:
            raise MaybeSent("the response is too long") from None
        except TransportError as error:
            raise delivery_error(error) from None

    async def fetch(self, call: PlatformRequest, *, timeout_s: float, max_bytes: int) -> PlatformResponse:
        headers = {**call.headers, "Accept-Encoding": "identity"}
        try:
            async with self._client.send(call.method, call.url, headers=headers, timeout_s=timeout_s) as reply:
                if reply.headers.get("Content-Encoding", "identity").casefold() != "identity":
                    # The request did not allow it, and a few compressed bytes may expand without end.
                    raise MaybeSent("the platform sent the file compressed")
                if int(reply.headers.get("Content-Length", 0)) > max_bytes:
                    raise ImageTooLarge(max_bytes)
                return make_response(reply, await reply.read(max_bytes))
        except AnswerTooLong:
            raise ImageTooLarge(max_bytes) from None
        except TransportError as error:
            raise delivery_error(error) from None


def make_response(reply: HttpReply, body: bytes) -> PlatformResponse:
    return PlatformResponse(status=reply.status, headers={name.lower(): value for name, value in reply.headers.items()}, body=body)


def delivery_error(error: TransportError) -> MaybeSent | NotSent:
    return MaybeSent(str(error)) if error.may_have_arrived else NotSent(str(error))


@asynccontextmanager
async def open_platform_client(*, connections_per_host: int = 32, connect_timeout_s: float = 5.0) -> AsyncIterator[PlatformHttpClient]:
    """Open the client until the block ends."""
    client = HttpClient(connections_per_host=connections_per_host, connect_timeout_s=connect_timeout_s)
    try:
        yield PlatformHttpClient(client)
    finally:
        await client.aclose()
