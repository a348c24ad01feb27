"""The body of a parcel as it is stored: sealed for its user, under its own place, so that it opens nowhere else."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from hermes.ports.outbox import MessageBody
from hermes.stores.seal import DataKeys


def seal_body(keys: DataKeys, turn_id: UUID, part: int, news: str, body: MessageBody) -> dict[str, Any]:
    """The columns of a part: its number, its body, and whether that is a platform's message."""
    is_message = not isinstance(body, str)
    text = json.dumps(body, separators=(",", ":")) if is_message else body
    return {"part": part, "body": keys.seal(seal_label(turn_id, part, news), str(text).encode()), "is_message": is_message}


def open_body(keys: DataKeys, turn_id: UUID, part: int, news: str, body: bytes, *, is_message: bool) -> MessageBody:
    """The body again."""
    text = keys.open(seal_label(turn_id, part, news), body).decode()
    if not is_message:
        return text
    message: dict[str, Any] = json.loads(text)
    return message


def seal_label(turn_id: UUID, part: int, news: str = "") -> str:
    return f"outbox/{turn_id}/{news}/{part}" if news else f"outbox/{turn_id}/{part}"
