"""How often one source may come."""

import pytest

from hermes.web import limits
from hermes.web.limits import RateLimit


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_minutes_worth_comes_at_once_and_then_one_by_one() -> None:
    time = Time()
    limit = RateLimit(3, time)
    assert [limit.wait_s("a") for _ in range(4)] == [0.0, 0.0, 0.0, 20.0]
    time.now = 19.0
    assert limit.wait_s("a") == pytest.approx(1.0)
    time.now = 20.0
    assert [limit.wait_s("a"), limit.wait_s("a")] == [0.0, pytest.approx(20.0)]


def test_one_source_takes_nothing_from_another() -> None:
    limit = RateLimit(1, Time())
    assert [limit.wait_s(source) for source in "aabb"] == [0.0, 60.0, 0.0, 60.0]


def test_only_so_many_sources_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SOURCES", 2)
    time = Time()
    limit = RateLimit(60, time)
    for time.now, source in ((0.0, "a"), (0.0, "b"), (5.0, "c")):
        limit.wait_s(source)
    assert list(limit._rested_at) == ["c"]


def test_many_sources_at_once_are_not_gone_through_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SOURCES", 2)
    time = Time()
    limit = RateLimit(60, time)
    for time.now, source in ((0.0, "a"), (0.0, "b"), (5.0, "c"), (5.1, "d"), (5.2, "e"), (6.9, "f"), (6.95, "g")):
        limit.wait_s(source)
    assert list(limit._rested_at) == ["f", "g"]


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::2", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_a_network_of_ipv6_is_one_source(address: str, source: str) -> None:
    assert limits.source_of(address) == source
