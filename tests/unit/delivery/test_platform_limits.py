"""How fast one chat, and one account, is written to, and when a platform takes free text."""

from datetime import UTC, datetime, timedelta

import pytest

from hermes.delivery import platform_limits
from hermes.delivery.platform_limits import Pacer, is_window_open
from hermes.ports.outbox import ChannelName
from hermes.turn import Platform

BOT = ChannelName(Platform.TELEGRAM, "bali")
NUMBER = ChannelName(Platform.WHATSAPP, "bali")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
DAY = timedelta(hours=24)


def waits(pacer: Pacer, line: ChannelName, channel: str, count: int, now: float = 0.0) -> list[float]:
    return [round(pacer.turn(line, channel, now, max_s=1_000), 3) for _ in range(count)]


def test_a_telegram_chat_gets_one_message_a_second_and_a_group_twenty_a_minute() -> None:
    assert waits(Pacer(), BOT, "42", 4) == [0.0, 1.0, 2.0, 3.0]
    assert waits(Pacer(), BOT, "-10042", 4) == [0.0, 3.0, 6.0, 9.0]


def test_somebody_on_whatsapp_gets_45_at_once_and_then_one_every_six_seconds() -> None:
    assert waits(Pacer(), NUMBER, "62812", 47) == [0.0] * 45 + [6.0, 12.0]


def test_a_rest_gives_the_burst_back() -> None:
    pacer = Pacer()
    waits(pacer, NUMBER, "62812", 45)
    assert waits(pacer, NUMBER, "62812", 2, now=6.0) == [0.0, 6.0]
    assert waits(pacer, NUMBER, "62812", 46, now=1_000.0) == [0.0] * 45 + [6.0]


def test_chats_and_accounts_do_not_wait_for_each_other() -> None:
    pacer = Pacer()
    assert waits(pacer, BOT, "42", 3)[-1] == 2.0
    assert waits(pacer, BOT, "43", 1) == [0.0]
    assert waits(pacer, ChannelName(Platform.TELEGRAM, "lombok"), "42", 1) == [0.0]


def test_a_bot_sends_thirty_a_second_over_all_its_chats() -> None:
    pacer = Pacer()
    assert [round(pacer.turn(BOT, str(chat), 0.0, max_s=1), 3) for chat in range(32)] == [0.0] * 30 + [0.033, 0.067]


def test_who_does_not_want_to_wait_takes_no_turn() -> None:
    pacer = Pacer()
    waits(pacer, BOT, "42", 12)
    assert pacer.turn(BOT, "42", 0.0, max_s=10.0) == 12.0
    assert pacer.turn(BOT, "42", 0.0, max_s=10.0) == 12.0


def test_instagram_has_no_pace_per_chat() -> None:
    assert waits(Pacer(), ChannelName(Platform.INSTAGRAM, "bali"), "17841", 50) == [0.0] * 50


def test_chats_that_have_rested_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform_limits, "MAX_KNOWN_CHATS", 10)
    pacer = Pacer()
    for chat in range(50):
        pacer.turn(BOT, str(chat), chat * 10.0, max_s=1)
    assert len(pacer.known) <= 12


# --- the window


@pytest.mark.parametrize("platform", [Platform.WHATSAPP, Platform.INSTAGRAM])
def test_free_text_goes_for_a_day_after_the_last_message(platform: Platform) -> None:
    assert is_window_open(platform, NOON, NOON + DAY - timedelta(seconds=1))
    assert not is_window_open(platform, NOON, NOON + DAY)
    assert not is_window_open(platform, None, NOON)


def test_telegram_has_no_window() -> None:
    assert is_window_open(Platform.TELEGRAM, NOON, NOON + 100 * DAY)
    assert is_window_open(Platform.TELEGRAM, None, NOON)
