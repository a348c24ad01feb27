"""Channel ids at WhatsApp. The form of an id says what it is, so that the answer goes to the right field of a request:

    16505551234           a user's number: only digits
    CO.1047385771169864   the user id of a user who hides the number: a country, a dot, letters or digits
    group:Y2FwaV9ncm91c…  a group

Hermes replies to a number exactly as WhatsApp sent it: in some countries it differs from the number that people dial."""

from __future__ import annotations

from collections.abc import Mapping

GROUP_PREFIX = "group:"


def group_channel_id(group_id: str) -> str:
    """The channel id of a group."""
    return f"{GROUP_PREFIX}{group_id}"


def is_group(channel_id: str) -> bool:
    return channel_id.startswith(GROUP_PREFIX)


def recipient_fields(channel_id: str) -> Mapping[str, str]:
    """The fields of a request that say where the message goes."""
    if is_group(channel_id):
        return {"recipient_type": "group", "to": channel_id.removeprefix(GROUP_PREFIX)}
    key = "to" if channel_id.isascii() and channel_id.isdigit() else "recipient"
    return {"recipient_type": "individual", key: channel_id}
