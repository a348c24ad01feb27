"""Which language a message is in, and when a person's language has changed."""

# ruff: noqa: RUF001  # sentences in sixteen languages

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.soul.language import LANGUAGES, MAX_READ_CHARS, LanguagePreference, detect_cached, detect_language, weighted_letters

SENTENCES = {
    "en": "could you find me a quiet place for dinner tonight",
    "id": "tolong carikan tempat makan malam yang tenang",
    "es": "¿puedes encontrar un sitio tranquilo para cenar esta noche?",
    "fr": "peux-tu me trouver un endroit calme pour dîner ce soir ?",
    "de": "kannst du mir heute Abend ein ruhiges Restaurant suchen?",
    "it": "mi trovi un posto tranquillo per cenare stasera?",
    "pt": "você pode encontrar um lugar tranquilo para jantar hoje à noite?",
    "nl": "kun je een rustige plek voor het avondeten vinden?",
    "ru": "найди мне тихое место для ужина",
    "zh": "帮我找一个安静的地方吃晚饭",
    "ja": "静かな夕食の場所を探してください",
    "ko": "조용한 저녁 식사 장소를 찾아줘",
    "ar": "ابحث لي عن مكان هادئ للعشاء",
    "hi": "मुझे रात के खाने के लिए शांत जगह ढूंढो",
    "th": "ช่วยหาร้านเงียบๆ สำหรับมื้อเย็น",
    "tr": "akşam yemeği için sessiz bir yer bulur musun?",
}


def test_all_sixteen_languages_are_here() -> None:
    assert set(SENTENCES) == set(LANGUAGES)
    assert len(LANGUAGES) == 16


@pytest.mark.parametrize(("language", "text"), SENTENCES.items())
def test_a_sentence_is_known_by_itself_and_against_another_preference(language: str, text: str) -> None:
    assert detect_language(text) == language
    assert detect_language(text, known="en" if language != "en" else "de") == language


@pytest.mark.parametrize("text", ["", "42", "👍👍", "https://example.com/una-mesa-para-dos", "eve@example.com", "@warung_sika", "...", "x"])
def test_what_tells_nothing_leaves_what_is_known(text: str) -> None:
    assert (detect_language(text), detect_language(text, known="tr")) == (None, "tr")


def test_a_short_word_that_is_shared_stays_with_the_writer() -> None:
    assert [detect_language("no", known=known) for known in ("es", "it", "en")] == ["es", "it", "en"]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("ابحث عن مطعم Potato Head Beach Club Bali", "ar"),
        ("Potato Head Beach Club に行きたい", "ja"),
        ("帮我订今晚的位子 The Lawn Canggu Beach Lounge", "zh"),
        ("забронируй Old Man's на вечер", "ru"),
    ],
)
def test_a_latin_name_does_not_hide_another_script(text: str, language: str) -> None:
    assert detect_language(text) == language


def test_characters_that_chinese_and_japanese_share_stay_with_the_writer() -> None:
    assert [detect_language("東京大学", known=known) for known in ("ja", "zh", None)] == ["ja", "zh", "zh"]


@pytest.mark.parametrize("text", ["سلام، چطوری؟ می‌خواهم میز رزرو کنم", "Я їм тільки овочі і їжджу потягом"])
def test_a_language_that_is_none_of_ours_is_not_taken_for_its_neighbour(text: str) -> None:
    assert (detect_language(text), detect_language(text, known="en")) == (None, "en")


def test_the_first_message_sets_a_preference() -> None:
    assert LanguagePreference().after(SENTENCES["fr"]) == LanguagePreference("fr")
    assert LanguagePreference().after("👍") == LanguagePreference()


def test_one_message_in_another_language_changes_nothing_and_two_do() -> None:
    once = LanguagePreference("en").after(SENTENCES["es"])
    assert once == LanguagePreference("en", seen="es")
    assert once.after("una mesa para dos personas, por favor") == LanguagePreference("es")


def test_going_back_forgets_what_was_seen() -> None:
    assert LanguagePreference("en", seen="es").after(SENTENCES["en"]) == LanguagePreference("en")


def test_two_messages_that_do_not_agree_change_nothing() -> None:
    assert LanguagePreference("en", seen="es").after(SENTENCES["de"]) == LanguagePreference("en", seen="de")


def test_a_short_message_neither_changes_nor_forgets() -> None:
    assert LanguagePreference("en").after("hola amigo") == LanguagePreference("en")
    assert LanguagePreference("en", seen="es").after("ok") == LanguagePreference("en", seen="es")


def test_four_chinese_characters_are_a_long_message() -> None:
    assert LanguagePreference("en").after("订个桌子") == LanguagePreference("en", seen="zh")


@settings(deadline=None)
@given(st.text(max_size=100), st.sampled_from([None, *LANGUAGES]))
def test_any_text_is_answered_with_one_of_ours_or_with_what_is_known(text: str, known: str | None) -> None:
    assert detect_language(text, known=known) in {*LANGUAGES, known}


def test_a_long_message_is_judged_by_its_beginning_and_not_kept() -> None:
    detect_cached.cache_clear()
    text = SENTENCES["de"] * 2_000
    assert (detect_language(text), LanguagePreference("en").after(text)) == ("de", LanguagePreference("en", seen="de"))
    assert detect_cached.cache_info().currsize == 2
    assert detect_language(text[:MAX_READ_CHARS] + SENTENCES["zh"] * 9_000) == "de"
    assert detect_cached.cache_info().currsize == 2
    assert (weighted_letters("x" * 100_000), weighted_letters("中" * 100_000)) == (MAX_READ_CHARS, 3 * MAX_READ_CHARS)
