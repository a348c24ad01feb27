"""One bot at Telegram as the port Channel."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hermes.channels.buttons import BUTTONS, buttons_on_last
from hermes.channels.telegram.api import BotApi, secrets_of
from hermes.channels.telegram.parse import CALLBACK_PREFIX, parse_events, recipient_fields
from hermes.channels.text import RichText, Span, SpanKind, read_markdown, split, utf16_length
from hermes.channels.webhook_values import as_int, as_object, as_text, check_secret, parse_object
from hermes.ports.channels import Button, Destination, InboundEvent, PlatformRequest, PlatformResponse, SendOutcome, SendResult, Webhook
from hermes.turn import Platform

MAX_TEXT_UTF16 = 4096
"""The longest text of one message, in UTF-16 code units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramChannel:
    """The port Channel."""

    account: str
    api: BotApi
    secret: str = field(default="", repr=False)
    """The secret that the webhook was set with. Empty: the bot has no webhook, and `verify` refuses every request."""
    username: str | None = None
    """The bot's user name without the @. In groups, users mention the bot by it."""

    @property
    def platform(self) -> Platform:
        return Platform.TELEGRAM

    @property
    def has_receipts(self) -> bool:
        return False

    def verify(self, webhook: Webhook) -> None:
        check_secret(webhook.headers.get("x-telegram-bot-api-secret-token"), [self.secret])

    def parse(self, webhook: Webhook, *, now: datetime) -> Sequence[InboundEvent]:
        return parse_events(webhook.body, account=self.account, bot_id=self.api.bot_id, username=self.username, now=now)

    def render(self, markdown: str) -> Sequence[Mapping[str, Any]]:
        """Bodies with `text`, and with `entities` if something in it is marked. Telegram has nothing to parse."""
        return [message_body(part) for part in split(read_markdown(markdown), MAX_TEXT_UTF16, message_size)]

    def with_buttons(self, text: str, buttons: Sequence[Button]) -> Sequence[Mapping[str, Any]]:
        """The port SupportsButtons: an inline keyboard, whose presses come back as callback queries."""
        return buttons_on_last([{"text": part.text} for part in split(RichText(text), MAX_TEXT_UTF16, message_size)], buttons)

    def plain(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: value for name, value in body.items() if name in ("text", BUTTONS)}

    def encode(self, body: Mapping[str, Any], to: Destination) -> PlatformRequest:
        # Without a preview: the linked page writes it, not Hermes, and it takes up the screen.
        content = {name: value for name, value in body.items() if name != BUTTONS}
        message = {**recipient_fields(to), **content, "link_preview_options": {"is_disabled": True}}
        if BUTTONS in body:
            row = [{"text": each["label"], "callback_data": each["id"]} for each in body[BUTTONS]]
            message["reply_markup"] = {"inline_keyboard": [row]}
        reply_to = as_int(to.reply_to)
        if reply_to is not None:
            # The user may have deleted the message; the answer is still worth sending.
            message["reply_parameters"] = {"message_id": reply_to, "allow_sending_without_reply": True}
        return self.api.call("sendMessage", message)

    def typing(self, to: Destination, *, message_id: str | None) -> PlatformRequest | None:
        """Shows for 5 seconds that the bot is typing; for a pressed button, confirms the press instead."""
        if message_id is not None and message_id.startswith(CALLBACK_PREFIX):
            return self.api.answer_callback(message_id.removeprefix(CALLBACK_PREFIX))
        return self.api.call("sendChatAction", {**recipient_fields(to), "action": "typing"})

    def classify(self, reply: PlatformResponse) -> SendResult:
        return classify(reply, secrets_of(self.api, self.secret))


MAX_ENTITIES = 100
"""In one message. Telegram silently drops the others."""


OVER_LIMIT_SIZE = 1 << 20


_TYPES = {
    SpanKind.HEADING: "bold",
    SpanKind.BOLD: "bold",
    SpanKind.ITALIC: "italic",
    SpanKind.STRIKE: "strikethrough",
    SpanKind.LINK: "text_link",
    SpanKind.CODE: "code",
    SpanKind.BLOCK: "pre",
    SpanKind.TABLE: "pre",
    SpanKind.QUOTE: "blockquote",
}


_MONOSPACED = frozenset({SpanKind.CODE, SpanKind.BLOCK, SpanKind.TABLE})


_INTERRUPTED = frozenset({SpanKind.HEADING, SpanKind.BOLD, SpanKind.ITALIC, SpanKind.STRIKE})


_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


def message_body(rich_text: RichText) -> Mapping[str, Any]:
    """The body of a message: `text`, and `entities` if there are any."""
    found = entities_of(rich_text)
    return {"text": rich_text.text, "entities": found} if found else {"text": rich_text.text}


def message_size(rich_text: RichText) -> int:
    """The length in UTF-16 code units, or more than any limit if there are too many entities."""
    length, code = utf16_length(rich_text.text), sum(1 for span in rich_text.spans if span.kind is SpanKind.CODE)
    # A span of code interrupts at most one span of each of the four kinds. So few spans are few entities, and need no exact count.
    if len(rich_text.spans) + len(_INTERRUPTED) * code <= MAX_ENTITIES or sum(1 for _ in _allowed_spans(rich_text)) <= MAX_ENTITIES:
        return length
    return length + OVER_LIMIT_SIZE


def entities_of(rich_text: RichText) -> Sequence[Mapping[str, Any]]:
    """The entities of a text, in order: an outer one before those in it. Their offsets count UTF-16 code units.

    What Telegram demands of entities, and how they come to meet it:

    - Of two that overlap, one contains the other: spans already do.
    - `pre` and `code` contain nothing, and bold, italic or struck text contains neither of them: it is interrupted around them.
    - A link, code and a block of code do not contain each other: a link stays a link, and the code in it becomes text.
    - No quote in a quote, and no entity in one of its own kind: spans have neither; a heading and the bold text in it become one entity."""
    # Telegram counts each of these characters as two, Python as one. So an offset grows by the number of them before it.
    wide = [found.start() for found in _ASTRAL.finditer(rich_text.text)]

    def offset(index: int) -> int:
        return index + bisect_left(wide, index)

    return [
        {
            "type": _TYPES[span.kind],
            "offset": offset(span.start),
            "length": offset(span.end) - offset(span.start),
            **({"url": span.info} if span.kind is SpanKind.LINK else {}),
            **({"language": span.info} if span.kind is SpanKind.BLOCK and span.info else {}),
        }
        for span in sorted(_allowed_spans(rich_text), key=lambda span: (span.start, -span.end))
    ]


def _allowed_spans(rich_text: RichText) -> Iterator[Span]:
    spans = rich_text.spans
    links = [span for span in spans if span.kind is SpanKind.LINK]
    headings = [span for span in spans if span.kind is SpanKind.HEADING]
    code = [span for span in spans if span.kind in _MONOSPACED and not _is_in_any(span, links)]
    for span in spans:
        if span.kind in _INTERRUPTED:
            if span.kind is not SpanKind.BOLD or not _is_in_any(span, headings):
                yield from _cut_out_code(span, code, rich_text.text)
        elif span.kind is SpanKind.LINK:
            if rich_text.text[span.start : span.end] != span.info:  # Telegram makes a link of a URL in the text by itself
                yield span
        elif span.kind not in _MONOSPACED or not _is_in_any(span, links):
            yield span


def _is_in_any(span: Span, others: Sequence[Span]) -> bool:
    """Whether one of the other spans, which do not overlap, contains this one."""
    last = bisect_left(others, span.start + 1, key=lambda other: other.start) - 1
    return last >= 0 and span.end <= others[last].end


def _cut_out_code(span: Span, code: Sequence[Span], text: str) -> Iterator[Span]:
    """The pieces of a span between the code in it, without white space at their ends."""
    start = span.start
    first = bisect_left(code, start, key=lambda other: other.start)
    for hole in (*code[first : bisect_left(code, span.end, key=lambda other: other.start)], Span(span.kind, span.end, span.end)):
        piece = text[start : hole.start]
        if piece.strip():
            begin = start + len(piece) - len(piece.lstrip())
            yield Span(span.kind, begin, begin + len(piece.strip()), span.info)
        start = hole.end


MAX_QUOTE_CHARS = 200


_UNREACHABLE = re.compile(
    r"chat not found|user not found|peer_id_invalid|chat_write_forbidden|chat_restricted|user_deactivated|user_is_blocked|is deactivated"
    r"|was deactivated|was blocked|was kicked|no rights to send|not enough rights|need administrator rights|chat_admin_required",
    re.IGNORECASE,
)


_UNREADABLE_MARKUP = re.compile(r"entit(y|ies)|wrong http url", re.IGNORECASE)


_ANY_TOKEN = re.compile(r"\d{5,20}(?::|%3A)[A-Za-z0-9_-]{20,}", re.ASCII | re.IGNORECASE)


_WAIT_OUTCOMES = frozenset({SendOutcome.RATE_LIMITED, SendOutcome.SERVICE_UNAVAILABLE})


def classify(reply: PlatformResponse, secrets: Sequence[str]) -> SendResult:
    """What a response means: by `error_code`, then by its description, which alone tells its 400s apart.

    Never raises, whatever the body is. An HTML page comes from a proxy in between, not from Telegram."""
    body = parse_object(reply.body)
    if body is None or not isinstance(body.get("ok"), bool):
        return _classify_foreign(reply)
    if body["ok"]:
        return SendResult(outcome=SendOutcome.SENT, message_id=as_text(as_object(body.get("result")).get("message_id")) or None)
    code, words, parameters = (
        as_int(body.get("error_code")) or reply.status,
        as_text(body.get("description")),
        as_object(body.get("parameters")),
    )
    outcome = _outcome_of(code, words)
    moved_to = as_text(parameters.get("migrate_to_chat_id")) or None
    if moved_to is not None:
        outcome = SendOutcome.REJECTED  # under the old id only: the chat is reachable under the new one
    return SendResult(
        outcome=outcome,
        retry_after_s=_wait_s(parameters, reply.headers) if outcome in _WAIT_OUTCOMES else None,
        detail=_describe_error(code, words, secrets),
        moved_to=moved_to,
        plain_might_help=outcome is SendOutcome.REJECTED and _UNREADABLE_MARKUP.search(words) is not None,
    )


def _classify_foreign(reply: PlatformResponse) -> SendResult:
    """A response that is not Telegram's. With a 2xx the message may have arrived."""
    if 200 <= reply.status < 300:
        return SendResult(outcome=SendOutcome.AMBIGUOUS, detail=f"HTTP {reply.status}: an answer that does not say whether it was sent")
    outcome = {401: SendOutcome.UNAUTHORIZED, 413: SendOutcome.REJECTED, 429: SendOutcome.RATE_LIMITED}.get(
        reply.status, SendOutcome.SERVICE_UNAVAILABLE
    )
    wait_s = _wait_s({}, reply.headers) if outcome in _WAIT_OUTCOMES else None
    return SendResult(outcome=outcome, retry_after_s=wait_s, detail=f"HTTP {reply.status}: not an answer of the Bot API")


def _outcome_of(code: int, words: str) -> SendOutcome:
    if code in (401, 404):
        return SendOutcome.UNAUTHORIZED  # Telegram answers 404 to a malformed token; an unknown method would be a 404 too
    if code in (420, 429):
        return SendOutcome.RATE_LIMITED
    if code >= 500 or code in (408, 409):
        return SendOutcome.SERVICE_UNAVAILABLE  # 409: another process polls the updates, or a webhook is set; both may pass
    if code == 403 or _UNREACHABLE.search(words):
        return SendOutcome.INVALID_RECIPIENT
    return SendOutcome.REJECTED


def _wait_s(parameters: Mapping[str, Any], headers: Mapping[str, str]) -> float | None:
    """How long Telegram asks to wait; it says so in the body and in a header."""
    stated = as_int(parameters.get("retry_after"))
    seconds = as_int(headers.get("retry-after", "").strip()) if stated is None else stated
    return float(seconds) if seconds is not None and seconds >= 0 else None


def _describe_error(code: int, words: str, secrets: Sequence[str]) -> str:
    """Code and description of an error in one short line, without any token."""
    text = " ".join(words.split())
    for secret in secrets:
        text = text.replace(secret, "***")
    text = _ANY_TOKEN.sub("***", text)
    short = text if len(text) <= MAX_QUOTE_CHARS else f"{text[:MAX_QUOTE_CHARS]}…"
    return f"{code}: {short}" if short else str(code)
