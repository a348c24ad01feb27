"""WhatsApp, behind 360dialog or behind Meta's own Cloud API: the same messages, other doors.

    360dialog    POST /messages                               D360-API-KEY    webhooks with a header of your own, no signature
    Cloud API    POST /vNN.0/{phone_number_id}/messages       Bearer          webhooks signed with the app's secret

A 200 says no more than that a message was accepted; what became of it comes by webhook."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from aiohttp import web

from hermes.demo.platforms.faults import FailLater, Fault
from hermes.demo.platforms.limits import Bucket, Rate
from hermes.demo.platforms.meta import Posts, Receiver, error_body, verify_receiver
from hermes.demo.platforms.platform import Answer, Call, Platform, World, regardless
from hermes.demo.platforms.refusal import Refusal
from hermes.demo.platforms.whatsapp.bodies import MEDIA, check_message, check_read, recipient_of
from hermes.demo.platforms.whatsapp.line import Line, Part, stamp
from hermes.demo.platforms.whatsapp.media import Media
from hermes.demo.platforms.whatsapp.people import WhatsAppPerson
from hermes.demo.platforms.whatsapp.words import REFERENCE, TROUBLES, trouble, wrong

AN_HOUR_S = 3_600.0
MEDIA_ERRORS = 20
MEDIA_BLOCK_S = 1_800.0
STEPS = (("sent", 0.5), ("delivered", 1.0), ("read", 3.0))
"""When each status comes, in the platform's seconds after the message was accepted."""


class Door(StrEnum):
    """Whose API it is."""

    DIALOG360 = "360dialog"
    CLOUD = "cloud"


class When(StrEnum):
    """When WhatsApp says that somebody cannot be written to; it does both."""

    AT_ONCE = "at once"
    LATER = "later"


class WhatsApp(Platform):
    """One number, and the people who write to it."""

    def __init__(self, world: World, door: Door, media_url: str | None = None) -> None:
        super().__init__(world)
        self.door = door
        self.name = "whatsapp" if door is Door.DIALOG360 else "whatsapp_cloud"
        self.title = f"WhatsApp ({'360dialog' if door is Door.DIALOG360 else 'Cloud API'})"
        self.patience_s = 5.0 if door is Door.DIALOG360 else 20.0
        chance = world.chance
        self.key = chance.letters(40, self.name, "key") if door is Door.DIALOG360 else f"EAAG{chance.letters(120, self.name, 'token')}"
        """The API key of 360dialog, or the access token of the Cloud API."""
        self.app_secret = chance.letters(32, self.name, "app secret").lower()
        self.verify_token = chance.letters(24, self.name, "verify token")
        self.secret_header = ("X-Hermes-Secret", chance.letters(40, self.name, "header"))
        """What 360dialog sends along with webhooks, unless it is told otherwise."""
        self.refuses = When.AT_ONCE
        self.templates: dict[tuple[str, str], int] = {("hello_world", "en_US"): 0, ("still_there", "en"): 1}
        """Approved templates: name and language, with how many parameters their body takes."""
        self.pair = Bucket(Rate(6.0, 45))
        self.throughput = Bucket(Rate(1 / 80, 80))
        self._line = Line(
            self,
            Media(chance, self.name),
            account_id=chance.digits(15, self.name, "account"),
            phone_number_id=chance.digits(15, self.name, "phone number id"),
            display_number=f"62{chance.digits(10, self.name, 'number')}",
        )
        self._line.posts = Posts(self, self._line.compose, (7 * 24 if door is Door.DIALOG360 else 36) * AN_HOUR_S)
        # 360dialog's links name Meta's host, where its key must never go: who fetches puts 360dialog's own host in its place.
        self.media_url = media_url or ("https://lookaside.fbsbx.com" if door is Door.DIALOG360 else world.url)
        self._members: list[WhatsAppPerson] = []
        self._telling = 0
        self._media_errors: list[float] = []
        self._media_blocked_until = 0.0

    # --- people

    @property
    def people(self) -> Mapping[str, WhatsAppPerson]:
        return {person.id: person for person in self._members}

    def person(self, name: str, *, phone: str | None = "", username: str | None = None) -> WhatsAppPerson:
        """Somebody new. Without a `phone` of their own they get one; with None they have a user name and no number."""
        number = len(self._members)
        if phone == "":
            phone = f"628{self.world.chance.digits(9, self.name, 'person', number)}"
        if phone is None and username is None:
            username = f"{name.lower().replace(' ', '.')}.{number}"
        person = WhatsAppPerson(self._line, name, phone, username, number)
        self._members.append(person)
        self.world.bell.ring()
        return person

    @property
    def phone_number_id(self) -> str:
        return self._line.phone_number_id

    @property
    def display_number(self) -> str:
        return self._line.display_number

    @property
    def account_id(self) -> str:
        """The WhatsApp business account."""
        return self._line.account_id

    # --- webhooks

    @property
    def receiver(self) -> Receiver | None:
        return self._line.posts.receiver

    def connect(self, url: str, *, headers: Mapping[str, str] | None = None) -> None:
        """Post webhooks there. 360dialog sends the headers along (by default `secret_header`), the Cloud API signs."""
        if self.door is Door.DIALOG360:
            self._line.posts.receiver = Receiver(url, dict([self.secret_header]) if headers is None else headers)
        else:
            self._line.posts.receiver = Receiver(url, headers or {}, self.app_secret)
        self.world.bell.ring()

    async def subscribe(self, url: str, verify_token: str | None = None) -> None:
        """Connect, as Meta does it: only after the receiver has given a challenge back. Raises VerificationFailed."""
        await verify_receiver(self.world.client, url, verify_token or self.verify_token, self.world.chance.digits(10, self.name, url))
        self.connect(url)

    def is_quiet(self) -> bool:
        return self._line.posts.is_quiet() and self._telling == 0

    def fail_later(self, code: int = 131026, *, to: object = None, times: int | None = 1) -> None:
        """Accept the next messages, and say a while later that they failed."""
        self.cue(FailLater(code=code), method="messages", to=to, times=times)

    def throttle(self, *, times: int | None = 1) -> None:
        """Refuse the next calls as 360dialog does by itself: 400, with a text and no code."""
        self.fail(400, message="You have exceeded the endpoint rate limit.", times=times)

    # --- calls

    def routes(self) -> list[web.RouteDef]:
        """360dialog's paths. Those of the Cloud API are Graph's, and shared."""
        if self.door is Door.CLOUD:
            return []
        return [
            web.post("/messages", self.messages),
            web.get(r"/{media_id:\d+}", self.medium),
            web.post(r"/{phone_number_id:\d+}/messages", self.misplaced),
            web.post(r"/v1/messages", self.misplaced),
        ]

    async def messages(self, request: web.Request) -> web.StreamResponse:
        async def read(body: Any) -> Call:
            self.authorize(request)
            if not isinstance(body, dict):
                raise wrong("The body must be a JSON object (Content-Type: application/json).")
            if body.get("messaging_product") != "whatsapp":
                raise wrong("The parameter messaging_product is required.")
            return self._mark(body) if "status" in body else self._message(body)

        return await self.serve(request, read)

    async def misplaced(self, request: web.Request) -> web.StreamResponse:
        async def read(_: Any) -> Call:
            raise Refusal(404, "This URL is blocked: 360dialog takes POST /messages, without a phone number id and without a version")

        return await self.serve(request, read)

    async def medium(self, request: web.Request) -> web.StreamResponse:
        """Tell where a file can be fetched."""

        async def read(_: Any) -> Call:
            self.authorize(request)
            now = self.world.pace.now()
            if now < self._media_blocked_until:
                raise Refusal(400, "You have exceeded the endpoint rate limit.")
            found = self._line.media.link(request.match_info["media_id"], self.media_url, now)
            if found is None:
                self._count_media_error(now)
                words = f"Unsupported get request. Object with ID '{request.match_info['media_id']}' does not exist"
                raise Refusal(400, words, code=100, subcode=33)

            async def act() -> Answer:
                return Answer(found)

            return Call("media", None, regardless(act))

        return await self.serve(request, read)

    async def fetch(self, request: web.Request) -> web.StreamResponse:
        """Give a file out, from the link that `medium` told."""

        async def read(_: Any) -> Call:
            self.authorize(request)
            found = self._line.media.at(request.url.raw_query_string, self.world.pace.now())
            if found is None:
                raise Refusal(404, "Not Found: no such link, or it is older than five minutes", code=100)

            async def act() -> Answer:
                return Answer(found.data, headers={"Content-Type": found.mime_type})

            return Call("fetch", None, regardless(act))

        return await self.serve(request, read)

    def knows_link(self, query: str) -> bool:
        """Whether a link is one of this number's, and still works."""
        return self._line.media.at(query, self.world.pace.now()) is not None

    def authorize(self, request: web.Request) -> None:
        """Refuse a call without the right key, and one that shows a key where it does not belong."""
        if "access_token" in request.query:
            raise Refusal(400, "access_token in the URL ends up in logs; the stand-in takes it as a Bearer header only", code=100)
        if self.door is Door.DIALOG360:
            if "Authorization" in request.headers:
                raise Refusal(400, "360dialog takes D360-API-KEY; an Authorization header shows a token to whom it does not concern")
            if request.headers.get("D360-API-KEY") != self.key:
                raise Refusal(401, "Invalid api_key")
        elif "Authorization" not in request.headers:
            raise Refusal(401, "An access token is required to request this resource.", code=104)
        elif request.headers["Authorization"] != f"Bearer {self.key}":
            raise Refusal(401, "Invalid OAuth access token - Cannot parse access token", code=190)

    def error(self, refusal: Refusal) -> Answer:
        if self.door is Door.DIALOG360 and refusal.code is None:
            return Answer({"meta": {"success": False, "http_code": refusal.status, "developer_message": refusal.message}}, refusal.status)
        return Answer(error_body(refusal, "OAuthException", self.world.chance, len(self.requests)), refusal.status)

    def words(self, status: int, code: int | None, retry_after: int | None) -> str:
        known = TROUBLES.get(code or 0)
        return f"(#{code}) {known.title}" if known else super().words(status, code, retry_after)

    async def strike(self, fault: Fault | None, call: Call, request: web.Request, place: int) -> web.StreamResponse:
        if isinstance(fault, FailLater) and call.method == "messages" and call.to is not None:
            return self._sent(place, self._accept(call.to, failing=fault.code))
        return await super().strike(None if isinstance(fault, FailLater) else fault, call, request, place)

    # --- messages

    def _message(self, body: Mapping[str, Any]) -> Call:
        kind, text = check_message(body)
        wanted, is_number = recipient_of(body)
        if kind == "template":
            self._check_template(body["template"])
        elif kind in MEDIA and "id" in body[kind]:
            raise wrong(f"Param {kind}['id'] is not a valid whatsapp business account media attachment ID")
        person = next((one for one in self._members if wanted == (one.phone if is_number else one.user_id)), None)
        self._check_rates(wanted)
        failing = None
        if person is None:
            failing = 131026
        elif kind != "template" and not person.is_open:
            failing = 131047
        if failing is not None and self.refuses is When.AT_ONCE:
            raise trouble(failing)

        async def act(*, is_answered: bool) -> Answer:
            answer = self._accept(wanted, failing=failing)
            if person is not None and failing is None and not person.is_blocking:
                self.ledger.arrive(
                    chat=person.id,
                    message_id=answer.body["messages"][0]["id"],
                    text=text,
                    kind=kind,
                    reply_to=body.get("context", {}).get("message_id"),
                    is_answered=is_answered,
                    at=self.world.pace.now(),
                    body=body,
                )
            return answer

        return Call("messages", person.id if person else wanted, act)

    def _accept(self, wanted: str, *, failing: int | None) -> Answer:
        """Say that a message was taken, and see to it that its statuses follow."""
        message_id = self._line.message_id()
        person = next((one for one in self._members if wanted in {one.phone, one.user_id}), None)
        if failing is not None:
            steps: tuple[tuple[str, float], ...] = (("failed", 1.0),)
        elif person is None or person.is_blocking:
            steps = STEPS[:1]
        else:
            steps = STEPS if person.is_reader else STEPS[:2]
        for status, after_s in steps:
            self._telling += 1
            self.start(self._tell(person, wanted, message_id, status, after_s, failing))
        contact = {"input": wanted, **({"user_id": wanted} if "." in wanted else {"wa_id": wanted})}
        accepted = [{"id": message_id, "message_status": "accepted"}]
        return Answer({"messaging_product": "whatsapp", "contacts": [contact], "messages": accepted})

    async def _tell(
        self, person: WhatsAppPerson | None, wanted: str, message_id: str, status: str, after_s: float, failing: int | None
    ) -> None:
        """Tell the account what became of a message."""
        try:
            await self.world.pace.sleep(after_s)
            item: dict[str, Any] = {"id": message_id, "status": status, "timestamp": stamp()}
            item |= {"recipient_user_id": wanted} if "." in wanted else {"recipient_id": wanted}
            if failing is not None:
                title = TROUBLES[failing].title
                why = {"code": failing, "title": title, "message": title, "error_data": {"details": TROUBLES[failing].details}}
                item["errors"] = [{**why, "href": REFERENCE}]
            elif status == "sent":
                item |= {"pricing": {"billable": False, "pricing_model": "PMP", "category": "service", "type": "free_customer_service"}}
            contact = person.contact if person and failing is None else None
            self._line.posts.add(person.lane if person else wanted, Part("messages", "statuses", item, contact))
        finally:
            self._telling -= 1

    def _mark(self, body: Mapping[str, Any]) -> Call:
        message_id = check_read(body)
        person = self.people.get(self._line.heard.get(message_id, ""))
        if person is None:
            raise trouble(131009, f"There is no message {message_id} from a person.")
        is_typing = "typing_indicator" in body
        self._check_rates(person.id)

        async def act() -> Answer:
            if message_id not in person.seen_by_account:
                person.seen_by_account.append(message_id)
            person.typing_shown += is_typing
            self.world.bell.ring()
            return Answer({"success": True})

        return Call("typing" if is_typing else "read", person.id, regardless(act))

    def _check_rates(self, wanted: str) -> None:
        now = self.world.pace.now()
        if self.throughput.wait_s(None, now) > 0:
            raise trouble(130429)
        if self.pair.wait_s(wanted, now) > 0:
            raise trouble(131056)
        self.throughput.take(None, now)
        self.pair.take(wanted, now)

    def _check_template(self, template: Mapping[str, Any]) -> None:
        key = (template["name"], template["language"]["code"])
        if key not in self.templates:
            raise trouble(132001, f"template name ({key[0]}) does not exist in {key[1]}")
        given = sum(len(part.get("parameters", ())) for part in template.get("components", ()) if part["type"] == "body")
        if given != self.templates[key]:
            raise trouble(132000, f"body: number of localizable_params ({given}) does not match the expected ({self.templates[key]})")

    def _count_media_error(self, now: float) -> None:
        """Twenty within an hour, and 360dialog answers nothing for half an hour."""
        self._media_errors = [at for at in self._media_errors if at > now - AN_HOUR_S] + [now]
        if self.door is Door.DIALOG360 and len(self._media_errors) >= MEDIA_ERRORS:
            self._media_blocked_until = now + MEDIA_BLOCK_S
