"""The weather is drawn from its number alone, and every kind of it comes within a minute."""

from tests.storm.weather import LINES, PLACES, Crash, forecast

EVERY_KIND = {
    *("Block", "ByHand", "Crash", "CutConnections", "EmptyRedis", "Freeze", "Kill", "Outage", "RestartPostgres", "StopRedis", "Strike"),
}


def test_one_number_gives_one_weather() -> None:
    assert forecast(7, seconds=60, users=16) == forecast(7, seconds=60, users=16)
    assert forecast(7, seconds=60, users=16) != forecast(8, seconds=60, users=16)


def test_every_kind_of_blow_falls_within_a_minute_whatever_the_number() -> None:
    for seed in range(50):
        assert forecast(seed, seconds=60, users=16).counts().keys() == EVERY_KIND


def test_everybody_is_at_a_line_and_every_message_has_a_mark_of_its_own() -> None:
    weather = forecast(3, seconds=60, users=16)
    assert {talker.line for talker in weather.talkers} == set(LINES)
    marks = [message.mark for talker in weather.talkers for message in talker.messages]
    assert len(marks) == len(set(marks)) == weather.messages
    assert all(message.at_s < 62 for talker in weather.talkers for message in talker.messages)


def test_ten_minutes_kill_at_every_named_place() -> None:
    weather = forecast(1, seconds=600, users=24, every_s=6.0)
    crashes = [event.blow for event in weather.events if isinstance(event.blow, Crash)]
    assert {(crash.role, crash.place, crash.is_after) for crash in crashes} == set(PLACES)
