"""Who stands between us and WhatsApp: 360dialog, or nobody. What differs is how a webhook proves itself, and where calls go with which key.

Keys travel in headers only. The bytes of a file lie at an address that the provider names; it is asked for only where the key may go:

    360dialog    the address is at Meta (lookaside.fbsbx.com), the key is not for Meta: its host is replaced, path and query stay
    Meta itself  the token goes to the places in `media_urls`, and nowhere else

Who sends such a call follows no redirect: the key would go along."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

from hermes.channels import meta
from hermes.ports.channels import PlatformRequest, Webhook, WebhookNotAuthentic

META_MEDIA_HOST = "lookaside.fbsbx.com"
"""Where Meta keeps the files."""


class Provider(Protocol):
    """A way to WhatsApp."""

    @property
    def phone_number_id(self) -> str | None:
        """The number whose webhooks are ours; None takes those of every number that comes in here."""
        ...

    @property
    def is_signed(self) -> bool:
        """Whether an app signs its webhooks, those of all of its numbers alike."""
        ...

    @property
    def secrets(self) -> Sequence[str]:
        """What must not be quoted from an answer."""
        ...

    def verify(self, webhook: Webhook) -> None: ...

    def challenge(self, query: Mapping[str, str]) -> str: ...

    def post(self, message: Mapping[str, Any]) -> PlatformRequest:
        """The call that sends a message, or marks one as read."""
        ...

    def look_up(self, media_id: str) -> PlatformRequest:
        """The call that asks where a file is."""
        ...

    def download(self, url: str) -> PlatformRequest | None:
        """The call for the bytes at an address; None where the key may not go."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialog360:
    """A number at 360dialog, which signs nothing: it sends a header that we set there, or knows an address that nobody else does."""

    api_key: str = field(repr=False)
    webhook_secrets: Sequence[str] = field(repr=False)
    """Any of them is right, so that one can be exchanged for another."""
    secret_header: str | None = None
    """The header that holds the secret; None: it stands in the path."""
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
        meta.check_secret(given, self.webhook_secrets)

    def challenge(self, query: Mapping[str, str]) -> str:  # noqa: ARG002  # the port's signature
        raise WebhookNotAuthentic  # 360dialog never asks

    def post(self, message: Mapping[str, Any]) -> PlatformRequest:
        # No id of the number in the path: the key says whose it is, and with the id it is an error.
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
    """For the challenge with which Meta finds out whether the webhook's address is ours."""
    version: str = meta.GRAPH_API_VERSION
    base_url: str = "https://graph.facebook.com"
    media_urls: Collection[str] = (f"https://{META_MEDIA_HOST}",)
    """Where the token may go for a file: scheme and host."""

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
        # With the number: a file of another one is then not found, instead of fetched.
        number = quote(self.phone_number_id, safe="")
        url = f"{self.base_url}/{self.version}/{quote(media_id, safe='')}?phone_number_id={number}"
        return PlatformRequest(method="GET", url=url, headers=self._headers())

    def download(self, url: str) -> PlatformRequest | None:
        return None if allowed_path(url, self.media_urls) is None else PlatformRequest(method="GET", url=url, headers=self._headers())

    def _headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.access_token}"}


def allowed_path(url: str, places: Collection[str]) -> str | None:
    """What follows scheme and host, word for word; None unless the address is at one of these places, and without any trick.

    A backslash, a space or a sign outside ASCII is read by some as part of the host and by others as its end."""
    if not url.isascii() or not url.isprintable() or any(sign in url for sign in ' \\"<>^`{|}#'):
        return None
    scheme, _, behind = url.partition("://")
    host, slash, rest = behind.partition("/")
    return f"/{rest}" if slash and f"{scheme}://{host}".lower() in places else None
