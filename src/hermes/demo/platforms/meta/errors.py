"""Meta's errors: the code says what happened, the HTTP status says much less."""

from __future__ import annotations

from typing import Any, NamedTuple

from hermes.demo.platforms.refusal import PlatformRefusal
from hermes.demo.platforms.seeded_random import SeededRandom


class FakeMetaError(NamedTuple):
    """The error that Meta sends for a code."""

    status: int
    title: str
    details: str = ""


def error_body(refusal: PlatformRefusal, kind: str, random: SeededRandom, number: int, **further: Any) -> dict[str, Any]:
    """A refusal in the shape of the Graph API; `number` is the call's number, for its trace id."""
    error: dict[str, Any] = {"message": refusal.message, "type": kind, "code": refusal.code if refusal.code is not None else 1}
    if refusal.subcode is not None:
        error["error_subcode"] = refusal.subcode
    return {"error": {**error, **further, **refusal.parameters, "fbtrace_id": f"A{random.letters(22, 'trace', number)}"}}
