"""The Bot API: `/bot<token>/<method>`, and files at `/file/bot<token>/<path>`.

Accepts the parameters that the real server accepts, and refuses in its words. It is stricter in three ways: it refuses a parameter that
does not exist, which the real server ignores; it refuses markup that Telegram would drop; and it refuses `parse_mode`, because a parser's
result for a model's text is unpredictable: send `entities`. Like the real server with `--local`, it posts to `http` URLs and any port."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from hermes.channels.telegram.fake.checks import METHOD_NAMES, read_parameters
from hermes.channels.telegram.fake.methods import BotMethods, FloodLimits
from hermes.channels.telegram.fake.people import FakeTelegramFiles, FakeTelegramState, TelegramGroup, TelegramPerson
from hermes.channels.telegram.fake.updates import BotUpdates, TelegramWebhook
from hermes.testing.platforms.exchanges import AcceptedCall, FakeResponse, as_action
from hermes.testing.platforms.faults import PlatformRefusal
from hermes.testing.platforms.platform import FakePlatform
from hermes.testing.platforms.world import World

TOKEN_PATTERN = re.compile(r"\d+:[A-Za-z0-9_-]{35}")
ERROR_TEXTS = {
    400: "Bad Request: scripted",
    401: "Unauthorized",
    403: "Forbidden: bot was blocked by the user",
    404: "Not Found",
    409: "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


class FakeTelegram(FakePlatform):
    """One bot, and the people who talk to it."""

    name = "telegram"
    title = "Telegram"
    patience_s = 60.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        number = world.random.digits(10, "bot")
        self.token = f"{number}:{world.random.letters(35, 'bot token')}"
        self.secret = world.random.letters(40, "bot secret")
        """The webhook secret for `connect`; `setWebhook` brings its own."""
        bot = {"id": int(number), "is_bot": True, "first_name": "Hermes", "username": "hermes_fake_bot"}
        self._state = FakeTelegramState(self, BotUpdates(self, self._run_answer), FakeTelegramFiles(world.random), bot)
        self._people: dict[str, TelegramPerson] = {}
        self._methods = BotMethods(self._state, self._people)
        self.groups: dict[str, TelegramGroup] = {}

    # --- people

    @property
    def people(self) -> Mapping[str, TelegramPerson]:
        return self._people

    def person(self, name: str, *, username: str | None = None, language: str = "en") -> TelegramPerson:
        """Add a person. The bot cannot write to them before they have written to it."""
        person = TelegramPerson(self._state, name, username, language, len(self._people))
        self._people[person.id] = person
        self.world.changes.notify()
        return person

    def group(self, title: str) -> TelegramGroup:
        """Add a group with the bot in it."""
        group = TelegramGroup(self._state, title, len(self.groups))
        self.groups[group.id] = group
        return group

    @property
    def flood(self) -> FloodLimits:
        """How many messages are accepted; a test may change the rates."""
        return self._methods.flood

    @property
    def facts(self) -> Mapping[str, str]:
        posted = {"webhooks are posted to": self.webhook.url} if self.webhook else {}
        return {"API base URL": self.world.url, "bot token": self.token, "webhook secret": self.secret, **posted}

    # --- the bot's webhook

    @property
    def webhook(self) -> TelegramWebhook | None:
        return self._state.updates.webhook

    @property
    def pending(self) -> int:
        """How many updates the bot has neither accepted by webhook nor polled."""
        return len(self._state.updates.pending)

    def connect(self, url: str, *, secret: str | None = None, allowed_updates: list[str] | None = None, max_connections: int = 40) -> None:
        """Post updates to a URL, as after `setWebhook`."""
        self._state.updates.connect(TelegramWebhook(url, secret or self.secret, max_connections, allowed_updates))

    def disconnect(self) -> None:
        """Post no more updates, as after `deleteWebhook`."""
        self._state.updates.connect(None)

    def send_update(self, kind: str, content: Mapping[str, Any]) -> None:
        """Send any update, also of a kind that does not exist yet."""
        self._state.updates.add(kind, content, "anything")

    def is_quiet(self) -> bool:
        return self._state.updates.is_quiet()

    # --- calls

    def routes(self) -> list[web.RouteDef]:
        return [
            web.route("*", "/bot{token}/{method}", self.call),
            web.get("/file/bot{token}/{path:.+}", self.download),
        ]

    async def call(self, request: web.Request) -> web.StreamResponse:
        async def read(body: Any) -> AcceptedCall:
            self._authorize(request.match_info["token"])
            method = METHOD_NAMES.get(request.match_info["method"].lower())
            if method is None or request.method not in {"GET", "POST"}:
                raise PlatformRefusal(404, "Not Found: method not found")
            return self._methods.read(method, await read_parameters(request, body))

        return await self.serve(request, read)

    async def download(self, request: web.Request) -> web.StreamResponse:
        async def read(_: Any) -> AcceptedCall:
            self._authorize(request.match_info["token"])

            async def act() -> FakeResponse:
                data = self._state.files.at(request.match_info["path"], self.world.clock.now())
                if data is None:
                    raise PlatformRefusal(404, "Not Found")
                return FakeResponse(data, headers={"Content-Type": "application/octet-stream"})

            return AcceptedCall("file", None, as_action(act))

        return await self.serve(request, read)

    def error(self, refusal: PlatformRefusal) -> FakeResponse:
        body: dict[str, Any] = {"ok": False, "error_code": refusal.status, "description": refusal.message}
        parameters = dict(refusal.parameters)
        headers = {}
        if refusal.retry_after is not None:
            parameters["retry_after"] = refusal.retry_after
            headers["Retry-After"] = str(refusal.retry_after)
        if parameters:
            body["parameters"] = parameters
        return FakeResponse(body, refusal.status, headers)

    def words(self, status: int, code: int | None, retry_after: int | None) -> str:
        if status == 429:
            return f"Too Many Requests: retry after {retry_after}"
        return ERROR_TEXTS.get(status, super().words(status, code, retry_after))

    def _authorize(self, token: str) -> None:
        if not TOKEN_PATTERN.fullmatch(token):
            raise PlatformRefusal(404, "Not Found")
        if token != self.token:
            raise PlatformRefusal(401, "Unauthorized")

    async def _run_answer(self, call: Mapping[str, Any]) -> None:
        """Run the call in the response to a webhook, if Telegram would. The bot gets no result."""
        method = METHOD_NAMES.get(str(call["method"]).lower())
        if method is None or method.startswith(("get", "set", "delete")):
            return
        try:
            await self._methods.read(method, {key: value for key, value in call.items() if key != "method"}).act(is_answered=False)
        except PlatformRefusal:
            return

    def is_spinning(self, press_id: str) -> bool:
        """Whether a pressed button still waits for an answer."""
        return self._state.presses[press_id].answer is None
