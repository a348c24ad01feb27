"""What the page and other programs see of the platforms: plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hermes.demo.platforms.faults import KINDS, Cue
from hermes.demo.platforms.ledger import Received, Said
from hermes.demo.platforms.person import Person
from hermes.demo.platforms.platform import Platform, Seen
from hermes.demo.platforms.post import Attempt

LAST = 30
"""So many calls and webhooks are shown."""
NAMES = {kind: name for name, kind in KINDS.items()}


def platform_shown(platform: Platform) -> dict[str, Any]:
    """One platform with everything in it."""
    return {
        "name": platform.name,
        "title": platform.title,
        "facts": dict(platform.facts),
        "people": [person_shown(person) for person in platform.people.values()],
        "faults": [cue_shown(cue, platform.world.pace.now()) for cue in platform.script.cues],
        "disorder": asdict(platform.disorder),
        "calls": [call_shown(seen) for seen in platform.requests[-LAST:]],
        "webhooks": [attempt_shown(attempt) for attempt in platform.attempts[-LAST:]],
        "copies": sum(count - 1 for count in platform.ledger.copies().values()),
    }


def person_shown(person: Person) -> dict[str, Any]:
    about = {"id": person.id, "name": person.name, "is_blocking": person.is_blocking, "typing_shown": person.typing_shown}
    return {**about, "talk": [entry_shown(entry) for entry in person.talk]}


def entry_shown(entry: Received | Said) -> dict[str, Any]:
    return {"by": "account" if isinstance(entry, Received) else "person", **asdict(entry)}


def cue_shown(cue: Cue, now: float) -> dict[str, Any]:
    left_s = None if cue.until is None else round(cue.until - now, 1)
    about = {"method": cue.method, "to": cue.to, "times": cue.times, "left_s": left_s}
    return {"kind": NAMES[type(cue.fault)], **asdict(cue.fault), **about}


def call_shown(seen: Seen) -> dict[str, Any]:
    """A call without its token."""
    parts = ["bot…" if part.startswith("bot") else part for part in seen.path.split("/")]
    return {"method": seen.method, "path": "/".join(parts), "status": seen.status, "body": seen.body}


def attempt_shown(attempt: Attempt) -> dict[str, Any]:
    body: Mapping[str, Any] = json.loads(attempt.body)
    return {"status": attempt.status, "error": attempt.error, "at": attempt.at, "body": body}
