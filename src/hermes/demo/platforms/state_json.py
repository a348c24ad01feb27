"""What the page and other programs see of the platforms: plain JSON."""

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
"""So many calls and webhooks are shown."""
FAULT_NAMES = {kind: name for name, kind in FAULT_KINDS.items()}


def platform_json(platform: FakePlatform) -> dict[str, Any]:
    """One platform with everything in it."""
    return {
        "name": platform.name,
        "title": platform.title,
        "facts": dict(platform.facts),
        "people": [person_json(person) for person in platform.people.values()],
        "faults": [fault_json(cue, platform.world.pace.now()) for cue in platform.script.faults],
        "disorder": asdict(platform.disorder),
        "calls": [request_json(seen) for seen in platform.requests[-MAX_SHOWN:]],
        "webhooks": [attempt_json(attempt) for attempt in platform.attempts[-MAX_SHOWN:]],
        "copies": sum(count - 1 for count in platform.ledger.copies().values()),
    }


def person_json(person: FakePerson) -> dict[str, Any]:
    about = {"id": person.id, "name": person.name, "is_blocking": person.is_blocking, "typing_shown": person.typing_shown}
    return {**about, "talk": [entry_json(entry) for entry in person.talk]}


def entry_json(entry: ReceivedMessage | PersonMessage) -> dict[str, Any]:
    return {"by": "account" if isinstance(entry, ReceivedMessage) else "person", **asdict(entry)}


def fault_json(cue: ScheduledFault, now: float) -> dict[str, Any]:
    left_s = None if cue.until is None else round(cue.until - now, 1)
    about = {"method": cue.method, "to": cue.to, "times": cue.times, "left_s": left_s}
    return {"kind": FAULT_NAMES[type(cue.fault)], **asdict(cue.fault), **about}


def request_json(seen: RecordedRequest) -> dict[str, Any]:
    """A call without its token."""
    parts = ["bot…" if part.startswith("bot") else part for part in seen.path.split("/")]
    return {"method": seen.method, "path": "/".join(parts), "status": seen.status, "body": seen.body}


def attempt_json(attempt: WebhookAttempt) -> dict[str, Any]:
    body: Mapping[str, Any] = json.loads(attempt.body)
    return {"status": attempt.status, "error": attempt.error, "at": attempt.at, "body": body}
