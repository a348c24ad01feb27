"""One Instagram account as the port Channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from hermes.channels import meta
from hermes.channels.buttons import BUTTONS, buttons_on_last
from hermes.channels.instagram.parse import parse_events
from hermes.channels.text import RichText, Style, count_utf8_bytes, read_markdown, split
from hermes.channels.webhook_values import as_text
from hermes.ports.channels import Button, Destination, InboundEvent, PlatformRequest, PlatformResponse, SendOutcome, SendResult, Webhook
from hermes.turn import Platform

MAX_TEXT_BYTES = 1000
"""The longest text of one message, in bytes of UTF-8."""
STYLE = Style(quote="> ", spell_links=True, table_width=0)
"""Instagram has no markup at all, and no monospaced font."""

OUTCOME_BY_SUBCODE: Mapping[int, SendOutcome] = {
    2534022: SendOutcome.WINDOW_CLOSED,
    2018278: SendOutcome.WINDOW_CLOSED,
    2534014: SendOutcome.INVALID_RECIPIENT,  # the user cannot be found
    2018001: SendOutcome.INVALID_RECIPIENT,  # no such user
    2018108: SendOutcome.INVALID_RECIPIENT,  # the user accepts no messages from the account
    1545041: SendOutcome.INVALID_RECIPIENT,  # the user is not available
    # These concern one conversation; their codes alone would concern the whole account.
    2018300: SendOutcome.REJECTED,  # another app has this thread
    2018321: SendOutcome.REJECTED,  # another app has this thread
    2018028: SendOutcome.REJECTED,  # the app is not published, and the user is not one of its testers
}


class InstagramLogin(StrEnum):
    """Which of Meta's two products issued the token."""

    PAGE = "page"
    """The token of a Facebook page, which does not expire."""
    INSTAGRAM = "instagram"
    """The token of an Instagram user, which expires after 60 days unless it is refreshed."""


BASE_URLS = {InstagramLogin.PAGE: "https://graph.facebook.com", InstagramLogin.INSTAGRAM: "https://graph.instagram.com"}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstagramChannel:
    """The ports Channel and SharesWebhook."""

    account: str
    instagram_id: str
    """The id of the professional account, as its webhooks name it."""
    login: InstagramLogin
    access_token: str = field(repr=False)
    app_secrets: Sequence[str] = field(repr=False)
    """Each of them is valid: the Instagram app and the Facebook app have one each."""
    verify_tokens: Sequence[str] = field(default=(), repr=False)
    """For the challenge by which Meta checks that Hermes owns the webhook's URL."""
    version: str = meta.GRAPH_API_VERSION
    base_url: str | None = None
    """None: Meta's own URL for the login."""

    @property
    def platform(self) -> Platform:
        return Platform.INSTAGRAM

    @property
    def has_receipts(self) -> bool:
        return True

    def verify(self, webhook: Webhook) -> None:
        meta.check_signature(webhook, self.app_secrets)

    def challenge(self, query: Mapping[str, str]) -> str:
        """The plain text with which to answer Meta's GET. Raises WebhookNotAuthentic."""
        return meta.answer_challenge(query, self.verify_tokens)

    def parse(self, webhook: Webhook, *, now: datetime) -> Sequence[InboundEvent]:
        return parse_events(webhook.body, account=self.account, instagram_id=self.instagram_id, now=now)

    @property
    def webhook_id(self) -> str:
        """The port SharesWebhook."""
        return self.instagram_id

    def parse_shared(self, webhook: Webhook, *, now: datetime) -> Sequence[InboundEvent]:
        """The port SharesWebhook."""
        return parse_events(webhook.body, account=self.account, instagram_id=self.instagram_id, now=now, is_shared=True)

    def render(self, markdown: str) -> Sequence[Mapping[str, Any]]:
        """Bodies with nothing but `text`; each URL is written after its link's text."""
        return [{"text": part.plain} for part in split(read_markdown(markdown, STYLE), MAX_TEXT_BYTES, count_utf8_bytes)]

    def with_buttons(self, text: str, buttons: Sequence[Button]) -> Sequence[Mapping[str, Any]]:
        """The port SupportsButtons: quick replies."""
        return buttons_on_last([{"text": part.text} for part in split(RichText(text), MAX_TEXT_BYTES, count_utf8_bytes)], buttons)

    def plain(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: value for name, value in body.items() if name in ("text", BUTTONS)}

    def encode(self, body: Mapping[str, Any], to: Destination) -> PlatformRequest:
        message: dict[str, Any] = {"text": body["text"]}
        if BUTTONS in body:
            message["quick_replies"] = [{"content_type": "text", "title": each["label"], "payload": each["id"]} for each in body[BUTTONS]]
        return self._post({"recipient": {"id": to.channel_id}, "message": message})

    def typing(self, to: Destination, *, message_id: str | None) -> PlatformRequest | None:  # noqa: ARG002  # the port's signature
        return self._post({"recipient": {"id": to.channel_id}, "sender_action": "typing_on"})

    def classify(self, reply: PlatformResponse) -> SendResult:
        return meta.classify(reply, accepted_message_id, OUTCOME_BY_SUBCODE, (self.access_token, *self.app_secrets, *self.verify_tokens))

    def _post(self, message: Mapping[str, Any]) -> PlatformRequest:
        # `me` is the owner of the token. The token is not a URL parameter, because proxies write URLs to their logs.
        url = f"{self.base_url or BASE_URLS[self.login]}/{self.version}/me/messages"
        return PlatformRequest(method="POST", url=url, headers={"Authorization": f"Bearer {self.access_token}"}, json=message)


def accepted_message_id(body: Mapping[str, Any]) -> str | None:
    """The id of the message that Instagram accepted; empty for a typing indicator, whose response only names the recipient."""
    return as_text(body.get("message_id")) or ("" if as_text(body.get("recipient_id")) else None)
