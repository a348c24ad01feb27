"""Render a reply: the sentences of its kind, in the user's language, with their values. Never raises: a missing value makes it shorter."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from functools import cached_property
from importlib.resources.abc import Traversable
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
    """The caller did not give a value that the reply needs. A warning, not an error: our tests fail, but users still get the rest of it."""


def reply(
    kind: ReplyKind,
    language: str | None,
    *,
    zone: tzinfo | None = None,
    now: datetime | None = None,
    **values: ReplyValue,
) -> str:
    """Return a reply of Hermes itself, in the language nearest to the tag `language`.

    REPLY_VALUES lists the values of each kind; others are ignored, so that a caller may give the same ones to all kinds. A value of None
    leaves out the part about it. A value that is missing, or of the wrong type, does the same and warns: MissingValue.
    Without a `zone` times are in UTC and say so. Every reply is below 1,000 bytes of UTF-8, with a link of up to 200 and other text of up
    to 600."""
    return render_reply(load_catalogue(nearest_language(language)), kind, REPLY_VALUES[kind], values, zone=zone, now=now)


@dataclass(frozen=True)
class PackReplies:
    """What a pack says by itself, without a model: a TOML file with a table for each language, and the values of each kind.

    A language that the file lacks gets the English text."""

    file: Traversable
    values: Mapping[str, Sequence[str]]

    def reply(self, kind: str, language: str | None, **values: ReplyValue) -> str:
        """Return a reply, as `reply` does. A text stands for itself, `Money` is written as the language does, `link` is a link."""
        nearest = nearest_language(language)
        name = nearest if nearest in self._tables else "en"
        parts = {each: tuple(texts) for each, texts in self._tables[name].items()}
        return render_reply(replace(load_catalogue(name), parts=parts), kind, self.values[kind], values, zone=None, now=None)

    @cached_property
    def _tables(self) -> Mapping[str, Mapping[str, Sequence[str]]]:
        return tomllib.loads(self.file.read_text(encoding="utf-8"))


def render_reply(
    catalogue: ReplyCatalogue,
    kind: str,
    names: Sequence[str],
    values: Mapping[str, ReplyValue],
    *,
    zone: tzinfo | None,
    now: datetime | None,
) -> str:
    """The reply from this catalogue: every part whose values are all there, one line each."""
    words: dict[str, str] = {}
    for name in names:
        found: dict[str, str] = {}
        with suppress(ArithmeticError):  # a date beyond the calendar, a price that is not a number
            found = format_value(name, values.get(name), catalogue, zone=zone, now=now)
        words |= found
        if not found and values.get(name, ...) is not None:
            warnings.warn(
                f"the reply {kind} was given no {name} that it can use; REPLY_VALUES says what it takes", MissingValue, stacklevel=3
            )
    return "\n".join(part.format_map(words) for part in catalogue.parts[kind] if words.keys() >= placeholders(part))


def format_value(name: str, value: ReplyValue, catalogue: ReplyCatalogue, *, zone: tzinfo | None, now: datetime | None) -> dict[str, str]:
    """A value as text, by placeholder; empty for a value of the wrong type. A time gives two texts: when it is, and how long until then."""
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
        case "retry_in", timedelta() as wait:
            words = {name: format_wait(wait, locale)}
        case "resets_at", datetime(tzinfo=tzinfo()) as at if now is not None and now.tzinfo is not None:
            words = {name: format_moment(at, zone, locale), "resets_in": format_wait(at - now, locale)}
        case "link" | "referral_code" | "reward" | "max_bytes" | "retry_in" | "resets_at", _:
            pass  # a value of the wrong type
        case _, str(free_text):
            words = {name: " ".join(free_text.split())}
        case _, Money() as price:
            words = {name: format_money(price, locale)}
    return {placeholder: isolate_text(word, is_right_to_left=is_right_to_left) for placeholder, word in words.items()}


def placeholders(part: str) -> set[str]:
    """The names of the placeholders in a part."""
    return {name for _, name, _, _ in Formatter().parse(part) if name is not None}
