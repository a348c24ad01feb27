"""Meta's Graph host, which the Cloud API and both of Instagram's products share: finds the account that a call is for."""

from __future__ import annotations

import json
from collections.abc import Sequence

from aiohttp import web

from hermes.demo.platforms.instagram import FakeInstagram
from hermes.demo.platforms.instagram.state import ASSET_PATH
from hermes.demo.platforms.meta import error_body
from hermes.demo.platforms.refusal import PlatformRefusal
from hermes.demo.platforms.whatsapp import FakeWhatsApp
from hermes.demo.platforms.whatsapp.files import MEDIA_PATH


class MetaGraphHost:
    """The paths that several accounts share. Reads the lists at each call, because accounts may be added."""

    def __init__(self, clouds: Sequence[FakeWhatsApp], dialog360: FakeWhatsApp, instagrams: Sequence[FakeInstagram]) -> None:
        self._clouds, self._dialog360, self._instagrams = clouds, dialog360, instagrams

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(r"/{version:v\d+\.\d+}/{node}/messages", self.messages),
            web.get(r"/{version:v\d+\.\d+}/{media_id:\d+}", self.file_info),
            web.get(MEDIA_PATH, self.download),
            web.get(ASSET_PATH, self.asset),
        ]

    async def messages(self, request: web.Request) -> web.StreamResponse:
        node, authorization = request.match_info["node"], request.headers.get("Authorization", "")
        for cloud in self._clouds:
            if node == cloud.phone_number_id:
                return await cloud.messages(request)
        for instagram in self._instagrams:
            if instagram.knows(node, authorization):
                return await instagram.messages(request)
        if node == "me":
            return self._refuse(PlatformRefusal(401, "Invalid OAuth access token - Cannot parse access token", code=190))
        words = (
            f"Unsupported post request. Object with ID '{node}' does not exist, cannot be loaded due to missing permissions, or does not "
        )
        return self._refuse(PlatformRefusal(400, f"{words}support this operation", code=100, subcode=33))

    async def file_info(self, request: web.Request) -> web.StreamResponse:
        """Say where a WhatsApp file is, at the number that the query names; without one, at the first number."""
        phone_number_id = request.query.get("phone_number_id")
        return await next((cloud for cloud in self._clouds if cloud.phone_number_id == phone_number_id), self._clouds[0]).file_info(request)

    async def download(self, request: web.Request) -> web.StreamResponse:
        """Serve a WhatsApp file, to a caller with the key of the file's number."""
        is_dialog360 = "D360-API-KEY" in request.headers or self._dialog360.knows_link(request.url.raw_query_string)
        if is_dialog360:
            return await self._dialog360.download(request)
        link = request.url.raw_query_string
        return await next((cloud for cloud in self._clouds if cloud.knows_link(link)), self._clouds[0]).download(request)

    async def asset(self, request: web.Request) -> web.StreamResponse:
        """Serve an Instagram file. Its URL is enough; a call with a token is refused."""
        if "Authorization" in request.headers:
            return self._refuse(PlatformRefusal(400, "The call sent a token to the CDN, which needs none", code=100))
        found = next((file for one in self._instagrams if (file := one.asset(request.url.raw_query_string))), None)
        if found is None:
            return web.Response(status=403, text="URL signature mismatch")
        return web.Response(body=found[0], content_type=found[1])

    def _refuse(self, refusal: PlatformRefusal) -> web.Response:
        first = self._clouds[0]
        body = error_body(refusal, "OAuthException", first.world.random, len(first.requests))
        return web.Response(status=refusal.status, body=json.dumps(body).encode(), content_type="application/json")
