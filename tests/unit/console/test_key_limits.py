"""Limits of API keys as operators write them, and what a key then allows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hermes.console.key_limits import change_limits, limits_as_json, show_limits
from hermes.ports.key_limits import MAX_AMOUNT, NO_LIMITS, InvalidLimit, KeyLimits, matches, parse_network
from hermes.ports.key_use import KeyUsage

NOW = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)


def test_limits_are_read_changed_one_by_one_and_removed() -> None:
    texts: dict[str, Any] = {
        "usd-per-day": "5",
        "usd-per-month": "0.25",
        "tokens-per-day": "1_000_000",
        "rpm": "600",
        "at-once": "8",
        "models": ["a,b", "b"],
        "users": ["acme-*", "Zo\u00eb, \u0434*"],
        "networks": "10.0.0.0/8, ::ffff:192.168.0.0/112",
        "expires": "30d",
    }
    limits = change_limits(NO_LIMITS, texts, NOW)
    assert limits == KeyLimits(
        day_micro_usd=5_000_000,
        month_micro_usd=250_000,
        day_tokens=1_000_000,
        minute_requests=600,
        calls_at_once=8,
        models=["a", "b"],
        users=["acme-*", "Zo\u00eb", "\u0434*"],
        networks=["10.0.0.0/8", "::ffff:192.168.0.0/112"],
        expires_at=NOW + timedelta(days=30),
    )
    changed = change_limits(limits, {"usd-per-day": "0", "rpm": "none", "users": ["none"], "expires": "2026-12-01"}, NOW)
    assert (changed.day_micro_usd, changed.minute_requests, changed.users) == (0, None, None)
    assert (changed.expires_at, changed.calls_at_once) == (datetime(2026, 12, 1, tzinfo=UTC), 8)
    assert change_limits(limits, dict.fromkeys((*texts, "tokens-per-month", "tpm"), "none"), NOW) == NO_LIMITS
    written = limits_as_json(limits)
    assert (written["usd_per_day"], written["usd_per_month"], written["tpm"], written["users"]) == (
        5.0,
        0.25,
        None,
        ["acme-*", "Zo\u00eb", "\u0434*"],
    )
    used = KeyUsage(day_micro_usd=1_250_000, minute_requests=7)
    rows = {(each.label, each.used, each.limit) for each in show_limits(limits, used)}
    assert {
        ("dollars a day", "$1.25", "$5.00"),
        ("requests a minute", "7", "600"),
        ("models", "", "a, b"),
        ("tokens a minute", "0", ""),
    } <= rows


@pytest.mark.parametrize(
    ("option", "text"),
    [
        *(("usd-per-day", text) for text in ("-1", "nan", "inf", "1e9", "0.0000001", "", " ", "five", "9999999999", "\u0665")),
        *(("rpm", text) for text in ("0", "-5", "1.5", "1e3", "99999999999999999", str(MAX_AMOUNT + 1), "\u0661")),
        *(("expires", text) for text in ("0d", "30", "yesterday", "2026-11-30T23:59:59", "2020-01-01", "9999999d")),
        *(("networks", text) for text in ("10.0.0.0/33", "example.com", "10.0.0", "::1/129", "*", ",")),
        ("users", "x" * 300),
        ("users", "a\u0000b"),
        ("models", ","),
    ],
)
def test_what_no_key_can_have_is_refused(option: str, text: str) -> None:
    if not text:
        assert change_limits(NO_LIMITS, {option: text}, NOW) == NO_LIMITS, "a field of a form that is left empty"
        return
    with pytest.raises(InvalidLimit, match=f"^{option}: "):
        change_limits(NO_LIMITS, {option: text}, NOW)


def test_patterns_know_one_sign_and_take_one_pass() -> None:
    fits = [
        ("*", ""),
        ("*", "a"),
        ("acme-*", "acme-"),
        ("acme-*", "acme-ada"),
        ("*-eu", "a-eu"),
        ("a*b*c", "a12b3c"),
        ("a*a", "aa"),
        ("[x]?", "[x]?"),
    ]
    others = [
        ("acme-*", "acme"),
        ("acme-*", "ACME-x"),
        ("a*a", "a"),
        ("ab*ba", "aba"),
        ("a*b*c", "acb"),
        ("[x]?", "x1"),
        ("a.c", "abc"),
        ("", "a"),
    ]
    assert [pair for pair in fits if not matches(*pair)] == []
    assert [pair for pair in others if matches(*pair)] == []
    assert not matches("*a" * 100 + "b", "a" * 128), "not exponential"
    assert not matches("Zo\u00eb", "Zoe\u0308"), "names are compared as clients send them"


def test_a_network_takes_in_mapped_addresses_and_refuses_what_it_cannot_read() -> None:
    limits = KeyLimits(networks=["10.0.0.0/8", "::ffff:192.168.0.0/112", "2001:db8::/32", "203.0.113.7"])
    inside = ("10.255.0.1", "::ffff:10.0.0.1", "192.168.3.4", "::ffff:192.168.3.4", "2001:db8::1", "203.0.113.7")
    outside = (
        "11.0.0.1",
        "192.169.0.1",
        "2001:db9::1",
        "203.0.113.8",
        "::1",
        "",
        "unknown",
        "10.0.0.1, 9.9.9.9",
        "10.0.0.1:80",
        "::10.0.0.1",
    )
    assert [address for address in inside if not limits.allows_address(address)] == []
    assert [address for address in outside if limits.allows_address(address)] == []
    assert str(parse_network("::ffff:0:0/96")) == "0.0.0.0/0"
    assert NO_LIMITS.allows_address("")
