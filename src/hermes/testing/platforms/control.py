"""Control of the fake platforms over HTTP: people, what they do, and faults.

    GET    /_control/state?after=N                       the whole state; with `after` waits until something changed
    POST   /_control/time                                {"skip_s": 90000}
    POST   /_control/{platform}/people                   {"name": "Ada"}, and "username", "phone", "language" if the platform has them
    GET    /_control/{platform}/people/{id}/received
    POST   /_control/{platform}/people/{id}/{act}        say, picture, album, voice, location, react, block, unblock, number, press
    POST   /_control/{platform}/faults                   {"kind": "reset", "method": "messages", "to": id, "times": 2}, or "for_s": 60
    DELETE /_control/{platform}/faults
    POST   /_control/{platform}/webhook                  {"url": "…"}, and "verify_token" to ask the receiver first, as Meta does
    POST   /_control/{platform}/disorder                 {"duplicates": 0.1, "held_back": 0.2, "batch_s": 2}

Accepts JSON from this server's own page and from programs. A page of another site can neither read nor change anything."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from hermes.testing.platforms.exchanges import RecordedRequest, WebhookAttempt
from hermes.testing.platforms.faults import FAULT_KINDS, ScheduledFault, VerificationFailed
from hermes.testing.platforms.message_log import PersonMessage, ReceivedMessage
from hermes.testing.platforms.platform import FakePerson, FakePlatform
from hermes.testing.platforms.world import World

MAX_SHOWN = 30
"""How many of the latest calls and webhooks are shown."""
FAULT_NAMES = {kind: name for name, kind in FAULT_KINDS.items()}


def platform_json(platform: FakePlatform) -> dict[str, Any]:
    """One platform with its people, faults, calls and webhooks."""
    return {
        "name": platform.name,
        "title": platform.title,
        "facts": dict(platform.facts),
        "people": [person_json(person) for person in platform.people.values()],
        "faults": [fault_json(scheduled, platform.world.clock.now()) for scheduled in platform.schedule.faults],
        "disorder": asdict(platform.disorder),
        "calls": [request_json(request) for request in platform.requests[-MAX_SHOWN:]],
        "webhooks": [attempt_json(attempt) for attempt in platform.attempts[-MAX_SHOWN:]],
        "copies": sum(count - 1 for count in platform.message_log.copies().values()),
    }


def person_json(person: FakePerson) -> dict[str, Any]:
    about = {"id": person.id, "name": person.name, "is_blocking": person.is_blocking, "typing_shown": person.typing_shown}
    return {**about, "talk": [entry_json(entry) for entry in person.talk]}


def entry_json(entry: ReceivedMessage | PersonMessage) -> dict[str, Any]:
    return {"by": "account" if isinstance(entry, ReceivedMessage) else "person", **asdict(entry)}


def fault_json(scheduled: ScheduledFault, now: float) -> dict[str, Any]:
    left_s = None if scheduled.until is None else round(scheduled.until - now, 1)
    about = {"method": scheduled.method, "to": scheduled.to, "times": scheduled.times, "left_s": left_s}
    return {"kind": FAULT_NAMES[type(scheduled.fault)], **asdict(scheduled.fault), **about}


def request_json(request: RecordedRequest) -> dict[str, Any]:
    """A call, without the token in its path."""
    parts = ["bot…" if part.startswith("bot") else part for part in request.path.split("/")]
    return {"method": request.method, "path": "/".join(parts), "status": request.status, "body": request.body}


def attempt_json(attempt: WebhookAttempt) -> dict[str, Any]:
    body: Mapping[str, Any] = json.loads(attempt.body)
    return {"status": attempt.status, "error": attempt.error, "at": attempt.at, "body": body}


WAIT_S = 20.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ControlApi:
    """The endpoints below `/_control`."""

    def __init__(self, platforms: Mapping[str, FakePlatform], world: World) -> None:
        self._platforms, self._world = platforms, world

    def routes(self) -> list[web.RouteDef]:
        one = "/_control/{platform}"
        return [
            web.get("/_control/state", same_origin_only(self.state)),
            web.post("/_control/time", same_origin_only(self.time)),
            web.post(f"{one}/people", same_origin_only(self.add_person)),
            web.get(f"{one}/people/{{person}}/received", same_origin_only(self.received)),
            web.post(f"{one}/people/{{person}}/{{act}}", same_origin_only(self.act)),
            web.post(f"{one}/faults", same_origin_only(self.add_fault)),
            web.delete(f"{one}/faults", same_origin_only(self.heal)),
            web.post(f"{one}/webhook", same_origin_only(self.connect)),
            web.post(f"{one}/disorder", same_origin_only(self.disorder)),
        ]

    async def state(self, request: web.Request) -> web.Response:
        after, changes = request.query.get("after", ""), self._world.changes
        if after.isdecimal() and int(after) >= changes.count:
            try:
                await changes.wait_until(lambda: changes.count > int(after), WAIT_S)
                await asyncio.sleep(0.03)  # several changes at once become one response
            except TimeoutError:
                pass
        platforms = [platform_json(platform) for platform in self._platforms.values()]
        return web.json_response({"rings": changes.count, "now": self._world.clock.now(), "platforms": platforms})

    async def time(self, request: web.Request) -> web.Response:
        self._world.clock.skip(float((await read_json(request))["skip_s"]))
        self._world.changes.notify()
        return web.json_response({"now": self._world.clock.now()})

    async def add_person(self, request: web.Request) -> web.Response:
        platform, body = self._platform(request), await read_json(request)
        person = platform.person(str(body.pop("name")), **body)
        return web.json_response(person_json(person), status=201)

    async def received(self, request: web.Request) -> web.Response:
        return web.json_response([entry_json(entry) for entry in self._person(request).received])

    async def act(self, request: web.Request) -> web.Response:
        person, body = self._person(request), await read_json(request)
        result = perform_act(person, request.match_info["act"], body)
        self._world.changes.notify()
        return web.json_response({"id": person.id, "did": result})

    async def add_fault(self, request: web.Request) -> web.Response:
        platform, body = self._platform(request), await read_json(request)
        when = {name: value for name in ("method", "to", "times", "for_s") if (value := body.pop(name, None)) is not None}
        if "for_s" in when:
            when.setdefault("times", None)
        platform.schedule_fault(FAULT_KINDS[body.pop("kind")](**body), **when)
        return web.json_response(platform_json(platform)["faults"], status=201)

    async def heal(self, request: web.Request) -> web.Response:
        self._platform(request).heal()
        return web.json_response([])

    async def connect(self, request: web.Request) -> web.Response:
        platform, body = self._platform(request), await read_json(request)
        if "verify_token" in body:
            try:
                await platform.subscribe(body["url"], body["verify_token"])
            except VerificationFailed as error:
                raise web.HTTPBadRequest(text=str(error)) from None
        else:
            platform.connect(body["url"])
        return web.json_response({"url": body["url"]})

    async def disorder(self, request: web.Request) -> web.Response:
        platform, body = self._platform(request), await read_json(request)
        platform.disorder = replace(platform.disorder, **{name: float(value) for name, value in body.items()})
        self._world.changes.notify()
        return web.json_response(platform_json(platform)["disorder"])

    def _platform(self, request: web.Request) -> FakePlatform:
        found = self._platforms.get(request.match_info["platform"])
        if found is None:
            raise web.HTTPNotFound(text=f"the platforms are {', '.join(self._platforms)}")
        return found

    def _person(self, request: web.Request) -> FakePerson:
        person = self._platform(request).people.get(request.match_info["person"])
        if person is None:
            raise web.HTTPNotFound(text="there is no person with this id")
        return person


def perform_act(person: FakePerson, act: str, body: Mapping[str, Any]) -> Any:
    """Let a person do something; returns the platform's id for it, if it has one."""
    if act in ACTS:
        return ACTS[act](person, body)
    if act in person.own_acts:
        return person.own_acts[act](body)
    raise web.HTTPNotFound(text=ACTS_OF_SOME.get(act) or f"people can {', '.join((*ACTS, *ACTS_OF_SOME))}")


ACTS: Mapping[str, Callable[[FakePerson, Mapping[str, Any]], Any]] = {
    "say": lambda person, body: person.say(str(body["text"]), reply_to=body.get("reply_to")),
    "picture": lambda person, body: person.send_picture(file_bytes(body), str(body.get("caption", ""))),
    "album": lambda person, body: person.send_album([None] * int(body.get("count", 2)), str(body.get("caption", ""))),
    "voice": lambda person, _: person.send_voice(),
    "location": lambda person, body: person.send_location(float(body["latitude"]), float(body["longitude"])),
    "react": lambda person, body: person.react(str(body["message_id"]), str(body.get("emoji", ""))),
    "block": lambda person, _: person.block(),
    "unblock": lambda person, _: person.unblock(),
}
ACTS_OF_SOME = {"number": "only WhatsApp identifies people by number", "press": "this platform has no buttons"}
"""Acts that people have at some platforms only, and why they have not at the others."""


def file_bytes(body: Mapping[str, Any]) -> bytes | None:
    """The file in the request, in base64; None without one."""
    return base64.b64decode(body["base64"], validate=True) if body.get("base64") else None


async def read_json(request: web.Request) -> dict[str, Any]:
    """The JSON object in a request; empty without a body."""
    body = await request.json() if request.can_read_body else {}
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="the body must be a JSON object")
    return body


def same_origin_only(handler: Handler) -> Handler:
    """Answer only this server's own page, and programs. Says in one line what is wrong with a request."""

    async def guarded(request: web.Request) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text="only this server's own page may do that")
        if request.method != "GET" and request.can_read_body and request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="send JSON with the header Content-Type: application/json")
        try:
            return await handler(request)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise web.HTTPBadRequest(text=f"{type(error).__name__}: {error}") from None

    return guarded
