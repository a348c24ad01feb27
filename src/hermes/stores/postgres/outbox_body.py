"""The body of an outbox message as it is stored: sealed for its user, under a label of its own, so that it opens in no other row."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from hermes.ports.outbox import MessageBody
from hermes.stores.seal import DataKeys


def seal_body(keys: DataKeys, turn_id: UUID, part: int, news: str, body: MessageBody) -> dict[str, Any]:
    """The columns of a part: its number, its body, and whether the body is a platform's message."""
    is_message = not isinstance(body, str)
    text = json.dumps(body, separators=(",", ":")) if is_message else body
    return {"part": part, "body": keys.seal(seal_label(turn_id, part, news), str(text).encode()), "is_message": is_message}


def open_body(keys: DataKeys, turn_id: UUID, part: int, news: str, body: bytes, *, is_message: bool) -> MessageBody:
    """Open what `seal_body` sealed. Raises SealError."""
    text = keys.open(seal_label(turn_id, part, news), body).decode()
    if not is_message:
        return text
    message: dict[str, Any] = json.loads(text)
    return message


def seal_label(turn_id: UUID, part: int, news: str = "") -> str:
    return f"outbox/{turn_id}/{news}/{part}" if news else f"outbox/{turn_id}/{part}"
