"""What all channels read out of webhooks and responses: secrets, JSON from outside, and references to files that users sent. Pure.

    parse_object, as_…   a value of the wrong type counts as absent. Never raises
    FileReference        telegram:bali/AgACAgUAAxkBAAM…      whatsapp:shop/1037543291543636

The account is part of a file's reference: only the account that received a file can fetch it, and the step that looks at an image knows
nothing but the message. A reference holds no token. It is valid as long as the platform keeps the file."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import quote, unquote

from hermes.ports.channels import Ignored, InboundEvent, InboundMessage, Media, WebhookNotAuthentic
from hermes.turn import Platform

PLATFORMS_WITH_FILE_IDS = frozenset({Platform.TELEGRAM, Platform.WHATSAPP})
"""Platforms that give files an id. At the others a file has a public URL."""


@dataclass(frozen=True, slots=True)
class FileReference:
    """A file that one account received."""

    platform: Platform
    account: str
    file_id: str

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read a reference; None for any other text, for example a URL."""
        scheme, _, rest = text.partition(":")
        account, _, file_id = rest.partition("/")
        return cls(Platform(scheme), unquote(account), file_id) if scheme in PLATFORMS_WITH_FILE_IDS and account and file_id else None

    @property
    def bare(self) -> str:
        """The reference without the account, `telegram:FILE_ID`: what the platform's `look_up` takes."""
        return f"{self.platform}:{self.file_id}"


def reference_of(media: Media | None, account: str) -> str | None:
    """The reference of a file that an account received; None without a file. A public URL is its own reference."""
    if media is None:
        return None
    platform, _, file_id = media.reference.partition(":")
    return f"{platform}:{quote(account, safe='')}/{file_id}" if platform in PLATFORMS_WITH_FILE_IDS else media.reference


def check_secret(given: str | None, secrets: Sequence[str]) -> None:
    """Raise WebhookNotAuthentic unless `given` is one of the secrets. Compares all, each in constant time; an empty secret is none."""
    matches = [hmac.compare_digest(header_bytes(given or ""), header_bytes(secret)) for secret in secrets if secret]
    if not any(matches):
        raise WebhookNotAuthentic


def header_bytes(text: str) -> bytes:
    # A header may hold bytes that are not text; Python keeps those as lone surrogates.
    return text.encode("utf-8", "surrogatepass")


def parse_object(body: bytes) -> dict[str, Any] | None:
    """A JSON object; None for anything else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[dict[str, Any]]:
    """The objects of a list, in order."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
"""Characters that JSON can write, but neither UTF-8 nor a database can store."""


def as_text(value: Any) -> str:
    """A text that can be stored. A number becomes text, because ids come as either; any other value is empty."""
    if isinstance(value, str):
        return UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30 else ""


def as_int(value: Any) -> int | None:
    """A whole number, also one that is a JSON string."""
    text = as_text(value)
    return int(text) if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else None


def as_time(value: Any, *, now: datetime) -> datetime | None:
    """A time in seconds or milliseconds, as a number or a text; None for any other value.

    Never later than now: a platform's clock that is ahead would keep the window for free replies open."""
    seconds = as_int(value)
    if seconds is None or seconds <= 0:
        return None
    try:
        at = datetime.fromtimestamp(seconds / 1000 if seconds >= 10**11 else seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return now
    return min(at, now)


def mark_duplicates(found: Iterable[InboundEvent]) -> list[InboundEvent]:
    """The events, with each repeated message replaced by Ignored: one POST may hold the same message twice."""
    seen: set[str] = set()
    result: list[InboundEvent] = []
    for event in found:
        if isinstance(event, InboundMessage):
            key = event.envelope.event_key
            result.append(Ignored(reason="duplicate") if key in seen else event)
            seen.add(key)
        else:
            result.append(event)
    return result
