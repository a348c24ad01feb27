"""WhatsApp, through 360dialog or Meta's own Cloud API: the same messages, different paths and keys.

    360dialog    POST /messages                               D360-API-KEY    webhooks with a header that you choose, no signature
    Cloud API    POST /vNN.0/{phone_number_id}/messages       Bearer          webhooks signed with the app's secret

A 200 says only that WhatsApp accepted a message; the statuses come by webhook."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from aiohttp import web

from hermes.channels.meta_fake import WebhookQueue, WebhookReceiver, error_body, verify_receiver
from hermes.channels.whatsapp.fake.checks import ERROR_BY_CODE, invalid_parameter
from hermes.channels.whatsapp.fake.delivery import FakeDelivery, WhatsAppRules
from hermes.channels.whatsapp.fake.people import (
    FakeWhatsAppFiles,
    FakeWhatsAppState,
    PayloadPart,
    WhatsAppGroup,
    WhatsAppPerson,
    unix_seconds_text,
)
from hermes.testing.platforms.exchanges import AcceptedCall, FakeResponse, WebhookAttempt, as_action
from hermes.testing.platforms.faults import FailLaterFault, Fault, PlatformRefusal
from hermes.testing.platforms.platform import FakePlatform
from hermes.testing.platforms.world import World

HOUR_S = 3_600.0
MAX_MEDIA_ERRORS = 20
MEDIA_BLOCK_S = 1_800.0


class WhatsAppApi(StrEnum):
    """Whose API it is."""

    DIALOG360 = "360dialog"
    CLOUD = "cloud"


class FakeWhatsApp(FakePlatform):
    """One number, and the people who write to it."""

    def __init__(
        self, world: World, api: WhatsAppApi, media_url: str | None = None, *, name: str | None = None, app: FakeWhatsApp | None = None
    ) -> None:
        """`app` is another number of the same app; they share its secret, its verify token and its callback URL."""
        super().__init__(world)
        self.api = api
        self.name = name or ("whatsapp" if api is WhatsAppApi.DIALOG360 else "whatsapp_cloud")
        self.title = f"WhatsApp ({'360dialog' if api is WhatsAppApi.DIALOG360 else 'Cloud API'})"
        self.patience_s = 5.0 if api is WhatsAppApi.DIALOG360 else 20.0
        random = world.random
        self.key = (
            random.letters(40, self.name, "key") if api is WhatsAppApi.DIALOG360 else f"EAAG{random.letters(120, self.name, 'token')}"
        )
        """The API key of 360dialog, or the access token of the Cloud API."""
        self.app_secret: str = app.app_secret if app else random.letters(32, self.name, "app secret").lower()
        self.verify_token: str = app.verify_token if app else random.letters(24, self.name, "verify token")
        self.secret_header = ("X-Hermes-Secret", random.letters(40, self.name, "header"))
        """The header that 360dialog sends with webhooks, unless `connect` names others."""
        self._state = FakeWhatsAppState(
            self,
            FakeWhatsAppFiles(random, self.name),
            account_id=random.digits(15, self.name, "account"),
            phone_number_id=random.digits(15, self.name, "phone number id"),
            display_number=f"62{random.digits(10, self.name, 'number')}",
        )
        give_up_after_s = (7 * 24 if api is WhatsAppApi.DIALOG360 else 36) * HOUR_S
        self._state.posts = WebhookQueue(self, self._state.compose, give_up_after_s, app._state.posts if app else None)
        # 360dialog's links name Meta's host, which must never see the key: the client replaces it by 360dialog's own host.
        self.media_url = media_url or ("https://lookaside.fbsbx.com" if api is WhatsAppApi.DIALOG360 else world.url)
        self._members: list[WhatsAppPerson] = []
        self.groups: dict[str, WhatsAppGroup] = {}
        self._delivery = FakeDelivery(self._state, self._members, self.groups)
        self._media_errors: list[float] = []
        self._media_blocked_until = 0.0

    # --- people

    @property
    def people(self) -> Mapping[str, WhatsAppPerson]:
        return {person.id: person for person in self._members}

    def person(self, name: str, *, phone: str | None = "", username: str | None = None) -> WhatsAppPerson:
        """Add a person. By default they get a phone number; with None they have a user name and no number."""
        number = len(self._members)
        if phone == "":
            phone = f"628{self.world.random.digits(9, self.name, 'person', number)}"
        if phone is None and username is None:
            username = f"{name.lower().replace(' ', '.')}.{number}"
        person = WhatsAppPerson(self._state, name, phone, username, number)
        self._members.append(person)
        self.world.changes.notify()
        return person

    def group(self, title: str) -> WhatsAppGroup:
        """Add a group with the number in it."""
        group = WhatsAppGroup(self._state, title, len(self.groups))
        self.groups[group.id] = group
        return group

    @property
    def phone_number_id(self) -> str:
        return self._state.phone_number_id

    @property
    def display_number(self) -> str:
        return self._state.display_number

    @property
    def account_id(self) -> str:
        """The id of the WhatsApp business account."""
        return self._state.account_id

    @property
    def rules(self) -> WhatsAppRules:
        """What WhatsApp accepts; a test may change all of it."""
        return self._delivery.rules

    @property
    def facts(self) -> Mapping[str, str]:
        if self.api is WhatsAppApi.DIALOG360:
            own = {"API key": self.key, "webhook header": ": ".join(self.secret_header)}
        else:
            own = {"access token": self.key, "app secret": self.app_secret, "verify token": self.verify_token}
        posted = {"webhooks are posted to": self.receiver.url} if self.receiver else {}
        return {"API base URL": self.world.url, "phone number id": self.phone_number_id, **own, **posted}

    # --- webhooks

    @property
    def receiver(self) -> WebhookReceiver | None:
        return self._state.posts.receiver

    def connect(self, url: str, *, headers: Mapping[str, str] | None = None) -> None:
        """Post webhooks to a URL. 360dialog sends the headers (by default `secret_header`), the Cloud API signs."""
        if self.api is WhatsAppApi.DIALOG360:
            self._state.posts.receiver = WebhookReceiver(url, dict([self.secret_header]) if headers is None else headers)
        else:
            self._state.posts.receiver = WebhookReceiver(url, headers or {}, self.app_secret)
        self.world.changes.notify()

    async def subscribe(self, url: str, verify_token: str | None = None) -> None:
        """Connect as Meta does: only after the receiver has returned a challenge. Raises VerificationFailed."""
        await verify_receiver(self.world.client, url, verify_token or self.verify_token, self.world.random.digits(10, self.name, url))
        self.connect(url)

    async def deliver(self, payload: Mapping[str, Any]) -> WebhookAttempt | None:
        """Post any payload once, also of a kind that does not exist yet, signed as always."""
        return await self._state.posts.post(payload)

    def answer_by_hand(self, person: WhatsAppPerson, text: str) -> str:
        """The operator's staff answers in the app, without the API: the person gets the message, and the account gets an echo."""
        message_id = self._state.message_id()
        self.message_log.add_received(chat=person.id, message_id=message_id, text=text, kind="by hand", at=self.world.clock.now())
        to = {"to": person.phone} if person.phone else {"to_user_id": person.user_id}
        echo = {
            "from": self.display_number,
            **to,
            "id": message_id,
            "timestamp": unix_seconds_text(),
            "type": "text",
            "text": {"body": text},
        }
        self._state.posts.add(person.lane, PayloadPart("smb_message_echoes", "message_echoes", echo))
        return message_id

    def is_quiet(self) -> bool:
        return self._state.posts.is_quiet() and self._delivery.pending_statuses == 0

    def fail_later(self, code: int = 131026, *, to: object = None, times: int | None = 1) -> None:
        """Accept the next messages, and report a while later that they failed."""
        self.schedule_fault(FailLaterFault(code=code), method="messages", to=to, times=times)

    def throttle(self, *, times: int | None = 1) -> None:
        """Refuse the next calls as 360dialog itself does: 400, with a text and without a code."""
        self.fail(400, message="You have exceeded the endpoint rate limit.", times=times)

    # --- calls

    def routes(self) -> list[web.RouteDef]:
        """360dialog's paths. Those of the Cloud API belong to the Graph host, which several accounts share."""
        if self.api is WhatsAppApi.CLOUD:
            return []
        return [
            web.post("/messages", self.messages),
            web.get(r"/{media_id:\d+}", self.file_info),
            web.post(r"/{phone_number_id:\d+}/messages", self.wrong_path),
            web.post(r"/v1/messages", self.wrong_path),
        ]

    async def messages(self, request: web.Request) -> web.StreamResponse:
        async def read(body: Any) -> AcceptedCall:
            self.authorize(request)
            if not isinstance(body, dict):
                raise invalid_parameter("The body must be a JSON object (Content-Type: application/json).")
            if body.get("messaging_product") != "whatsapp":
                raise invalid_parameter("The parameter messaging_product is required.")
            return self._delivery.read_mark(body) if "status" in body else self._delivery.read_message(body)

        return await self.serve(request, read)

    async def wrong_path(self, request: web.Request) -> web.StreamResponse:
        async def read(_: Any) -> AcceptedCall:
            raise PlatformRefusal(
                404, "This URL is blocked: 360dialog takes POST /messages, without a phone number id and without a version"
            )

        return await self.serve(request, read)

    async def file_info(self, request: web.Request) -> web.StreamResponse:
        """Answer where a file can be fetched."""

        async def read(_: Any) -> AcceptedCall:
            self.authorize(request)
            now = self.world.clock.now()
            if now < self._media_blocked_until:
                raise PlatformRefusal(400, "You have exceeded the endpoint rate limit.")
            is_own = request.query.get("phone_number_id", self.phone_number_id) == self.phone_number_id
            found = self._state.media.link(request.match_info["media_id"], self.media_url, now) if is_own else None
            if found is None:
                self._count_media_error(now)
                words = f"Unsupported get request. Object with ID '{request.match_info['media_id']}' does not exist"
                raise PlatformRefusal(400, words, code=100, subcode=33)

            async def act() -> FakeResponse:
                return FakeResponse(found)

            return AcceptedCall("media", None, as_action(act))

        return await self.serve(request, read)

    async def download(self, request: web.Request) -> web.StreamResponse:
        """Serve a file from the link that `file_info` gave."""

        async def read(_: Any) -> AcceptedCall:
            self.authorize(request)
            found = self._state.media.at(request.url.raw_query_string, self.world.clock.now())
            if found is None:
                raise PlatformRefusal(404, "Not Found: no such link, or it is older than five minutes", code=100)

            async def act() -> FakeResponse:
                return FakeResponse(found.data, headers={"Content-Type": found.mime_type})

            return AcceptedCall("fetch", None, as_action(act))

        return await self.serve(request, read)

    def knows_link(self, query: str) -> bool:
        """Whether a link is of a file of this number, and has not expired."""
        return self._state.media.at(query, self.world.clock.now()) is not None

    def authorize(self, request: web.Request) -> None:
        """Refuse a call without the right key, and one that shows a key in the wrong place."""
        if "access_token" in request.query:
            raise PlatformRefusal(400, "access_token in the URL ends up in logs; the fake accepts it as a Bearer header only", code=100)
        if self.api is WhatsAppApi.DIALOG360:
            if "Authorization" in request.headers:
                raise PlatformRefusal(400, "360dialog takes D360-API-KEY; an Authorization header shows it a token of another service")
            if request.headers.get("D360-API-KEY") != self.key:
                raise PlatformRefusal(401, "Invalid api_key")
        elif "Authorization" not in request.headers:
            raise PlatformRefusal(401, "An access token is required to request this resource.", code=104)
        elif request.headers["Authorization"] != f"Bearer {self.key}":
            raise PlatformRefusal(401, "Invalid OAuth access token - Cannot parse access token", code=190)

    def error(self, refusal: PlatformRefusal) -> FakeResponse:
        if self.api is WhatsAppApi.DIALOG360 and refusal.code is None:
            return FakeResponse(
                {"meta": {"success": False, "http_code": refusal.status, "developer_message": refusal.message}}, refusal.status
            )
        return FakeResponse(error_body(refusal, "OAuthException", self.world.random, len(self.requests)), refusal.status)

    def words(self, status: int, code: int | None, retry_after: int | None) -> str:
        known = ERROR_BY_CODE.get(code or 0)
        return f"(#{code}) {known.title}" if known else super().words(status, code, retry_after)

    async def apply_fault(self, fault: Fault | None, call: AcceptedCall, request: web.Request, place: int) -> web.StreamResponse:
        if isinstance(fault, FailLaterFault) and call.method == "messages" and call.to is not None:
            return self._respond(place, self._delivery.accept(call.to, failing=fault.code))
        return await super().apply_fault(None if isinstance(fault, FailLaterFault) else fault, call, request, place)

    def _count_media_error(self, now: float) -> None:
        """Count a failure. After twenty within an hour 360dialog refuses all files for half an hour."""
        self._media_errors = [at for at in self._media_errors if at > now - HOUR_S] + [now]
        if self.api is WhatsAppApi.DIALOG360 and len(self._media_errors) >= MAX_MEDIA_ERRORS:
            self._media_blocked_until = now + MEDIA_BLOCK_S
