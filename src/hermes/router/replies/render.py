"""Say it: the right sentence, in the user's language, with its values in place. Never raises: without a value a reply is shorter."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta, tzinfo
from string import Formatter

from hermes.router.replies.catalogue import ReplyCatalogue, load_catalogue, nearest_language
from hermes.router.replies.formatting import (
    Money,
    format_credits,
    format_moment,
    format_money,
    format_size,
    format_wait,
    isolate_link,
    isolate_text,
)
from hermes.router.replies.kinds import REPLY_VALUES, ReplyKind

ReplyValue = str | int | datetime | timedelta | Money | None


class MissingValue(UserWarning):
    """A reply was not given what it needs. A warning and not an error: in our tests it fails, in production the rest is still said."""


def reply(
    kind: ReplyKind,
    language: str | None,
    *,
    zone: tzinfo | None = None,
    now: datetime | None = None,
    **values: ReplyValue,
) -> str:
    """Return what Hermes says for itself, in the language nearest to the tag `language`.

    NEEDS says which values go with which kind; others are ignored, so that one caller may give the same ones to all. A value of None
    leaves out the part about it. A value that is not given, or of the wrong type, does the same and warns: MissingValue.
    Without a `zone` times are in UTC and say so. Every reply is below 1,000 bytes of UTF-8 with a link of up to 200, and other words of up
    to 600."""
    return render_reply(load_catalogue(nearest_language(language)), kind, values, zone=zone, now=now)


def render_reply(
    catalogue: ReplyCatalogue, kind: ReplyKind, values: Mapping[str, ReplyValue], *, zone: tzinfo | None, now: datetime | None
) -> str:
    """The reply out of this catalogue: every part whose values are all there, one below the other."""
    words: dict[str, str] = {}
    for name in REPLY_VALUES[kind]:
        found: dict[str, str] = {}
        with suppress(ArithmeticError):  # a date beyond the calendar, a number that is none
            found = format_value(name, values.get(name), catalogue, zone=zone, now=now)
        words |= found
        if not found and values.get(name, ...) is not None:
            warnings.warn(f"the reply {kind} was given no {name} that it can use; NEEDS says what it takes", MissingValue, stacklevel=3)
    return "\n".join(part.format_map(words) for part in catalogue.parts[kind] if words.keys() >= placeholders(part))


def format_value(name: str, value: ReplyValue, catalogue: ReplyCatalogue, *, zone: tzinfo | None, now: datetime | None) -> dict[str, str]:
    """One value as a reader sees it, by placeholder; nothing for what does not fit. A time is two: when it is, and how long until then."""
    is_right_to_left, locale = catalogue.is_right_to_left, catalogue.locale
    words: dict[str, str] = {}
    match name, value:
        case "link", str(link):
            return {name: isolate_link(link, is_right_to_left=is_right_to_left)}
        case "referral_code", str(code):
            words = {name: code}
        case "reward", int(count):
            words = {name: format_credits(count, catalogue.credits, locale)}
        case "max_bytes", int(limit_bytes):
            words = {name: format_size(limit_bytes, locale)}
        case "text" | "product" | "shop", str(words_of_others):
            words = {name: " ".join(words_of_others.split())}
        case "price", Money() as price:
            words = {name: format_money(price, locale)}
        case "retry_in", timedelta() as wait:
            words = {name: format_wait(wait, locale)}
        case "resets_at", datetime(tzinfo=tzinfo()) as at if now is not None and now.tzinfo is not None:
            words = {name: format_moment(at, zone, locale), "resets_in": format_wait(at - now, locale)}
    return {placeholder: isolate_text(word, is_right_to_left=is_right_to_left) for placeholder, word in words.items()}


def placeholders(part: str) -> set[str]:
    """The names that a part has a place for."""
    return {name for _, name, _, _ in Formatter().parse(part) if name is not None}
