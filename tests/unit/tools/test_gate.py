# ruff: noqa: RUF001  # people write in other scripts
"""The gate: few sets, sticky while they are warm, all when in doubt, none for small talk only."""

import pytest

from hermes.packs.concierge.words import WORDS
from hermes.tools.gate import FIRST_CHARS, LAST_CHARS, SMALL_TALK
from hermes.tools.vocabulary import LANGUAGES, Lexicon
from tests.fakes.concierge import ALL_TOOLS, concierge_gate

BAR = {
    "en": "is there a rooftop bar with sunset views",
    "id": "bar dengan matahari terbenam di Seminyak",
    "es": "un bar para ver el atardecer",
    "fr": "un bar pour le coucher de soleil",
    "de": "eine Bar mit Sonnenuntergang",
    "it": "un locale per il tramonto",
    "pt": "um bar com pôr do sol",
    "nl": "een kroeg met zonsondergang",
    "ru": "бар на закате",
    "zh": "看日落的酒吧",
    "ja": "夕日が見えるバー",
    "ko": "노을 보이는 술집",
    "ar": "حانة مع غروب الشمس",
    "hi": "सूर्यास्त वाला बार",
    "th": "บาร์ดูพระอาทิตย์ตก",
    "tr": "gün batımı için bar",
}
TABLE = {
    "en": "book a table for four at eight",
    "id": "pesan meja untuk empat orang",
    "es": "reserva una mesa para cuatro",
    "fr": "réserve une table pour quatre",
    "de": "reserviere einen Tisch für vier",
    "it": "prenota un tavolo per quattro",
    "pt": "reserve uma mesa para quatro",
    "nl": "reserveer een tafel voor vier",
    "ru": "забронируй столик на четверых",
    "zh": "订一张四人桌",
    "ja": "4人で予約して",
    "ko": "네 명 예약해줘",
    "ar": "احجز طاولة لأربعة",
    "hi": "चार लोगों के लिए टेबल बुक करो",
    "th": "จองโต๊ะสำหรับสี่คน",
    "tr": "dört kişilik masa ayırt",
}
CALORIES = {
    "en": "how many calories has that",
    "id": "berapa kalori itu",
    "es": "cuántas calorías tiene",
    "fr": "combien de calories",
    "de": "wie viele Kalorien hat das",
    "it": "quante calorie ha",
    "pt": "quantas calorias tem",
    "nl": "hoeveel calorieën zijn dat",
    "ru": "сколько в этом калорий",
    "zh": "这个有多少卡路里",
    "ja": "カロリーはいくつ",
    "ko": "칼로리 몇이야",
    "ar": "كم عدد السعرات",
    "hi": "इसमें कितनी कैलोरी है",
    "th": "กี่แคลอรี่",
    "tr": "bunda kaç kalori var",
}
THANKS = {
    "en": "thank you so much!",
    "id": "makasih banyak ya kak",
    "es": "¡muchas gracias por todo!",
    "fr": "merci beaucoup",
    "de": "vielen Dank für alles",
    "it": "grazie mille",
    "pt": "muito obrigada",
    "nl": "dank je wel hoor",
    "ru": "большое спасибо",
    "zh": "非常感谢你",
    "ja": "本当にありがとうございます",
    "ko": "정말 감사합니다",
    "ar": "شكرا جزيلا لك",
    "hi": "बहुत बहुत धन्यवाद",
    "th": "ขอบคุณมากค่ะ",
    "tr": "çok teşekkürler",
}
WHO = {
    "en": "who are you anyway?",
    "id": "siapa namamu?",
    "es": "¿cómo te llamas?",
    "fr": "comment tu t'appelles ?",
    "de": "wie heißt du eigentlich?",
    "it": "come ti chiami?",
    "pt": "qual é o seu nome?",
    "nl": "hoe heet je?",
    "ru": "как тебя зовут?",
    "zh": "你叫什么名字？",
    "ja": "お名前は何ですか",
    "ko": "이름이 뭐야?",
    "ar": "ما اسمك؟",
    "hi": "आपका नाम क्या है?",
    "th": "คุณชื่ออะไร",
    "tr": "adın ne senin?",
}

GATE = concierge_gate()


def choose(text: str, *, language: str = "en", warm: str | None = None, has_tool_history: bool = False) -> str:
    return GATE.choose(text, language=language, warm=warm, has_tool_history=has_tool_history)


@pytest.mark.parametrize("language", LANGUAGES)
def test_places_bookings_food_and_small_talk_are_told_apart_in_every_language(language: str) -> None:
    def tools_of(text: str) -> frozenset[str]:
        return GATE.subsets[choose(text, language=language)]

    assert "venue_search" in tools_of(BAR[language])
    assert tools_of(TABLE[language]) >= {"create_booking", "check_booking", "cancel_booking", "get_user_bookings"}
    assert tools_of(CALORIES[language]) >= {"calorie_scan", "get_nutrition_summary"}
    assert choose(THANKS[language], language=language) == "none"
    assert choose(WHO[language], language=language) == "none"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("👍", "none"),
        ("hahaha", "none"),
        ("555", "none"),
        ("ㅋㅋㅋㅋ", "none"),
        ("ok cool, thanks!", "none"),
        ("what can you do?", "none"),
        ("thanks, and now the other one", "full"),
        ("hi, remind me to call mum", "full"),
        ("hello, a taxi to the airport please", "full"),
        ("turn the lights off", "full"),
        ("yes for 7", "full"),
        ("no, the second", "full"),
        ("tell me a joke about restaurants", "venue"),
        ("what should I cook with rice", "full"),
        ("K7M2QX", "full"),
        ("", "none"),
    ],
)
def test_a_word_too_much_gets_tools(text: str, name: str) -> None:
    assert choose(text) == name


FORGETTING = {
    "en": "forget everything",
    "id": "Lupakan semuanya",
    "es": "olvida todo",
    "fr": "oublie tout",
    "de": "vergiss alles",
    "it": "dimentica tutto",
    "pt": "esqueça tudo",
    "nl": "vergeet alles",
    "ru": "забудь всё",
    "zh": "忘记一切",
    "ja": "全部忘れて",
    "ko": "다 잊어줘",
    "ar": "انس كل شيء",
    "hi": "सब कुछ भूल जाओ",
    "th": "ลืมทุกอย่าง",
    "tr": "her şeyi unut",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_who_asks_to_forget_is_offered_the_tool_for_it(language: str) -> None:
    for warm in (None, "none", "venue", "food", "booking"):
        chosen = GATE.choose(FORGETTING[language], language=language, warm=warm, has_tool_history=False)
        assert "forget_memory" in GATE.members(chosen)


def test_a_set_stays_while_it_is_warm_and_has_what_is_needed() -> None:
    assert choose("thanks!", warm="full") == "full"
    assert choose("thanks!", warm="venue") == "venue"
    assert choose("book a table", warm="booking") == "booking"
    assert choose("a quiet hotel in Ubud", warm="booking") == "booking"
    assert choose("book a table", warm="venue") == "full"  # outgrown: all at once, so that it is not outgrown again
    assert choose("book a table", warm="none") == "full"
    assert choose("thanks!", warm="none") == "none"
    assert choose("thanks!", warm="a set of long ago") == "none"


def test_a_yes_after_an_offer_is_no_small_talk() -> None:
    assert choose("yes") == "none"
    assert choose("yes", has_tool_history=True) == "full"
    assert choose("yes", has_tool_history=True, warm="booking") == "booking"
    assert choose("yes", has_tool_history=True, warm="none") == "full"


def test_the_sets_hold_tools_of_the_pack_and_full_holds_all() -> None:
    names = {recipe.name for recipe in ALL_TOOLS}
    assert list(GATE.subsets) == ["none", "venue", "food", "booking", "full"]
    assert GATE.subsets["full"] == names
    assert all(members <= names for members in GATE.subsets.values())
    assert GATE.members("something else") == names


@pytest.mark.parametrize("table", [*WORDS.values(), *SMALL_TALK.values()])
def test_every_table_has_every_language(table: dict[str, str]) -> None:
    assert set(table) == set(LANGUAGES)


def test_of_a_long_message_the_beginning_and_the_end_are_read() -> None:
    rain = "It rained again. " * 6_000
    assert choose(f"{rain}Is there a rooftop bar with sunset views?") == "venue"
    assert choose(f"Is there a rooftop bar with sunset views? {rain}") == "venue"
    assert choose(f"{rain}Is there a rooftop bar with sunset views? {rain}") == "full"
    assert choose(f"{rain}ABC234") == "full"
    assert choose("thanks " * 20_000) == "full"


def test_no_more_of_a_long_message_is_compared_with_any_word(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = list[int]()

    def noted(self: Lexicon, folded: str) -> bool:
        compared.append(len(folded))
        return False

    monkeypatch.setattr(Lexicon, "is_in", noted)
    choose("1 " * 50_000)
    assert len(compared) == 5
    assert max(compared) <= FIRST_CHARS + LAST_CHARS + 1
