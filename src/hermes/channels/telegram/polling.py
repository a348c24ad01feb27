"""Updates by long polling, for a Hermes without a public URL that Telegram could post to.

    api.updates(offset)  →  send it, and wait  →  updates_in(reply)  →  store the events of each webhook  →  api.updates(polled.offset) …

The next offset tells Telegram to forget the updates before it, so the poller sends it only after all of them are stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from hermes.channels.meta import as_int, objects_in, parse_object
from hermes.ports.channels import PlatformResponse, Webhook


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledUpdates:
    """The updates in a response to `updates`."""

    webhooks: Sequence[Webhook]
    """Each update as if Telegram had posted it, in order. For `parse`, not for `verify`: only Telegram could have answered."""
    offset: int | None
    """The next offset; None asks for all updates. After an empty response it is None: Telegram has already forgotten the older updates, and
    after a quiet week it continues with any number, also a smaller one, which an old offset would skip."""


def updates_in(reply: PlatformResponse) -> PolledUpdates | None:
    """The updates in a response; None for a failed request: `classify` says why, and the poller asks for the same offset again."""
    body = parse_object(reply.body)
    if reply.status != 200 or body is None or body.get("ok") is not True or not isinstance(body.get("result"), list):
        return None
    updates = objects_in(body["result"])
    numbers = [number for update in updates if (number := as_int(update.get("update_id"))) is not None]
    return PolledUpdates(
        webhooks=[Webhook(headers={}, body=json.dumps(update).encode()) for update in updates],
        offset=numbers[-1] + 1 if numbers else None,
    )
