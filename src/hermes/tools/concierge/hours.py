"""Opening hours in the notation of OpenStreetMap, as much of it as places write: `Mo-Fr 11:00-23:00; Sa,Su 09:00-01:00; Tu off`, `24/7`.

A span that ends at or before its beginning ends on the next day. Months, holidays and sunrise are not understood: nothing is claimed."""

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
    """When a place is open, by day of the week: spans in minutes after that day's midnight, which may go beyond it."""

    days: tuple[tuple[tuple[int, int], ...], ...]

    def is_open(self, at: datetime) -> bool:
        """Whether it is open at a time in its own zone."""
        return self.open_until(at) is not None

    def open_until(self, at: datetime) -> str | None:
        """When it closes, as `23:00`, if it is open now; None if it is closed."""
        minute = at.hour * 60 + at.minute
        today, yesterday = self.days[at.weekday()], self.days[at.weekday() - 1]
        for start, end in (*today, *((start - DAY_MINUTES, end - DAY_MINUTES) for start, end in yesterday)):
            if start <= minute < end:
                return f"{end // 60 % 24:02d}:{end % 60:02d}"
        return None


def parse_hours(text: str) -> Hours | None:
    """Read opening hours; None where they are unknown or say more than is understood here."""
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
    """The days that a rule is for; all without a word, None for a word that is no day."""
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
