"""Fetch files that users sent: by reference with the account's own key, or from the public web.

    telegram:bali/FILE_ID     look it up (getFile)         →  fetch its bytes from a URL that holds the token
    whatsapp:shop/MEDIA_ID    look it up (GET /MEDIA_ID)   →  fetch its bytes with the key in a header
    https://…                 the given fetcher, which fetches public URLs only

A file is fetched only when a step needs it, because the platform's URL lives for minutes and holds a token; a reference does neither. Each
file is asked for once: after 20 failures within an hour 360dialog blocks a number's files for half an hour. No error holds a URL, a header
or a token."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hermes.channels import telegram, whatsapp
from hermes.channels.telegram import TelegramChannel
from hermes.channels.webhook_values import FileReference
from hermes.channels.whatsapp import WhatsAppChannel
from hermes.ports.channels import Channel, Channels, MaybeSent, NotSent, PlatformRequest, PlatformResponse
from hermes.ports.tools import FetchedMedia, ImageTooLarge, ImageUnreadable, MediaFetcher, PlatformFiles

UNKNOWN_MEDIA_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream"})
"""Media types that platforms send for a file whose type they do not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountFiles:
    """The port MediaFetcher, also for files that only a channel account can fetch."""

    channels: Channels
    files: PlatformFiles
    web: MediaFetcher
    max_bytes: int
    timeout_s: float = 8.0
    """For both requests together; a step of the router has 10 seconds."""

    async def fetch(self, url: str) -> FetchedMedia:
        reference = FileReference.read(url)
        if reference is None:
            return await self.web.fetch(url)
        channel = self.channels.get(reference.platform, reference.account)
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._look_up_and_fetch(channel, reference)
        except TimeoutError:
            raise ImageUnreadable("it did not come in time") from None
        except (NotSent, MaybeSent) as error:
            raise ImageUnreadable(str(error)) from None

    async def _look_up_and_fetch(self, channel: Channel | None, reference: FileReference) -> FetchedMedia:
        request = lookup_request(channel, reference)
        if channel is None or request is None:
            raise ImageUnreadable("no channel account of this Hermes can fetch it")
        response = await self.files.send(request, timeout_s=self.timeout_s)
        file = file_in_response(channel, response)
        if file is None:
            raise ImageTooLarge(self.max_bytes) if is_too_big(response) else ImageUnreadable(f"the platform answered {response.status}")
        if (file.bytes or 0) > self.max_bytes:
            raise ImageTooLarge(self.max_bytes)
        return image_in_response(await self.files.fetch(file.call, timeout_s=self.timeout_s, max_bytes=self.max_bytes))


def lookup_request(channel: Channel | None, reference: FileReference) -> PlatformRequest | None:
    """The request that asks where a file is; None for a channel without file ids."""
    match channel:
        case TelegramChannel():
            return telegram.look_up(channel.api, reference.bare)
        case WhatsAppChannel():
            return whatsapp.look_up(channel.provider, reference.bare)
    return None


def file_in_response(channel: Channel, reply: PlatformResponse) -> telegram.TelegramFile | whatsapp.WhatsAppFile | None:
    """The file that a response names; None if it names none, or names a host that must not see the account's key."""
    match channel:
        case TelegramChannel():
            return telegram.file_in(channel.api, reply)
        case WhatsAppChannel():
            return whatsapp.file_in(channel.provider, reply)
    return None


def is_too_big(reply: PlatformResponse) -> bool:
    """Whether Telegram refuses a file because of its size. Only the text of its error says so."""
    return reply.status == 400 and b"file is too big" in reply.body


def image_in_response(reply: PlatformResponse) -> FetchedMedia:
    """The image in a response. An HTML page, an error or a redirect is not a file."""
    media_type = reply.headers.get("content-type", "").partition(";")[0].strip().casefold()
    if reply.status != 200:
        raise ImageUnreadable(f"the platform answered {reply.status}")
    if media_type not in UNKNOWN_MEDIA_TYPES and not media_type.startswith("image/"):
        raise ImageUnreadable("the platform says it is not an image")
    return FetchedMedia(reply.body, media_type or "application/octet-stream")
