"""Instagram messaging, through Instagram login or Page login: the same messages, different hosts and tokens.

    Instagram login    POST /vNN.0/{account id | me}/messages     graph.instagram.com, a token of the Instagram user
    Page login         POST /vNN.0/{page id | me}/messages        graph.facebook.com, a token of the Page

Meta also accepts the token as a parameter of the URL. The fake does not: proxies write URLs to their logs. It refuses
every field that it does not know."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any

from aiohttp import web

from hermes.channels.instagram.fake.people import FakeInstagramState, InstagramPerson, unix_millis
from hermes.channels.meta_fake import WebhookQueue, WebhookReceiver, error_body, verify_receiver
from hermes.testing.platforms.exchanges import AcceptedCall, FakeResponse, WebhookAttempt, as_action
from hermes.testing.platforms.faults import PlatformRefusal
from hermes.testing.platforms.platform import FakePlatform
from hermes.testing.platforms.world import BucketRate, RateBucket, World

MAX_TEXT_BYTES = 1000
"""In bytes of UTF-8."""
SENDER_ACTIONS = {"typing_on", "typing_off", "mark_seen", "react", "unreact"}
ATTACHMENT_KINDS = {"image", "video", "audio", "file", "MEDIA_SHARE", "like_heart"}


HOUR_S = 3_600.0
REPLY_WINDOW_S = 24 * HOUR_S
HUMAN_WINDOW_S = 7 * REPLY_WINDOW_S
READ_AFTER_S = 3.0
ECHO_WAIT_S = 2.0
"""How long a call waits for an echo that must arrive before its answer, in real seconds."""
ERROR_TEXTS = {
    1: "An unknown error has occurred.",
    2: "An unexpected error has occurred. Please retry your request later.",
    4: "(#4) Application request limit reached",
    10: "This message is sent outside of allowed window.",
    17: "(#17) User request limit reached",
    32: "(#32) Page request limit reached",
    190: "Error validating access token: Session has expired",
    551: "(#551) This person isn't available right now.",
    613: "(#613) Calls to this api have exceeded the rate limit.",
    1200: "Temporary send message failure. Please try again later.",
}


class FakeInstagramLogin(StrEnum):
    """Which of Meta's two products the account uses."""

    INSTAGRAM = "instagram"
    PAGE = "page"


class FakeInstagram(FakePlatform):
    """One account, and the people who write to it."""

    patience_s = 20.0

    def __init__(
        self,
        world: World,
        login: FakeInstagramLogin,
        media_url: str | None = None,
        *,
        name: str | None = None,
        app: FakeInstagram | None = None,
    ) -> None:
        """`app` is another account of the same app; they share its secret, its verify token and its callback URL."""
        super().__init__(world)
        self.login = login
        self.name = name or ("instagram" if login is FakeInstagramLogin.INSTAGRAM else "instagram_page")
        self.title = f"Instagram ({'Instagram' if login is FakeInstagramLogin.INSTAGRAM else 'Page'} login)"
        random = world.random
        self.token = f"{'IGAA' if login is FakeInstagramLogin.INSTAGRAM else 'EAAP'}{random.letters(120, self.name, 'token')}"
        self.app_secret: str = app.app_secret if app else random.letters(32, self.name, "app secret").lower()
        self.verify_token: str = app.verify_token if app else random.letters(24, self.name, "verify token")
        self.page_id = random.digits(15, self.name, "page")
        self.rate = RateBucket(BucketRate(1 / 300, 300))
        self._state = FakeInstagramState(self, f"1784{random.digits(13, self.name, 'account')}", media_url or world.url)
        self._state.posts = WebhookQueue(self, self._state.compose, 36 * HOUR_S, app._state.posts if app else None)
        self._people: dict[str, InstagramPerson] = {}
        self._reading = 0

    # --- people

    @property
    def people(self) -> Mapping[str, InstagramPerson]:
        return self._people

    def person(self, name: str, *, username: str | None = None) -> InstagramPerson:
        """Add a person. The account cannot write to them before they have written to it."""
        person = InstagramPerson(self._state, name, username or name.lower().replace(" ", "."), len(self._people))
        self._people[person.id] = person
        self.world.changes.notify()
        return person

    @property
    def account_id(self) -> str:
        return self._state.account_id

    @property
    def facts(self) -> Mapping[str, str]:
        page = {"page id": self.page_id} if self.login is FakeInstagramLogin.PAGE else {}
        own = {"access token": self.token, "app secret": self.app_secret, "verify token": self.verify_token}
        posted = {"webhooks are posted to": self.receiver.url} if self.receiver else {}
        return {"API base URL": self.world.url, "account id": self.account_id, **page, **own, **posted}

    # --- webhooks

    @property
    def receiver(self) -> WebhookReceiver | None:
        return self._state.posts.receiver

    def connect(self, url: str) -> None:
        """Post signed webhooks to a URL."""
        self._state.posts.receiver = WebhookReceiver(url, app_secret=self.app_secret)
        self.world.changes.notify()

    async def subscribe(self, url: str, verify_token: str | None = None) -> None:
        """Connect as Meta does: only after the receiver has returned a challenge. Raises VerificationFailed."""
        await verify_receiver(self.world.client, url, verify_token or self.verify_token, self.world.random.digits(10, self.name, url))
        self.connect(url)

    def hand_over(self, *, to_others: bool) -> None:
        """Give the conversations to another app, or take them back. While another app has them, events come as `standby`."""
        self._state.is_standby = to_others

    async def press_test_button(self) -> None:
        """Post what the Test button of Meta's dashboard posts: `changes`, with the id 0 and times as strings."""
        value = {
            "sender": {"id": "12334"},
            "recipient": {"id": "23245"},
            "timestamp": "1527459824",
            "message": {"mid": "random_mid", "text": "random_text"},
        }
        entry = {"id": "0", "time": unix_millis(), "changes": [{"field": "messages", "value": value}]}
        await self.deliver({"object": "instagram", "entry": [entry]})

    async def deliver(self, payload: Mapping[str, Any]) -> WebhookAttempt | None:
        """Post any payload once, also of a kind that does not exist yet, signed as always."""
        return await self._state.posts.post(payload)

    async def answer_by_hand(self, person: InstagramPerson, text: str) -> str:
        """The operator's staff answers in the app, without the API: the person gets the message, and the account gets an echo."""
        mid = self._state.message_id()
        self.message_log.add_received(chat=person.id, message_id=mid, text=text, kind="by hand", at=self.world.clock.now())
        await self._echo(person, mid, {"text": text})
        return mid

    def is_quiet(self) -> bool:
        return self._state.posts.is_quiet() and self._reading == 0

    # --- calls

    async def messages(self, request: web.Request) -> web.StreamResponse:
        async def read(body: Any) -> AcceptedCall:
            self.authorize(request, body)
            if not isinstance(body, dict):
                raise invalid_parameter("The body must be a JSON object")
            person = self._reachable(recipient_of(body))
            if self.rate.wait_s(None, self.world.clock.now()) > 0:
                raise PlatformRefusal(400, ERROR_TEXTS[613], code=613)
            return self._action(body, person) if "sender_action" in body else self._message(body, person)

        return await self.serve(request, read)

    def knows(self, node: str, authorization: str) -> bool:
        """Whether a call to this node with this token is for this account."""
        own = self.account_id if self.login is FakeInstagramLogin.INSTAGRAM else self.page_id
        return node == own or (node == "me" and authorization == f"Bearer {self.token}")

    def asset(self, query: str) -> tuple[bytes, str] | None:
        """A file that a person sent, and its media type."""
        return self._state.assets.get(query)

    def authorize(self, request: web.Request, body: Any) -> None:
        if "access_token" in request.query or (isinstance(body, dict) and "access_token" in body):
            raise PlatformRefusal(
                400, "access_token in the URL or the body ends up in logs; the fake accepts it as a Bearer header only", code=100
            )
        if "Authorization" not in request.headers:
            raise PlatformRefusal(401, "An access token is required to request this resource.", code=104)
        if request.headers["Authorization"] != f"Bearer {self.token}":
            raise PlatformRefusal(401, "Invalid OAuth access token - Cannot parse access token", code=190)

    def error(self, refusal: PlatformRefusal) -> FakeResponse:
        kind = "IGApiException" if self.login is FakeInstagramLogin.INSTAGRAM else "OAuthException"
        return FakeResponse(error_body(refusal, kind, self.world.random, len(self.requests)), refusal.status, self._usage())

    def words(self, status: int, code: int | None, retry_after: int | None) -> str:
        return ERROR_TEXTS.get(code or 0) or super().words(status, code, retry_after)

    def _usage(self) -> dict[str, str]:
        used = [{"type": "messenger", "call_count": 1, "total_cputime": 1, "total_time": 1, "estimated_time_to_regain_access": 0}]
        return {"X-Business-Use-Case-Usage": json.dumps({self.account_id: used})}

    def _reachable(self, person_id: str) -> InstagramPerson:
        person = self._people.get(person_id)
        if person is None:
            raise PlatformRefusal(400, "The requested user cannot be found.", code=100, subcode=2534014)
        if person.is_blocking:
            raise PlatformRefusal(400, ERROR_TEXTS[551], code=551, subcode=1545041)
        return person

    def _message(self, body: Mapping[str, Any], person: InstagramPerson) -> AcceptedCall:
        tag = check_kind(body)
        if not isinstance(body.get("message"), dict):
            raise invalid_parameter("The parameter message is required")
        kind, text = check_message(body["message"])
        if person.silent_s() >= (HUMAN_WINDOW_S if tag else REPLY_WINDOW_S):
            raise PlatformRefusal(403, ERROR_TEXTS[10], code=10, subcode=2534022)

        async def act(*, is_answered: bool) -> FakeResponse:
            self.rate.take(None, self.world.clock.now())
            mid = self._state.message_id()
            self.message_log.add_received(
                chat=person.id,
                message_id=mid,
                text=text,
                kind=kind,
                reply_to=(body["message"].get("reply_to") or {}).get("mid"),
                is_answered=is_answered,
                at=self.world.clock.now(),
                body=body,
            )
            await self._echo(person, mid, body["message"])
            if person.is_reader:
                self._reading += 1
                self.start(self._read(person, mid))
            return FakeResponse({"recipient_id": person.id, "message_id": mid}, headers=self._usage())

        return AcceptedCall("messages", person.id, act)

    async def _echo(self, person: InstagramPerson, mid: str, message: Mapping[str, Any]) -> None:
        """Post an echo of a message that the account sent; sometimes before the call that sent it has its answer."""
        echoed = {key: value for key, value in message.items() if key == "text"}
        if "attachment" in message:
            echoed["attachments"] = [message["attachment"]]
        about = {"sender": {"id": self.account_id}, "recipient": {"id": person.id}, "timestamp": unix_millis()}
        posted = self._state.posts.add(person.id, {**about, "message": {"mid": mid, **echoed, "is_echo": True}})
        if posted and self.world.random.happens(self.disorder.early_echoes, "early echo", person.id, len(person.received)):
            with suppress(TimeoutError):
                await self.world.changes.wait_until(posted.done, ECHO_WAIT_S)

    async def _read(self, person: InstagramPerson, mid: str) -> None:
        try:
            await self.world.clock.sleep(READ_AFTER_S)
            person.read(mid)
        finally:
            self._reading -= 1

    def _action(self, body: Mapping[str, Any], person: InstagramPerson) -> AcceptedCall:
        action = check_action(body)

        async def act() -> FakeResponse:
            self.rate.take(None, self.world.clock.now())
            person.typing_shown += action == "typing_on"
            if action == "mark_seen":
                person.seen_by_account[:] = [sent.message_id for sent in self.message_log.person_messages if sent.sender == person.id]
            self.world.changes.notify()
            return FakeResponse({"recipient_id": person.id}, headers=self._usage())

        return AcceptedCall(action, person.id, as_action(act))


def invalid_parameter(words: str) -> PlatformRefusal:
    return PlatformRefusal(400, f"(#100) {words}", code=100)


def recipient_of(body: Mapping[str, Any]) -> str:
    """The id of the recipient. Raises PlatformRefusal."""
    refuse_unknown_fields(body, {"recipient", "message", "messaging_type", "tag", "sender_action", "payload"}, "body")
    recipient = require_field(body, "recipient", dict)
    refuse_unknown_fields(recipient, {"id"}, "recipient")
    person: str = require_field(recipient, "id", str, "recipient")
    return person


def check_kind(body: Mapping[str, Any]) -> str | None:
    """The tag with which a message may be sent outside of the window, if it has one. Raises PlatformRefusal."""
    kind = body.get("messaging_type", "RESPONSE")
    if kind not in {"RESPONSE", "UPDATE", "MESSAGE_TAG"}:
        raise invalid_parameter("Param messaging_type must be one of {RESPONSE, UPDATE, MESSAGE_TAG}")
    tag = body.get("tag")
    if (kind == "MESSAGE_TAG") != (tag is not None):
        raise invalid_parameter("tag and messaging_type MESSAGE_TAG go together")
    if tag not in {None, "HUMAN_AGENT"}:
        raise invalid_parameter("Param tag must be one of {HUMAN_AGENT}")
    return tag


def check_message(message: Mapping[str, Any]) -> tuple[str, str]:
    """The kind of a message, and the text that a person would read. Raises PlatformRefusal."""
    refuse_unknown_fields(message, {"text", "attachment", "quick_replies", "reply_to", "metadata"}, "message")
    if ("text" in message) == ("attachment" in message):
        raise invalid_parameter("message must have either text or attachment")
    if "quick_replies" in message and not 1 <= len(require_field(message, "quick_replies", list, "message")) <= 13:
        raise invalid_parameter("Param message[quick_replies] must have between 1 and 13 elements")
    if "attachment" in message:
        return _check_attachment(require_field(message, "attachment", dict, "message")), ""
    text: str = require_field(message, "text", str, "message")
    if not text.strip():
        raise invalid_parameter("Param message[text] must be a non-empty UTF-8 encoded string")
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise invalid_parameter(f"Length of param message[text] must be less than or equal to {MAX_TEXT_BYTES}")
    return "text", text


def check_action(body: Mapping[str, Any]) -> str:
    """The sender action of a call that sends no message. Raises PlatformRefusal."""
    action: str = require_field(body, "sender_action", str)
    if action not in SENDER_ACTIONS:
        raise invalid_parameter(f"Param sender_action must be one of {{{', '.join(sorted(SENDER_ACTIONS))}}}")
    if "message" in body:
        raise invalid_parameter("sender_action and message need two calls")
    if action in {"react", "unreact"}:
        require_field(require_field(body, "payload", dict), "message_id", str, "payload")
    return action


def _check_attachment(attachment: Mapping[str, Any]) -> str:
    refuse_unknown_fields(attachment, {"type", "payload"}, "message[attachment]")
    kind: str = require_field(attachment, "type", str, "message[attachment]")
    if kind not in ATTACHMENT_KINDS:
        raise invalid_parameter(f"Param message[attachment][type] must be one of {{{', '.join(sorted(ATTACHMENT_KINDS))}}}")
    if kind not in {"MEDIA_SHARE", "like_heart"}:
        payload = require_field(attachment, "payload", dict, "message[attachment]")
        refuse_unknown_fields(payload, {"url"}, "message[attachment][payload]")
        if not re.match(r"https?://", require_field(payload, "url", str, "message[attachment][payload]")):
            raise invalid_parameter("Param message[attachment][payload][url] is not a valid URL")
    return kind


def refuse_unknown_fields(value: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(value.keys() - known):
        raise invalid_parameter(f'Unexpected key "{unknown[0]}" on param "{where}"')


def require_field(value: Mapping[str, Any], name: str, kind: type, where: str = "") -> Any:
    param = f"{where}[{name}]" if where else name
    if value.get(name) is None:
        raise invalid_parameter(f"The parameter {param} is required")
    if not isinstance(value[name], kind):
        raise invalid_parameter(f"Param {param} must be of type {kind.__name__}")
    return value[name]
