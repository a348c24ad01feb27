"""Read the days and hours in a user's words, in the form that tools take: `tomorrow at 7pm` is `2026-01-31` and `19:00`.

Reads English, and dates and times in international form. If a text names two days, the last one counts. Reads no clock: the caller passes
the current time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

NUMBER_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
UNITS = {"mi": "minutes", "ho": "hours", "hr": "hours", "da": "days", "we": "weeks"}
DAY_PARTS = {"morning": time(9), "noon": time(12), "midday": time(12), "lunch": time(12, 30), "afternoon": time(15)}
DAY_PARTS |= {"evening": time(19), "dinner": time(19), "tonight": time(20), "midnight": time(0)}


@dataclass(frozen=True, slots=True)
class Moment:
    """A day and a time of day; each is empty where the text does not tell."""

    day: str = ""
    """2026-01-31"""
    time: str = ""
    """19:30"""


def read_moment(text: str, now: datetime | None) -> Moment:
    """The day and the time that a text names. A time without a day is the next such time; a day without a time leaves the time empty."""
    if now is not None and (later := relative_moment(text, now)) is not None:
        return later
    at, day = time_in(text), day_in(text, now)
    if day is None and at is not None and now is not None:
        day = now.date() + timedelta(days=at <= now.time())
    return Moment(day.isoformat() if day else "", f"{at:%H:%M}" if at else "")


# --- relative to now


_COUNT = rf"(?P<count>\d{{1,3}}|an?|half an|{'|'.join(NUMBER_WORDS)})"
_SOON = re.compile(rf"\bin {_COUNT} (?P<unit>minute|min|hour|hr|day|week)s?\b", re.IGNORECASE)


def relative_moment(text: str, now: datetime) -> Moment | None:
    """`in 20 minutes`, `in two hours`; also `in 3 days`, with a time of day if the text names one."""
    found = last_match(_SOON, text)
    if found is None:
        return None
    count = found["count"].lower()
    number = 0.5 if count == "half an" else 1 if count in ("a", "an") else int(count) if count.isdigit() else NUMBER_WORDS.index(count) + 1
    unit = UNITS[found["unit"][:2].lower()]
    then = now + timedelta(**{unit: number})
    if unit in ("minutes", "hours"):
        return Moment(f"{then:%Y-%m-%d}", f"{then:%H:%M}")
    at = time_in(text)
    return Moment(f"{then:%Y-%m-%d}", f"{at:%H:%M}" if at else "")


# --- times of day


_CLOCK = re.compile(
    r"\b(?P<hour>\d{1,2})(?:[:.](?P<minute>[0-5]\d))? ?(?P<half>[ap])\.?m\b"
    r"|\b(?P<hour24>[01]?\d|2[0-3])[:h](?P<minute24>[0-5]\d)\b"
    r"|\b(?:at|around|by) (?P<bare>\d{1,2})\b(?![:.]\d| ?(?:[ap]\.?m\b|people|persons|guests|of us|km|%))|\b(?P<oclock>\d{1,2}) o'clock\b",
    re.IGNORECASE,
)
_PART = re.compile(rf"\b(?:{'|'.join(DAY_PARTS)})\b", re.IGNORECASE)
_EARLY = re.compile(r"\b(?:morning|breakfast|brunch)\b", re.IGNORECASE)
_LATE = re.compile(r"\b(?:evening|tonight|night|dinner|supper|drinks|sunset|table)\b", re.IGNORECASE)


def time_in(text: str) -> time | None:
    """The time that a text names, by the clock or as a part of the day."""
    found = last_match(_CLOCK, text)
    if found is not None and (at := clock_time(found, text)) is not None:
        return at
    part = last_match(_PART, text)
    return DAY_PARTS[part[0].lower()] if part else None


def clock_time(found: re.Match[str], text: str) -> time | None:
    """A time by the clock. An hour without am or pm is read as people mean it: a table at 8 is at 20:00, a call at 9 is at 9:00."""
    if found["half"]:
        hour, minute = int(found["hour"]), int(found["minute"] or 0)
        return time(hour % 12 + (12 if found["half"].lower() == "p" else 0), minute) if 1 <= hour <= 12 else None
    if found["hour24"]:
        return time(int(found["hour24"]), int(found["minute24"]))
    hour = int(found["bare"] or found["oclock"])
    if hour > 23:
        return None
    is_late = not _EARLY.search(text) and (hour <= 6 or _LATE.search(text) is not None)
    return time(hour + 12 if 1 <= hour <= 11 and is_late else hour)


# --- days


_MONTH = rf"(?P<month>{'|'.join(MONTHS)})[a-z]{{0,6}}"
_DAYS = re.compile(
    r"\b(?P<iso>\d{4}-\d\d-\d\d)\b"
    r"|\b(?P<word>day after tomorrow|tomorrow|today|tonight|this (?:morning|afternoon|evening)|next week)\b"
    rf"|\b(?P<weekday>{'|'.join(WEEKDAYS)})\b",
    re.IGNORECASE,
)
_DATES = (
    re.compile(rf"\b(?P<number>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? (?P<year>\d{{4}}))?\b", re.IGNORECASE),
    re.compile(rf"\b{_MONTH} (?P<number>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<year>\d{{4}}))?\b", re.IGNORECASE),
)
_AHEAD = {"day after tomorrow": 2, "tomorrow": 1, "next week": 7}


def day_in(text: str, now: datetime | None) -> date | None:
    """The day that a text names. Without the current time, only a whole date is enough."""
    for pattern in _DATES:
        found = last_match(pattern, text)
        if found is not None and (day := calendar_day(found, now)) is not None:
            return day
    found = last_match(_DAYS, text)
    if found is None:
        return None
    if found["iso"]:
        return valid_date(*map(int, found["iso"].split("-")))
    if now is None:
        return None
    if found["word"]:
        return now.date() + timedelta(days=_AHEAD.get(found["word"].lower(), 0))
    ahead = (WEEKDAYS.index(found["weekday"].lower()) - now.weekday()) % 7
    return now.date() + timedelta(days=ahead or 7)


def calendar_day(found: re.Match[str], now: datetime | None) -> date | None:
    """`31 January`: this year's, or next year's if it has passed."""
    month, number = MONTHS.index(found["month"].lower()) + 1, int(found["number"])
    if found["year"]:
        return valid_date(int(found["year"]), month, number)
    if now is None:
        return None
    day = valid_date(now.year, month, number)
    return valid_date(now.year + 1, month, number) if day is None or day < now.date() else day


def valid_date(year: int, month: int, day: int) -> date | None:
    """The date, if the calendar has it."""
    try:
        return date(year, month, day)
    except ValueError:
        return None


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last place where a pattern is found."""
    found = None
    for found in pattern.finditer(text):  # noqa: B007  # keeps the last match
        pass
    return found
