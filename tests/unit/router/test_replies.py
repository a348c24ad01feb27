"""What Hermes says for itself: complete in sixteen languages, short enough for every channel, and never an error."""

import re
import subprocess
import sys
import tomllib
import unicodedata
import warnings
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from string import Formatter
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from babel import Locale
from hypothesis import example, given
from hypothesis import strategies as st

from hermes.router.replies import LANGUAGES, REPLY_VALUES, MissingValue, Money, ReplyKind, nearest_language, replies_page, reply
from hermes.router.replies.catalogue import ReplyCatalogue, load_catalogue, parse_catalogue
from hermes.router.replies.formatting import (
    format_credits,
    format_moment,
    format_money,
    format_size,
    format_wait,
    isolate_link,
    isolate_text,
)
from hermes.router.replies.reference_page import kind_meanings
from hermes.router.replies.render import placeholders, render_reply

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "replies.md"
INSTAGRAM_BYTES = 1_000
FSI, PDI = "\u2068", "\u2069"
NOW = datetime(2026, 9, 30, 11, 5, tzinfo=UTC)
BALI = ZoneInfo("Asia/Makassar")
VALUES: dict[str, Any] = {
    "link": "https://hermes.example/join",
    "referral_code": "7f3a9c01be",
    "reward": 5,
    "resets_at": datetime(2026, 10, 1, tzinfo=UTC),
    "max_bytes": 5 * 1024 * 1024,
    "retry_in": timedelta(seconds=30),
    "code": "7KQ2MP",
}
LONGEST: dict[str, Any] = VALUES | {
    "link": "https://hermes.example/" + "a" * 177,
    "referral_code": "0123456789abcdef0123456789abcdef",
    "reward": 1_234_567,
    "resets_at": NOW + timedelta(days=29, hours=13),
    "max_bytes": 1_023 * 1024 * 1024 + 999_999,
    "retry_in": timedelta(minutes=59),
}
ENDS = "[.!?:\u3002\uff01\uff1f\uff1a\u0964\u061f}]$"
"""Full stops, question marks and colons, those of Chinese, Japanese, Hindi and Arabic too; or a value."""
SCRIPTS = {
    "ru": "CYRILLIC",
    "zh": "CJK",
    "ja": "HIRAGANA|KATAKANA|CJK",
    "ko": "HANGUL",
    "ar": "ARABIC",
    "hi": "DEVANAGARI",
    "th": "THAI",
}

every_language = pytest.mark.parametrize("language", LANGUAGES)
every_kind = pytest.mark.parametrize("kind", ReplyKind)


def table(language: str) -> dict[str, Any]:
    return tomllib.loads((resources.files("hermes.router.replies") / "languages" / f"{language}.toml").read_text(encoding="utf-8"))


def sentences(language: str) -> Iterator[str]:
    """Every part of every reply, with its places cut out."""
    for parts in load_catalogue(language).parts.values():
        yield from (re.sub(r"\{\w+\}", "", part) for part in parts)


def is_latin(character: str) -> bool:
    return character.isalpha() and "LATIN" in unicodedata.name(character, "")


# --- the catalogues


def test_there_is_a_file_for_each_of_the_sixteen_languages_and_no_other() -> None:
    files = [file.name for file in (resources.files("hermes.router.replies") / "languages").iterdir()]
    assert sorted(files) == sorted(f"{language}.toml" for language in LANGUAGES)
    assert len(LANGUAGES) == 16


@every_language
def test_a_catalogue_has_every_kind_of_reply_and_nothing_else(language: str) -> None:
    assert list(table(language)) == [*ReplyKind, "credits"], "in the same order, so that files can be read side by side"


@every_language
def test_a_catalogue_opens_by_saying_how_it_speaks_to_people(language: str) -> None:
    text = (resources.files("hermes.router.replies") / "languages" / f"{language}.toml").read_text(encoding="utf-8")
    name = Locale.parse(language).get_display_name("en")
    assert text.startswith(f"# {name}"), f"the first line is a comment: the language and the register, # {name}. Informal: …"


@every_kind
@every_language
def test_each_part_has_the_same_placeholders_as_in_english(language: str, kind: ReplyKind) -> None:
    english = [placeholders(part) for part in load_catalogue("en").parts[kind]]
    assert [placeholders(part) for part in load_catalogue(language).parts[kind]] == english


@every_kind
def test_english_has_a_place_for_everything_that_a_reply_needs(kind: ReplyKind) -> None:
    parts = load_catalogue("en").parts[kind]
    derived = {"resets_in"} if "resets_at" in REPLY_VALUES[kind] else set()
    assert set().union(*map(placeholders, parts)) == set(REPLY_VALUES[kind]) | derived
    assert placeholders(parts[0]) == set(), "the first part can always be said"


def test_every_kind_says_what_it_needs_and_what_it_is_for() -> None:
    assert set(REPLY_VALUES) == set(kind_meanings()) == set(ReplyKind)
    assert {need for needs in REPLY_VALUES.values() for need in needs} == set(VALUES)


@every_language
def test_placeholders_are_plain_names(language: str) -> None:
    catalogue = load_catalogue(language)
    for text in [part for parts in catalogue.parts.values() for part in parts] + list(catalogue.credits.values()):
        for _, name, specification, conversion in Formatter().parse(text):
            assert name is None or (name.isidentifier() and not specification and conversion is None), text


@every_language
def test_plural_forms_are_exactly_those_of_cldr(language: str) -> None:
    assert load_catalogue(language).credits.keys() == Locale.parse(language).plural_form.tags | {"other"}


@every_language
def test_no_sentence_was_left_in_english(language: str) -> None:
    if language == "en":
        return
    english = set(sentences("en"))
    assert [sentence for sentence in sentences(language) if sentence in english] == []
    if language in SCRIPTS:
        assert [sentence for sentence in sentences(language) if any(map(is_latin, sentence))] == []
        for sentence in sentences(language):
            assert re.search(SCRIPTS[language], " ".join(unicodedata.name(character, "") for character in sentence)), sentence


def test_no_two_languages_share_a_whole_reply() -> None:
    said = [reply(kind, language, now=NOW, zone=BALI, **VALUES) for kind in ReplyKind for language in LANGUAGES]
    assert len(set(said)) == len(said)


@every_language
def test_sentences_are_tidy(language: str) -> None:
    for kind, parts in load_catalogue(language).parts.items():
        for part in parts:
            if kind in (ReplyKind.OFFER_APPROVE_BUTTON, ReplyKind.OFFER_REFUSE_BUTTON):
                assert 0 < len(part) <= 20, "the label of a button is no sentence"
                continue
            assert part == unicodedata.normalize("NFC", part).strip()
            assert "  " not in part
            assert "..." not in part
            assert re.search(ENDS, part) or language == "th", f"ends without a mark: {part}"
            assert part.count("{link}") == part.count("\n{link}"), "a link stands on a line of its own"


def test_a_kind_without_a_sentence_is_noticed_when_a_catalogue_is_read() -> None:
    halved = table("en")
    del halved["busy"]
    with pytest.raises(KeyError, match="busy"):
        parse_catalogue(Locale.parse("en"), halved)


# --- what is said


def test_an_upgrade_names_the_link_the_code_and_the_reward() -> None:
    assert reply(ReplyKind.UPGRADE, "en", **VALUES) == (
        "You've used up your credits.\n"
        "Top up here and we can carry on:\nhttps://hermes.example/join\n"
        "Your code to invite friends: 7f3a9c01be\n"
        "You get 5 credits for every friend who joins."
    )


def test_a_budget_says_when_it_resets_in_the_users_own_time() -> None:
    said = reply(ReplyKind.DAY_BUDGET, "de", zone=BALI, now=NOW, **VALUES)
    assert said == "Für heute hast du dein Limit erreicht.\nWeiter geht's in 13 Stunden (Do., 1. Okt., 08:00)."


def test_without_a_zone_the_time_is_in_utc_and_says_so() -> None:
    said = reply(ReplyKind.MONTH_BUDGET, "fr", now=NOW, **VALUES)
    assert said == "Vous avez atteint votre limite pour ce mois-ci.\nOn pourra reprendre dans 13 heures (jeu. 1 oct., 00:00 UTC)."


def test_a_pause_without_an_end_does_not_name_one() -> None:
    assert reply(ReplyKind.PAUSED, "tr", now=NOW, resets_at=None) == (
        "Şu anda mola veriyorum. Lütfen daha sonra tekrar deneyin; bu mesaj için kredi düşülmedi."
    )


def test_values_that_a_reply_does_not_need_are_ignored() -> None:
    assert reply(ReplyKind.BUSY, "it", now=NOW, **VALUES) == reply(ReplyKind.BUSY, "it")


@pytest.mark.parametrize(
    ("tag", "language"),
    [
        ("pt", "pt"),
        ("pt-BR", "pt"),
        ("PT_br", "pt"),
        ("zh-Hant", "zh"),
        ("zh_Hans_CN", "zh"),
        ("id-ID", "id"),
        ("sv", "en"),
        ("", "en"),
        ("-", "en"),
        (None, "en"),
        ("portuguese", "en"),
    ],
)
def test_a_language_is_found_by_way_of_its_base(tag: str | None, language: str) -> None:
    assert nearest_language(tag) == language
    assert reply(ReplyKind.BUSY, tag) == reply(ReplyKind.BUSY, language)


@every_kind
@every_language
def test_every_reply_fits_the_shortest_channel_with_the_longest_values(language: str, kind: ReplyKind) -> None:
    for zone in (BALI, None):
        assert len(reply(kind, language, zone=zone, now=NOW, **LONGEST).encode()) < INSTAGRAM_BYTES


# --- what is missing


@every_language
@pytest.mark.parametrize("kind", [kind for kind in ReplyKind if REPLY_VALUES[kind]])
def test_a_missing_value_warns_and_the_rest_is_said_in_the_same_language(language: str, kind: ReplyKind) -> None:
    with pytest.warns(MissingValue) as warned:
        said = reply(kind, language)
    assert said == load_catalogue(language).parts[kind][0]
    assert [str(warning.message) for warning in warned] == [
        f"the reply {kind} was given no {need} that it can use; REPLY_VALUES says what it takes" for need in REPLY_VALUES[kind]
    ]
    assert {warning.filename for warning in warned} == {__file__}, "it points at the caller"


@pytest.mark.parametrize("kind", [kind for kind in ReplyKind if REPLY_VALUES[kind]])
def test_a_value_that_is_none_on_purpose_is_no_mistake(kind: ReplyKind) -> None:
    assert reply(kind, "ja", **dict.fromkeys(REPLY_VALUES[kind])) == load_catalogue("ja").parts[kind][0]


def test_only_the_part_about_a_missing_value_is_left_out() -> None:
    assert reply(ReplyKind.UPGRADE, "es", link=None, referral_code="7f3a9c01be", reward=None) == (
        "Te has quedado sin créditos.\nTu código para invitar a más gente: 7f3a9c01be"
    )


@pytest.mark.parametrize(
    "given",
    [
        {"resets_at": "tomorrow", "now": NOW},
        {"resets_at": datetime(2026, 10, 1), "now": NOW},  # noqa: DTZ001 - the mistake that is meant
        {"resets_at": datetime(2026, 10, 1, tzinfo=UTC)},
        {"resets_at": datetime(2026, 10, 1, tzinfo=UTC), "now": datetime(2026, 9, 30)},  # noqa: DTZ001 - the mistake that is meant
    ],
)
def test_a_time_that_cannot_be_told_is_left_out(given: dict[str, Any]) -> None:
    with pytest.warns(MissingValue, match="day_budget was given no resets_at"):
        assert reply(ReplyKind.DAY_BUDGET, "en", **given) == "You've reached your limit for today."


@given(
    kind=st.sampled_from(ReplyKind),
    language=st.none() | st.text(max_size=12) | st.sampled_from(LANGUAGES),
    values=st.dictionaries(
        st.sampled_from(sorted(VALUES)),
        st.none() | st.text() | st.integers() | st.timedeltas() | st.datetimes(timezones=st.just(UTC)) | st.booleans(),
    ),
)
@example(kind=ReplyKind.DAY_BUDGET, language="en", values={"resets_at": datetime.max.replace(tzinfo=UTC)})
@example(kind=ReplyKind.TOO_MANY_MESSAGES, language="en", values={"retry_in": timedelta.max})
@example(kind=ReplyKind.UPGRADE, language="en", values={"reward": True, "link": "{count}", "referral_code": "{}"})
def test_whatever_is_given_something_is_said(kind: ReplyKind, language: str | None, values: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingValue)
        said = reply(kind, language, zone=BALI, now=NOW, **values)
    assert said.startswith(load_catalogue(nearest_language(language)).parts[kind][0])


# --- right to left


def unbalanced(text: str) -> bool:
    """Whether an isolate is left open, closed twice, or goes over the end of a line, which would close it."""
    return any(line.count(FSI) != line.count(PDI) or re.search(f"{PDI}[^{FSI}]*{PDI}|^[^{FSI}]*{PDI}", line) for line in text.split("\n"))


@every_kind
@every_language
def test_isolates_are_balanced_on_every_line(language: str, kind: ReplyKind) -> None:
    said = reply(kind, language, zone=BALI, now=NOW, **VALUES)
    assert not unbalanced(said)
    assert (FSI in said) == (language == "ar" and REPLY_VALUES[kind] != ())


@pytest.mark.parametrize("text", [FSI, PDI, f"{PDI}{FSI}", f"{FSI}\n{PDI}", f"{FSI}a{PDI}{PDI}"])
def test_an_unbalanced_isolate_would_be_found(text: str) -> None:
    assert unbalanced(text)


@every_kind
def test_nothing_latin_and_no_number_stands_free_in_an_arabic_sentence(kind: ReplyKind) -> None:
    said = reply(kind, "ar", zone=None, now=NOW, **VALUES)
    free = re.sub(f"{FSI}[^{PDI}]*{PDI}", "", said)
    assert [character for character in free if is_latin(character) or character.isdigit()] == []


def test_an_arabic_upgrade_keeps_code_and_link_whole() -> None:
    assert reply(ReplyKind.UPGRADE, "ar", **VALUES) == (
        "لقد نفدت نقاطك.\n"
        f"يمكنك شحن نقاط جديدة من هنا لنتابع معًا:\n{FSI}https://hermes.example/join {PDI}\n"
        f"رمزك لدعوة الأصدقاء: {FSI}7f3a9c01be{PDI}\n"
        f"لك {FSI}5 نقاط{PDI} عن كل صديق ينضم إلينا."
    )


def test_a_value_in_letters_of_the_other_direction_is_isolated_in_any_language() -> None:
    assert isolate_text("مقهى", is_right_to_left=False) == f"{FSI}مقهى{PDI}"
    assert isolate_text("Café", is_right_to_left=False) == "Café"


@pytest.mark.parametrize("link", ["https://hermes.example", "https://مثال.example"])
def test_a_link_never_touches_the_mark_that_ends_its_isolate(link: str) -> None:
    assert re.findall(r"https://\S+", isolate_link(link, is_right_to_left=True)) == [link]
    assert re.findall(r"https://\S+", isolate_link(link, is_right_to_left=False)) == [link]


# --- numbers, times, sizes


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", "0 credits, 1 credit, 2 credits, 5 credits, 11 credits, 21 credits, 1,000,000 credits"),
        ("ru", "0 кредитов, 1 кредит, 2 кредита, 5 кредитов, 11 кредитов, 21 кредит, 1\u00a0000\u00a0000 кредитов"),
        ("ar", "0 نقطة, نقطة واحدة, نقطتان, 5 نقاط, 11 نقطة, 21 نقطة, 1,000,000 نقطة"),
        ("fr", "0 crédit, 1 crédit, 2 crédits, 5 crédits, 11 crédits, 21 crédits, 1\u202f000\u202f000 de crédits"),
        ("ko", "크레딧 0개, 크레딧 1개, 크레딧 2개, 크레딧 5개, 크레딧 11개, 크레딧 21개, 크레딧 1,000,000개"),
    ],
)
def test_credits_are_counted_as_the_language_counts(language: str, words: str) -> None:
    catalogue = load_catalogue(language)
    counts = (0, 1, 2, 5, 11, 21, 1_000_000)
    assert ", ".join(format_credits(count, catalogue.credits, catalogue.locale) for count in counts) == words


@pytest.mark.parametrize(
    ("wait", "english", "russian"),
    [
        (timedelta(hours=-1), "in 1 second", "через 1 секунду"),
        (timedelta(seconds=0.2), "in 1 second", "через 1 секунду"),
        (timedelta(seconds=89), "in 89 seconds", "через 89 секунд"),
        (timedelta(seconds=90), "in 2 minutes", "через 2 минуты"),
        (timedelta(minutes=80), "in 80 minutes", "через 80 минут"),
        (timedelta(hours=23, minutes=1), "in 24 hours", "через 24 часа"),
        (timedelta(hours=40), "in 2 days", "через 2 дня"),
        (timedelta(days=30, hours=1), "in 31 days", "через 31 день"),
    ],
)
def test_a_wait_is_one_unit_rounded_up(wait: timedelta, english: str, russian: str) -> None:
    assert (format_wait(wait, Locale("en")), format_wait(wait, Locale("ru"))) == (english, russian)


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", "Thu, Oct 1, 3:30\u202fPM"),
        ("ko", "10월 1일 (목) 오후 3:30"),
        ("ar", "الخميس، 1 أكتوبر، 3:30 م"),
        ("zh", "10月1日周四 15:30"),
        ("th", "พฤ. 1 ต.ค. 15:30"),
    ],
)
def test_a_moment_has_weekday_day_and_time(language: str, words: str) -> None:
    assert format_moment(datetime(2026, 10, 1, 7, 30, tzinfo=UTC), BALI, Locale(language)) == words


@pytest.mark.parametrize(
    ("limit_bytes", "english", "french"),
    [
        (5 * 1024 * 1024, "5 MB", "5\u202fMo"),
        (5_000_000, "4.7 MB", "4,7\u202fMo"),
        (512 * 1024, "512 kB", "512\u202fko"),
    ],
)
def test_a_size_promises_no_more_than_is_taken(limit_bytes: int, english: str, french: str) -> None:
    assert (format_size(limit_bytes, Locale("en")), format_size(limit_bytes, Locale("fr"))) == (english, french)


@pytest.mark.parametrize(
    ("price", "english", "indonesian"),
    [
        (Money(39.5, "USD"), "$39.50", "US$39,50"),
        (Money(150_000.0, "IDR"), "IDR\xa0150,000", "Rp\xa0150.000"),
        (Money(5, "?"), "?5", "?5"),
    ],
)
def test_a_price_has_its_currency_and_decimals(price: Money, english: str, indonesian: str) -> None:
    assert (format_money(price, Locale("en")), format_money(price, Locale("id"))) == (english, indonesian)


# --- a language that nobody speaks


def pseudo(text: str) -> str:
    """English with every letter replaced by a strange one, and a third longer, as German or Russian would be."""
    strange = re.sub(
        r"(\{\w+\})|([A-Za-z])",
        lambda found: found[1] or chr(0x1D5D4 + ord(found[2].upper()) - ord("A")),  # mathematical sans-serif bold
        text,
    )
    return f"⟦{strange}{'~' * (len(text) // 3)}⟧"


def pseudo_catalogue() -> ReplyCatalogue:
    english = load_catalogue("en")
    return replace(
        english,
        parts={kind: tuple(map(pseudo, parts)) for kind, parts in english.parts.items()},
        credits={category: pseudo(form) for category, form in english.credits.items()},
    )


@every_kind
def test_no_word_is_said_that_is_not_in_a_catalogue(kind: ReplyKind) -> None:
    values = VALUES | {"link": "1", "referral_code": "2", "code": "3"}
    said = render_reply(pseudo_catalogue(), kind, REPLY_VALUES[kind], values, zone=BALI, now=NOW)
    words_of_cldr = ["in 13 hours", "Thu, Oct 1, 8:00\u202fAM", "5 MB", "in 30 seconds"]
    for words in words_of_cldr:
        said = said.replace(words, "")
    assert re.findall(r"[A-Za-z]+", said) == []
    assert said.count("⟦") == said.count("⟧") >= len(load_catalogue("en").parts[kind])


# --- the package


def test_importing_reads_no_catalogue() -> None:
    program = "from hermes.router.replies.catalogue import load_catalogue; print(load_catalogue.cache_info().currsize)"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout == "0\n"


def test_the_reference_page_is_what_the_catalogues_say() -> None:
    write_again = (
        "the page is old; write it again: python -c 'from hermes.router.replies import replies_page; print(replies_page(), end=\"\")'"
    )
    assert PAGE.read_text(encoding="utf-8") == replies_page(), write_again
