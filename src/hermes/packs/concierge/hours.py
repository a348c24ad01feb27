"""Opening hours in the notation of OpenStreetMap, as far as places use it: `Mo-Fr 11:00-23:00; Sa,Su 09:00-01:00; Tu off`, `24/7`.

A span that ends at or before its beginning ends on the next day. Hours with months, holidays or sunrise count as unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

DAYS = ("mo", "tu", "we", "th", "fr", "sa", "su")
RULE = re.compile(r"^(?P<days>[a-z ,-]*?)\s*(?P<times>off|closed|(?:\d{1,2}:\d{2}\s*-\s*\d{1,2}:\d{2}\s*,?\s*)+)$")
SPAN = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
DAY_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True)
class Hours:
    """When a place is open, by day of the week: spans in minutes after that day's midnight. A span may end on the next day."""

    days: tuple[tuple[tuple[int, int], ...], ...]

    def is_open(self, at: datetime) -> bool:
        """Whether the place is open at a time in its own zone."""
        return self.open_until(at) is not None

    def open_until(self, at: datetime) -> str | None:
        """Return when the place closes, as `23:00`; None if it is closed at that time."""
        minute = at.hour * 60 + at.minute
        today, yesterday = self.days[at.weekday()], self.days[at.weekday() - 1]
        for start, end in (*today, *((start - DAY_MINUTES, end - DAY_MINUTES) for start, end in yesterday)):
            if start <= minute < end:
                return f"{end // 60 % 24:02d}:{end % 60:02d}"
        return None


def parse_hours(text: str) -> Hours | None:
    """Read opening hours; None if they are unknown or not understood."""
    plain = " ".join(text.casefold().replace("\u2013", "-").split())
    if plain == "24/7":
        return Hours((((0, DAY_MINUTES),),) * 7)
    days: list[tuple[tuple[int, int], ...]] = [()] * 7
    rules = [rule.strip() for rule in plain.split(";") if rule.strip()]
    for rule in rules:
        match = RULE.match(rule)
        chosen = days_of(match["days"]) if match else None
        if match is None or chosen is None:
            return None
        for day in chosen:
            days[day] = spans_of(match["times"])
    return Hours(tuple(days)) if rules else None


def spans_of(times: str) -> tuple[tuple[int, int], ...]:
    spans = [(int(h) * 60 + int(m), int(to_h) * 60 + int(to_m)) for h, m, to_h, to_m in SPAN.findall(times)]
    return tuple((start, end if end > start else end + DAY_MINUTES) for start, end in spans)


def days_of(text: str) -> list[int] | None:
    """Return the days of a rule: all days if it names none; None if a word is not a day."""
    if not text.strip():
        return list(range(7))
    chosen: list[int] = []
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if first not in DAYS or (last and last not in DAYS):
            return None
        start, end = DAYS.index(first), DAYS.index(last or first)
        chosen += [day % 7 for day in range(start, end + 1 if end >= start else end + 8)]
    return chosen
