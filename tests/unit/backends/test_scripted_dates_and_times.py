"""What people say about days and hours is read as they mean it."""

from datetime import datetime

import pytest

from hermes.backends.scripted.dates_and_times import Moment, read_moment

NOW = datetime(2026, 3, 6, 12, 0)  # noqa: DTZ001  # a Friday at noon, where the user is


@pytest.mark.parametrize(
    ("text", "day", "time"),
    [
        ("remind me tomorrow at 9 to call mum", "2026-03-07", "09:00"),
        ("tomorrow at 7pm", "2026-03-07", "19:00"),
        ("tomorrow 7:30 PM", "2026-03-07", "19:30"),
        ("the day after tomorrow at noon", "2026-03-08", "12:00"),
        ("today at 18:45", "2026-03-06", "18:45"),
        ("tonight", "2026-03-06", "20:00"),
        ("tomorrow morning", "2026-03-07", "09:00"),
        ("at 12am", "2026-03-07", "00:00"),
        ("at 12pm tomorrow", "2026-03-07", "12:00"),
        ("a table at 8", "2026-03-06", "20:00"),
        ("a table for breakfast at 8", "2026-03-07", "08:00"),
        ("call at 9", "2026-03-07", "09:00"),
        ("call at 5", "2026-03-06", "17:00"),
        ("6 o'clock", "2026-03-06", "18:00"),
        ("on Friday at 17:30", "2026-03-13", "17:30"),
        ("saturday 19h30", "2026-03-07", "19:30"),
        ("next week", "2026-03-13", ""),
        ("in 20 minutes", "2026-03-06", "12:20"),
        ("in half an hour", "2026-03-06", "12:30"),
        ("in two hours", "2026-03-06", "14:00"),
        ("in 13 hours", "2026-03-07", "01:00"),
        ("in 3 days at 9am", "2026-03-09", "09:00"),
        ("in a week", "2026-03-13", ""),
        ("31 March at 8pm", "2026-03-31", "20:00"),
        ("on Jan 2nd", "2027-01-02", ""),
        ("5th of June 2027, 10:15", "2027-06-05", "10:15"),
        ("2026-12-24 at 18:00", "2026-12-24", "18:00"),
        ("tomorrow at 9am\nno, monday at 10am", "2026-03-09", "10:00"),
        ("for 2 people", "", ""),
        ("a table for 4", "", ""),
        ("30 February", "", ""),
        ("2026-02-31", "", ""),
        ("at 99", "", ""),
        ("", "", ""),
    ],
)
def test_a_moment_is_read_as_people_mean_it(text: str, day: str, time: str) -> None:
    assert read_moment(text, NOW) == Moment(day, time)


@pytest.mark.parametrize(
    ("text", "day", "time"),
    [
        ("tomorrow at 9", "", "09:00"),
        ("in 20 minutes", "", ""),
        ("5 June 2027", "2027-06-05", ""),
        ("5 June", "", ""),
        ("8pm", "", "20:00"),
    ],
)
def test_without_a_clock_only_what_needs_none_is_read(text: str, day: str, time: str) -> None:
    assert read_moment(text, None) == Moment(day, time)
