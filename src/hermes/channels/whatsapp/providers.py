"""The two providers of WhatsApp: 360dialog, or Meta itself. They differ in how a webhook is verified, and in URL and key of the requests.

Keys travel in headers only. The provider names the URL of a file's bytes; Hermes requests it only from hosts that may see the key:

    360dialog    the URL is at Meta (lookaside.fbsbx.com), but the key is not for Meta: Hermes replaces the host, path and query stay
    Meta itself  the token goes to the hosts in `media_urls`, and nowhere else

The client follows no redirect: it would send the key along. A file takes two requests, because its URL lives for five minutes and its id
for a month:

    look_up(provider, "whatsapp:MEDIA_ID")  →  send it  →  file_in(provider, reply)  →  send its `call`: the bytes

20 failures in an hour block all files of the number for half an hour, so the caller does not retry a failed request at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

from hermes.channels import meta
from hermes.channels.webhook_values import as_int, as_text, check_secret, parse_object
from hermes.ports.channels import PlatformRequest, PlatformResponse, Webhook, WebhookNotAuthentic

META_MEDIA_HOST = "lookaside.fbsbx.com"
"""The host of Meta's files."""


class Provider(Protocol):
    """A provider of WhatsApp for one number."""

    @property
    def phone_number_id(self) -> str | None:
        """The number whose webhooks the channel reads; None: those of every number that come to its URL."""
        ...

    @property
    def is_signed(self) -> bool:
        """Whether a Meta app signs the webhooks, the same for all of its numbers."""
        ...

    @property
    def secrets(self) -> Sequence[str]:
        """What must not be quoted from a response."""
        ...

    def verify(self, webhook: Webhook) -> None: ...

    def challenge(self, query: Mapping[str, str]) -> str: ...

    def post(self, message: Mapping[str, Any]) -> PlatformRequest:
        """The request that sends a message, or marks one as read."""
        ...

    def look_up(self, media_id: str) -> PlatformRequest:
        """The request that asks where a file is."""
        ...

    def download(self, url: str) -> PlatformRequest | None:
        """The request for the bytes at a URL; None if its host must not see the key."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialog360:
    """A number at 360dialog. 360dialog signs nothing: it sends a secret in a header that the operator set there, or in the URL's path."""

    api_key: str = field(repr=False)
    webhook_secrets: Sequence[str] = field(repr=False)
    """Each of them is valid, so that the operator can replace one by another."""
    secret_header: str | None = None
    """The header that holds the secret; None: the path holds it."""
    phone_number_id: str | None = None
    base_url: str = "https://waba-v2.360dialog.io"

    @property
    def is_signed(self) -> bool:
        return False

    @property
    def secrets(self) -> Sequence[str]:
        return (self.api_key, *self.webhook_secrets)

    def verify(self, webhook: Webhook) -> None:
        given = webhook.path_secret if self.secret_header is None else webhook.headers.get(self.secret_header.lower())
        check_secret(given, self.webhook_secrets)

    def challenge(self, query: Mapping[str, str]) -> str:  # noqa: ARG002  # the port's signature
        raise WebhookNotAuthentic  # 360dialog never asks

    def post(self, message: Mapping[str, Any]) -> PlatformRequest:
        # No id of the number in the path: the key names the number, and 360dialog refuses a path with the id.
        return PlatformRequest(method="POST", url=f"{self.base_url}/messages", headers=self._headers(), json=message)

    def look_up(self, media_id: str) -> PlatformRequest:
        return PlatformRequest(method="GET", url=f"{self.base_url}/{quote(media_id, safe='')}", headers=self._headers())

    def download(self, url: str) -> PlatformRequest | None:
        rest = allowed_path(url, {f"https://{META_MEDIA_HOST}", self.base_url})
        return None if rest is None else PlatformRequest(method="GET", url=f"{self.base_url}{rest}", headers=self._headers())

    def _headers(self) -> Mapping[str, str]:
        return {"D360-API-KEY": self.api_key}


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudApi:
    """A number at Meta's own Cloud API."""

    access_token: str = field(repr=False)
    phone_number_id: str
    app_secrets: Sequence[str] = field(repr=False)
    verify_tokens: Sequence[str] = field(default=(), repr=False)
    """For the challenge by which Meta checks that Hermes owns the webhook's URL."""
    version: str = meta.GRAPH_API_VERSION
    base_url: str = "https://graph.facebook.com"
    media_urls: Collection[str] = (f"https://{META_MEDIA_HOST}",)
    """The servers that may see the token when a file is fetched: scheme and host."""

    @property
    def is_signed(self) -> bool:
        return True

    @property
    def secrets(self) -> Sequence[str]:
        return (self.access_token, *self.app_secrets, *self.verify_tokens)

    def verify(self, webhook: Webhook) -> None:
        meta.check_signature(webhook, self.app_secrets)

    def challenge(self, query: Mapping[str, str]) -> str:
        return meta.answer_challenge(query, self.verify_tokens)

    def post(self, message: Mapping[str, Any]) -> PlatformRequest:
        url = f"{self.base_url}/{self.version}/{quote(self.phone_number_id, safe='')}/messages"
        return PlatformRequest(method="POST", url=url, headers=self._headers(), json=message)

    def look_up(self, media_id: str) -> PlatformRequest:
        # With the number: Meta then does not find a file of another number, instead of returning it.
        number = quote(self.phone_number_id, safe="")
        url = f"{self.base_url}/{self.version}/{quote(media_id, safe='')}?phone_number_id={number}"
        return PlatformRequest(method="GET", url=url, headers=self._headers())

    def download(self, url: str) -> PlatformRequest | None:
        return None if allowed_path(url, self.media_urls) is None else PlatformRequest(method="GET", url=url, headers=self._headers())

    def _headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.access_token}"}


def allowed_path(url: str, servers: Collection[str]) -> str | None:
    """What follows scheme and host, unchanged; None unless the URL is at one of these servers and has no suspicious character.

    Some URL parsers read a backslash, a space or a character outside ASCII as part of the host, others as its end."""
    if not url.isascii() or not url.isprintable() or any(sign in url for sign in ' \\"<>^`{|}#'):
        return None
    scheme, _, behind = url.partition("://")
    host, slash, rest = behind.partition("/")
    return f"/{rest}" if slash and f"{scheme}://{host}".lower() in servers else None


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
