"""Files that people sent, fetched when they are looked at: by reference with the account's own key, or from the public web.

    telegram:bali/FILE_ID     where is it (getFile)       →  its bytes, at an address that holds the token
    whatsapp:shop/MEDIA_ID    where is it (GET /MEDIA_ID)  →  its bytes, with the key in a header
    https://…                 the given fetcher, which asks nothing that is not public

Late, because such addresses live for minutes and hold tokens, and references do neither. Each is asked for once: who is refused 20 files
within an hour gets none for the next half. Nothing that it raises holds an address, a header or a token."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hermes.channels import telegram, whatsapp
from hermes.channels.file_references import FileReference
from hermes.channels.telegram import TelegramChannel
from hermes.channels.whatsapp import WhatsAppChannel
from hermes.ports.channels import Channel, Channels, MaybeSent, NotSent, PlatformRequest, PlatformResponse
from hermes.ports.images import FetchedMedia, ImageTooLarge, ImageUnreadable, MediaFetcher, PlatformFiles

UNKNOWN_MEDIA_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream"})
"""What platforms say of files that they know nothing about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountFiles:
    """The port Fetch, also for what only an account of ours can fetch."""

    channels: Channels
    files: PlatformFiles
    web: MediaFetcher
    max_bytes: int
    timeout_s: float = 8.0
    """For both calls together; a step of the router has 10 seconds."""

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
            raise ImageUnreadable("no account that is set up here can fetch it")
        response = await self.files.send(request, timeout_s=self.timeout_s)
        file = file_in_response(channel, response)
        if file is None:
            raise ImageTooLarge(self.max_bytes) if is_too_big(response) else ImageUnreadable(f"the platform answered {response.status}")
        if (file.bytes or 0) > self.max_bytes:
            raise ImageTooLarge(self.max_bytes)
        return image_in_response(await self.files.fetch(file.call, timeout_s=self.timeout_s, max_bytes=self.max_bytes))


def lookup_request(channel: Channel | None, reference: FileReference) -> PlatformRequest | None:
    """The call that asks where a file is; None where nobody can be asked."""
    match channel:
        case TelegramChannel():
            return telegram.look_up(channel.api, reference.bare)
        case WhatsAppChannel():
            return whatsapp.look_up(channel.provider, reference.bare)
    return None


def file_in_response(channel: Channel, reply: PlatformResponse) -> telegram.TelegramFile | whatsapp.WhatsAppFile | None:
    """The file that an answer names; None where it names none, or one where the account's key may not go."""
    match channel:
        case TelegramChannel():
            return telegram.file_in(channel.api, reply)
        case WhatsAppChannel():
            return whatsapp.file_in(channel.provider, reply)
    return None


def is_too_big(reply: PlatformResponse) -> bool:
    """Whether Telegram says that a bot cannot have a file because of its size. Only its words tell."""
    return reply.status == 400 and b"file is too big" in reply.body


def image_in_response(reply: PlatformResponse) -> FetchedMedia:
    """The bytes of an answer. A page, a complaint or a redirect is no file."""
    media_type = reply.headers.get("content-type", "").partition(";")[0].strip().casefold()
    if reply.status != 200:
        raise ImageUnreadable(f"the platform answered {reply.status}")
    if media_type not in UNKNOWN_MEDIA_TYPES and not media_type.startswith("image/"):
        raise ImageUnreadable("it is said to be no picture")
    return FetchedMedia(reply.body, media_type or "application/octet-stream")
