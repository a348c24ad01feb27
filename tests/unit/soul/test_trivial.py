"""Messages that tell nothing, in sixteen languages, and messages that look like them and tell something."""

# ruff: noqa: RUF001  # sentences in sixteen languages

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.soul.language import LANGUAGES
from hermes.soul.trivial import is_trivial, phrase_books

TRIVIAL = {
    "en": [
        "hi",
        "Hello!",
        "hi there 👋",
        "ok thanks!",
        "Okkkk",
        "THANK YOU SO MUCH!!!",
        "haahaha",
        "good morning everyone",
        "byeee",
        "Yes, please",
        "k",
        "sounds good, thanks a lot",
        "Sure :)",
        "I'm fine, thanks",
        "that's great",
        "no worries mate",
    ],
    "id": [
        "halo",
        "Selamat pagi semua",
        "oke makasih ya kak",
        "wkwkwk",
        "siap bang 👍",
        "sama-sama",
        "terima kasih banyak!",
        "sampai jumpa",
    ],
    "es": ["¡Hola!", "muchas gracias amigo", "vale, perfecto", "jajaja", "buenos días", "hasta luego", "de nada", "sí, claro"],
    "fr": ["Bonjour à tous", "Merci beaucoup !", "d'accord, merci", "mdr", "à bientôt", "oui bien sûr", "de rien", "c'est parfait"],
    "de": ["Guten Morgen zusammen", "Vielen Dank!", "alles klar, danke", "jaaa", "tschüss", "bis später", "kein Problem", "sehr gut"],
    "it": ["buongiorno a tutti", "grazie mille!", "va bene, ciao", "ahahah", "prego", "a presto", "sì, grazie", "d'accordo"],
    "pt": ["bom dia", "obrigado pela ajuda!", "kkkk", "valeu mano", "tá bom", "tchau", "rsrs", "até amanhã"],
    "nl": ["hoi", "dank je wel!", "oké, prima", "tot morgen", "haha leuk", "goedemorgen", "graag gedaan", "geen probleem"],
    "ru": ["привет всем", "спасибо большое!", "ок, понял", "хахаха", "до свидания", "доброе утро", "да, конечно", "не за что"],
    "zh": ["你好", "好的,谢谢你", "哈哈哈", "嗯嗯", "收到!", "早上好", "再见", "没问题"],
    "ja": ["こんにちは", "ありがとうございます!", "了解です", "はい、お願いします", "www", "おはようございます", "またね", "なるほど"],
    "ko": ["안녕하세요 반갑습니다", "ㅋㅋㅋ", "네 알겠습니다", "고마워요~", "ㅎㅎ 감사합니다!", "잘자", "좋아요", "괜찮아요"],
    "ar": ["السلام عليكم", "شكراً جزيلاً يا صديقي", "تمام", "ههههه", "صباح الخير", "مع السلامة", "نعم", "لا بأس"],
    "hi": ["नमस्ते", "धन्यवाद जी", "ठीक है भाई", "haan ji", "शुक्रिया 🙏", "हाँ", "शुभ रात्रि", "फिर मिलेंगे"],
    "th": ["สวัสดีครับ", "ขอบคุณมากค่ะ 🙏", "โอเคครับ", "555", "5555+", "ฮ่าๆๆ", "ได้เลย", "แล้วเจอกันนะ"],
    "tr": ["merhaba", "teşekkür ederim", "tamam abi sağol", "günaydın", "çok teşekkürler!", "görüşürüz", "rica ederim", "İYİ AKŞAMLAR"],
}
CONTENT = {
    "en": [
        "book a table",
        "ok book it",
        "thanks, and a taxi",
        "hi, where is the bar",
        "cancel",
        "yes at 7",
        "good restaurants",
        "how are you?",
        "ok?",
        "sushi",
        "no onions",
        "1",
    ],
    "id": ["pesan meja", "oke jam tujuh", "makan malam", "batalkan", "apa kabar?"],
    "es": ["una mesa para dos", "gracias, y un taxi", "cancela", "hola, dónde está el bar", "sin cebolla"],
    "fr": ["une table pour deux", "merci, et un taxi", "annule", "bonjour, où est le bar", "sans oignons"],
    "de": ["einen Tisch für zwei", "danke, und ein Taxi", "storniere", "die Rechnung bitte", "ohne Zwiebeln"],
    "it": ["un tavolo per due", "grazie, e un taxi", "cancella", "il conto per favore", "senza cipolla"],
    "pt": ["uma mesa para dois", "obrigado, e um táxi", "cancela", "a conta por favor", "sem cebola"],
    "nl": ["een tafel voor twee", "bedankt, en een taxi", "annuleer", "de rekening graag", "zonder ui"],
    "ru": ["столик на двоих", "спасибо, и такси", "отмени", "счёт пожалуйста", "без лука"],
    "zh": ["订一张桌子", "谢谢,再叫出租车", "取消", "买单", "不要洋葱"],
    "ja": ["席を予約して", "ありがとう、タクシーも", "キャンセル", "お会計", "玉ねぎ抜き"],
    "ko": ["자리 예약해 줘", "고마워 택시도", "취소", "계산서", "양파 빼고"],
    "ar": ["احجز طاولة", "شكرا وسيارة أجرة", "ألغ الحجز", "الحساب من فضلك", "بدون بصل"],
    "hi": ["टेबल बुक करो", "धन्यवाद, एक टैक्सी", "रद्द करो", "बिल लाओ", "बिना प्याज"],
    "th": ["จองโต๊ะ", "ขอบคุณ เรียกแท็กซี่", "ยกเลิก", "เช็คบิล", "ไม่ใส่หัวหอม"],
    "tr": ["iki kişilik masa", "teşekkürler, bir de taksi", "iptal et", "hesap lütfen", "soğansız"],
}


def test_all_sixteen_languages_have_words_and_rows() -> None:
    assert set(phrase_books()) == set(TRIVIAL) == set(CONTENT) == set(LANGUAGES)


@pytest.mark.parametrize(("language", "text"), [(language, text) for language, texts in TRIVIAL.items() for text in texts])
def test_what_tells_nothing_is_trivial_whether_or_not_the_language_is_known(language: str, text: str) -> None:
    assert (is_trivial(text), is_trivial(text, language)) == (True, True)


@pytest.mark.parametrize(("language", "text"), [(language, text) for language, texts in CONTENT.items() for text in texts])
def test_what_tells_something_is_content(language: str, text: str) -> None:
    assert (is_trivial(text), is_trivial(text, language)) == (False, False)


@pytest.mark.parametrize("text", ["👍", "😂😂😂", "❤️", "🙏🏽", "👨‍👩‍👧‍👦", "🇮🇩", "…", "", "  ", ":)", ":-D", "<3", "^_^", "!!!", "🎉 🎉"])
def test_emoji_and_punctuation_alone_are_trivial(text: str) -> None:
    assert is_trivial(text)


@pytest.mark.parametrize("text", ["?", "???", "¿", "؟", "？", "42", "7pm", "1️⃣", "٣"])
def test_a_question_mark_or_a_digit_is_content(text: str) -> None:
    assert not is_trivial(text)


def test_a_number_that_is_a_sound_in_one_language_is_a_number_in_another() -> None:
    assert [is_trivial("555", language) for language in ("th", "en", "zh")] == [True, False, False]
    assert [is_trivial("666", language) for language in ("zh", "th", None)] == [True, False, False]
    assert not is_trivial("room 555", "th")


def test_a_word_that_stands_beside_others_does_not_stand_alone() -> None:
    assert [is_trivial(text) for text in ("hi there", "there", "thanks bro", "bro")] == [True, False, True, False]


def test_english_is_understood_in_every_language_and_another_language_is_not() -> None:
    assert is_trivial("ok terima kasih", "id")
    assert is_trivial("thanks kak", "id")
    assert not is_trivial("terima kasih", "fr")


@given(
    st.sampled_from([text for texts in TRIVIAL.values() for text in texts]), st.text(alphabet="abcdefghijklmnop", min_size=9, max_size=12)
)
def test_an_unknown_word_makes_any_message_content(text: str, unknown: str) -> None:
    assert not is_trivial(f"{text} {unknown}q{unknown}")


@given(st.text(max_size=200))
def test_any_text_gets_an_answer(text: str) -> None:
    assert is_trivial(text) in (True, False)
