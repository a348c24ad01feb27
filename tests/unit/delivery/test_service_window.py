"""When a platform takes free text."""

from datetime import UTC, datetime, timedelta

import pytest

from hermes.delivery.service_window import is_window_open
from hermes.turn import Platform

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
DAY = timedelta(hours=24)


@pytest.mark.parametrize("platform", [Platform.WHATSAPP, Platform.INSTAGRAM])
def test_free_text_goes_for_a_day_after_the_last_message(platform: Platform) -> None:
    assert is_window_open(platform, NOON, NOON + DAY - timedelta(seconds=1))
    assert not is_window_open(platform, NOON, NOON + DAY)
    assert not is_window_open(platform, None, NOON)


def test_telegram_has_no_window() -> None:
    assert is_window_open(Platform.TELEGRAM, NOON, NOON + 100 * DAY)
    assert is_window_open(Platform.TELEGRAM, None, NOON)
