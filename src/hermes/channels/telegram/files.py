"""Look up a file and download it. Two requests, because the file's URL lives for an hour and holds the token; its id does neither.

    look_up(api, "telegram:FILE_ID")  →  send it  →  file_in(api, reply)  →  send its `call`: the bytes

A bot gets files of up to 20 MB; for a larger one Telegram answers 400."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.channels.meta import as_int, as_object, as_text, parse_object
from hermes.channels.telegram.api import BotApi
from hermes.channels.telegram.content import SCHEME
from hermes.ports.channels import PlatformRequest, PlatformResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramFile:
    """A file that can be fetched."""

    call: PlatformRequest
    """The request for the bytes. The client follows no redirect."""
    bytes: int | None = None
    """The size as Telegram states it; the client counts the bytes itself."""


def look_up(api: BotApi, reference: str) -> PlatformRequest | None:
    """The request that asks where a file is; None for a reference that is not Telegram's."""
    file_id = reference.removeprefix(SCHEME)
    return api.file(file_id) if reference.startswith(SCHEME) and file_id else None


def file_in(api: BotApi, reply: PlatformResponse) -> TelegramFile | None:
    """The file that a response names; None if it names none."""
    body = parse_object(reply.body) if 200 <= reply.status < 300 else None
    found = as_object(body.get("result")) if body is not None and body.get("ok") is True else {}
    call = api.download(as_text(found.get("file_path")))
    return None if call is None else TelegramFile(call=call, bytes=as_int(found.get("file_size")))
