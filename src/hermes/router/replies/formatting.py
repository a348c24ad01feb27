"""Format the values inside a sentence: how many, how long, when, how large. All rules are CLDR's; this file only chooses among them.

Digits are 0 to 9 in every language, also in Arabic and Hindi, as in the codes and links beside them, and as users type them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from math import ceil

from babel import Locale
from babel.dates import format_skeleton, format_time, format_timedelta, get_datetime_format, get_time_format
from babel.numbers import format_currency, format_decimal
from babel.units import format_unit

FIRST_STRONG_ISOLATE, POP_ISOLATE = "\u2068", "\u2069"
UNITS_S = (86_400, 3_600, 60, 1)
MEGABYTE, KILOBYTE = 1024 * 1024, 1024
BETWEEN_LETTER_AND_DIGIT = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")


def format_credits(count: int, forms: Mapping[str, str], locale: Locale) -> str:
    """`3 credits`, in the plural form of the number: Russian has four forms, Arabic six."""
    return forms[locale.plural_form(count)].format(count=format_decimal(count, locale=locale))


def format_wait(wait: timedelta, locale: Locale) -> str:
    """`in 8 hours`: one unit, rounded up, so that the user does not come back too early. A time in the past gives `in 1 second`.

    A unit is used from one and a half of it on: 80 minutes and not 2 hours, but 2 days and not 40 hours."""
    seconds = max(wait.total_seconds(), 1)
    unit_s = next((unit_s for unit_s in UNITS_S if seconds >= 1.5 * unit_s), 1)
    count = ceil(seconds / unit_s)
    # With the count itself as threshold Babel uses no larger unit, and it never tries a smaller one: 16 days stay days, not 2 weeks.
    return format_timedelta(timedelta(seconds=count * unit_s), threshold=count, add_direction=True, locale=locale)


def format_moment(at: datetime, zone: tzinfo | None, locale: Locale) -> str:
    """`Mon, Nov 16, 8:00 AM`: weekday, day and time in the user's zone; without a zone in UTC, with `UTC` after it."""
    local = at.astimezone(zone or UTC)
    day = format_skeleton("MMMEd", local, locale=locale)
    # The long form of AM and PM: the short one is English in Korean.
    clock = format_time(local, get_time_format("short", locale).pattern.replace("a", "aaaa"), locale=locale)
    text = str(get_datetime_format("medium", locale)).format(clock, day)  # a text like "{1}, {0}", which Babel's types call a format
    return text if zone else f"{text} UTC"


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in a currency, by its ISO code."""

    amount: float
    currency: str


def format_money(price: Money, locale: Locale) -> str:
    """`$39`, `39,50 $`, `Rp 150.000`: currency sign and place as the language has them, no decimals for a whole amount."""
    amount = Decimal(str(price.amount))
    pattern, has_decimals = locale.currency_formats["standard"].pattern, amount != amount.to_integral_value()
    shown = pattern if has_decimals else pattern.replace("0.00", "0")
    text = format_currency(amount, price.currency, shown, locale=locale, currency_digits=has_decimals)
    # CLDR's rule for currency signs that are letters, which Babel leaves out: a space between sign and number.
    return BETWEEN_LETTER_AND_DIGIT.sub("\u00a0", text)


def format_size(limit_bytes: int, locale: Locale) -> str:
    """`5 MB`, in units of 1,024 as users know them from image files; rounded down, so that Hermes accepts every file of that size."""
    if limit_bytes >= MEGABYTE:
        return format_unit(limit_bytes * 10 // MEGABYTE / 10, "digital-megabyte", "short", locale=locale)
    return format_unit(limit_bytes // KILOBYTE, "digital-kilobyte", "short", locale=locale)


def isolate_text(text: str, *, is_right_to_left: bool) -> str:
    """Isolate a value, so that it keeps its own direction and does not reorder the words around it.

    In a right-to-left sentence every value is isolated, because a code or a number would reorder its neighbours; in other sentences only a
    value with right-to-left letters."""
    if is_right_to_left or any(unicodedata.bidirectional(character) in {"R", "AL"} for character in text):
        return f"{FIRST_STRONG_ISOLATE}{text}{POP_ISOLATE}"
    return text


def isolate_link(link: str, *, is_right_to_left: bool) -> str:
    """Isolate a link, so that it keeps its direction and still works.

    The space ends the link: without it some apps take the isolate's end mark as part of the address."""
    return isolate_text(link, is_right_to_left=is_right_to_left).replace(POP_ISOLATE, f" {POP_ISOLATE}")
