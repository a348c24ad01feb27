"""Who and where, at WhatsApp. An id says by itself what it is, so that an answer finds its way back:

    16505551234           a number: only digits
    CO.1047385771169864   somebody who shows a user name instead of a number: a country, a dot, signs
    group:Y2FwaV9ncm91c…  a group

A number is replied to as it came: in some countries it differs from the one that is dialled."""

from __future__ import annotations

from collections.abc import Mapping

GROUP_PREFIX = "group:"


def group_channel_id(group_id: str) -> str:
    """A group as a channel id."""
    return f"{GROUP_PREFIX}{group_id}"


def is_group(channel_id: str) -> bool:
    return channel_id.startswith(GROUP_PREFIX)


def recipient_fields(channel_id: str) -> Mapping[str, str]:
    """The fields of a message that say where it goes."""
    if is_group(channel_id):
        return {"recipient_type": "group", "to": channel_id.removeprefix(GROUP_PREFIX)}
    key = "to" if channel_id.isascii() and channel_id.isdigit() else "recipient"
    return {"recipient_type": "individual", key: channel_id}
