"""Look up a file and download it. Two requests, because the file's URL lives for five minutes and its id for a month.

    look_up(provider, "whatsapp:MEDIA_ID")  →  send it  →  file_in(provider, reply)  →  send its `call`: the bytes

20 failures in an hour block all files of the number for half an hour, so the caller does not retry a failed request at once."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.channels.meta import as_int, as_text, parse_object
from hermes.channels.whatsapp.providers import Provider
from hermes.ports.channels import PlatformRequest, PlatformResponse

SCHEME = "whatsapp:"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatsAppFile:
    """A file that can be fetched."""

    call: PlatformRequest
    """The request for the bytes. The client follows no redirect: it would send the key along."""
    mime_type: str | None = None
    bytes: int | None = None
    """The size as WhatsApp states it; the client counts the bytes itself."""


def look_up(provider: Provider, reference: str) -> PlatformRequest | None:
    """The request that asks where a file is; None for a reference that is not WhatsApp's."""
    media_id = reference.removeprefix(SCHEME)
    return provider.look_up(media_id) if reference.startswith(SCHEME) and media_id.strip("./") else None


def file_in(provider: Provider, reply: PlatformResponse) -> WhatsAppFile | None:
    """The file that a response names; None if it names none, or names a host that must not see the key."""
    body = parse_object(reply.body) if 200 <= reply.status < 300 else None
    call = provider.download(as_text(body.get("url"))) if body is not None else None
    if body is None or call is None:
        return None
    return WhatsAppFile(call=call, mime_type=as_text(body.get("mime_type")) or None, bytes=as_int(body.get("file_size")))
