"""What the concierge says by itself: complete in sixteen languages, and short enough for every channel."""

import re
import tomllib
import warnings
from typing import Any

import pytest

from hermes.packs.concierge.reminders import REPLIES
from hermes.router.replies import LANGUAGES, MissingValue, Money
from hermes.router.replies.render import placeholders

INSTAGRAM_BYTES = 1_000
TABLES: dict[str, dict[str, list[str]]] = tomllib.loads(REPLIES.file.read_text(encoding="utf-8"))
VALUES: dict[str, Any] = {
    "text": "3 * 7",
    "product": "911",
    "price": Money(12.5, "USD"),
    "shop": "24/7",
    "link": "https://hermes.example/join",
}
LONGEST: dict[str, Any] = {
    "text": "あ" * 200,
    "product": "あ" * 80,
    "price": Money(1_234_567_890.5, "IDR"),
    "shop": "あ" * 30,
    "link": "https://hermes.example/" + "a" * 177,
}


def test_each_language_has_the_same_parts_as_english() -> None:
    assert list(TABLES) == list(LANGUAGES)
    english = {kind: [placeholders(part) for part in parts] for kind, parts in TABLES["en"].items()}
    assert {kind: set().union(*found) for kind, found in english.items()} == {kind: set(names) for kind, names in REPLIES.values.items()}
    for language, table in TABLES.items():
        assert {kind: [placeholders(part) for part in parts] for kind, parts in table.items()} == english, language


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_reply_fits_the_shortest_channel_and_nothing_latin_stands_free_in_arabic(language: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", MissingValue)
        for kind, names in REPLIES.values.items():
            said = REPLIES.reply(kind, language, **{name: LONGEST[name] for name in names})
            assert len(said.encode()) < INSTAGRAM_BYTES
            plain = REPLIES.reply(kind, language, **{name: VALUES[name] for name in names})
            if language == "ar":
                assert not re.search("[A-Za-z0-9]", re.sub("\u2068[^\u2069]*\u2069|\u2066[^\u2069]*\u2069|https?://\\S+", "", plain))


def test_a_language_that_the_file_lacks_gets_english() -> None:
    assert REPLIES.reply("reminder", "xx", text="a") == REPLIES.reply("reminder", "en", text="a")


def test_a_reminder_says_what_it_is_of_on_one_line() -> None:
    assert REPLIES.reply("reminder", "en", text="call mum\nand {dad}") == (
        "⏰ It's time for your reminder.\nYou asked me to remind you of this: call mum and {dad}"
    )


def test_a_price_is_told_as_the_language_writes_money() -> None:
    dryer: dict[str, Any] = {"product": "Torrent Cyclone", "price": Money(299.5, "USD"), "shop": "Hush", "link": None}
    assert REPLIES.reply("price_drop", "de", **dryer) == (
        "🎉 Gute Nachricht: Ein Preis, auf den du gewartet hast, ist gefallen.\nTorrent Cyclone kostet jetzt 299,50\xa0$ bei Hush."
    )
