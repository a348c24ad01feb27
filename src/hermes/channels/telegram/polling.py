"""Updates that are asked for, for who has no address that Telegram could send them to.

    api.updates(offset)  →  send it, and wait  →  polled(reply)  →  store what each webhook holds  →  api.updates(polled.offset) …

The next offset tells Telegram to forget what was given, so it is only sent once all of that is stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from hermes.channels.meta import as_int, objects_in, parse_object
from hermes.ports.channels import PlatformResponse, Webhook


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledUpdates:
    """What an answer to `updates` holds."""

    webhooks: Sequence[Webhook]
    """Each update as if it had been sent, in order; for `parse`, not for `verify`: nobody but Telegram could have answered."""
    offset: int | None
    """What to ask for next. None: for whatever is there. After an empty answer that is nothing old, because the question before has had it
    forgotten; and it must be so, because after a quiet week Telegram goes on with any number, also with a smaller one."""


def updates_in(reply: PlatformResponse) -> PolledUpdates | None:
    """The updates in an answer; None where it is no such answer, and `classify` says why. Then the same offset is asked for again."""
    body = parse_object(reply.body)
    if reply.status != 200 or body is None or body.get("ok") is not True or not isinstance(body.get("result"), list):
        return None
    updates = objects_in(body["result"])
    numbers = [number for update in updates if (number := as_int(update.get("update_id"))) is not None]
    return PolledUpdates(
        webhooks=[Webhook(headers={}, body=json.dumps(update).encode()) for update in updates],
        offset=numbers[-1] + 1 if numbers else None,
    )
