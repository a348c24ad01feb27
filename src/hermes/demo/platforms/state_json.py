"""The state of the platforms as JSON, for the page and for other programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hermes.demo.platforms.faults import FAULT_KINDS, ScheduledFault
from hermes.demo.platforms.message_log import PersonMessage, ReceivedMessage
from hermes.demo.platforms.person import FakePerson
from hermes.demo.platforms.platform import FakePlatform, RecordedRequest
from hermes.demo.platforms.webhook_post import WebhookAttempt

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
