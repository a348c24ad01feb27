# ruff: noqa: RUF001  # people write in other scripts
"""What a caption decides, in sixteen languages, and what it leaves to the model."""

import pytest

from hermes.packs.concierge.gate import IMAGE_INTENTS
from hermes.packs.concierge.words import CAPTIONS
from hermes.tools import images
from hermes.tools.vocabulary import LANGUAGES, fold

FOOD = {
    "en": ["How many calories is this?", "calories??", "can you estimate the kcal in my bowl", "log my lunch please", "macros on this one"],
    "id": [
        "Ini berapa kalori ya?",
        "kira-kira kalorinya berapa",
        "kandungan gizi makanan ini apa saja",
        "ini bikin gemuk ya?",
    ],
    "es": ["¿Cuántas calorías tiene esto?", "calorías de mi plato", "¿esto engorda mucho?", "dame la información nutricional"],
    "fr": ["Combien de calories dans cette assiette ?", "apport calorique svp", "valeurs nutritionnelles ?", "est-ce que ça fait grossir"],
    "de": ["Wie viele Kalorien hat das?", "Nährwerte bitte", "wieviel Eiweiß ist da drin", "ist das kalorienarm?"],
    "it": ["Quante calorie ha questo piatto?", "valori nutrizionali?", "quante proteine ci sono qui", "questo dolce fa ingrassare?"],
    "pt": ["Quantas calorias tem isso?", "qual o valor calórico desse prato", "isso engorda?", "informação nutricional por favor"],
    "nl": ["Hoeveel calorieën zitten hierin?", "wat is de voedingswaarde", "hoeveel eiwit zit erin", "caloriearm of juist calorierijk?"],
    "ru": ["Сколько тут калорий?", "какая калорийность у этого блюда", "посчитай кбжу", "сколько белка на тарелке"],
    "zh": ["这个有多少卡路里？", "这碗面热量高吗", "帮我算一下热量", "吃这个会胖吗"],
    "ja": ["これは何カロリーですか？", "カロリー教えて", "糖質はどのくらい？", "これ食べたら太る？"],
    "ko": ["이거 칼로리 얼마야?", "열량 좀 계산해줘", "영양성분 알려줘", "이거 먹으면 살쪄?"],
    "ar": ["كم سعرة حرارية في هذا الطبق؟", "احسب السعرات الحرارية", "كم كالوري هذا؟", "ما القيمة الغذائية لهذه الوجبة"],
    "hi": ["इसमें कितनी कैलोरी है?", "कैलोरी बताओ", "इसमें कितना प्रोटीन है", "इस थाली के पोषक तत्व क्या हैं"],
    "th": ["จานนี้กี่แคลอรี่", "เมนูนี้กี่แคลคะ", "คำนวณแคลอรีให้หน่อย", "กินแบบนี้อ้วนไหม"],
    "tr": ["Bunda kaç kalori var?", "bu tabağın kalorisi ne kadar", "besin değerleri nedir", "bu kilo aldırır mı"],
}
GOODS = {
    "en": [
        "any dupes for this?",
        "Where can I buy this bag",
        "find me something similar but cheaper",
        "who sells these shoes",
        "lookalike?",
    ],
    "id": ["ada dupe-nya ga?", "beli di mana ini?", "cari yang lebih murah dong", "di mana bisa beli sepatu ini"],
    "es": ["¿Dónde puedo comprar este bolso?", "busco algo parecido más barato", "¿hay un dupe?", "dónde lo venden"],
    "fr": ["Où acheter ce sac ?", "tu as la même chose en moins cher ?", "un dupe de ce parfum ?", "où est-ce que je peux acheter ça"],
    "de": ["Wo kann ich das kaufen?", "gibt's das auch billiger", "such mir was Ähnliches", "eine günstigere Alternative bitte"],
    "it": ["Dove posso comprare questa borsa?", "qualcosa di simile ma più economico", "c'è un dupe?", "dove lo vendono"],
    "pt": ["Onde posso comprar essa bolsa?", "tem algo parecido mais barato?", "onde vende isso", "tem dupe desse batom?"],
    "nl": ["Waar kan ik dit kopen?", "bestaat hier een goedkopere versie van", "iets soortgelijks graag", "is er een dupe van deze tas?"],
    "ru": ["Где купить такую сумку?", "найди что-то похожее, но подешевле", "есть аналог?", "где такое продают"],
    "zh": ["这个包哪里可以买", "有平替吗", "求同款", "有没有更便宜的"],
    "ja": ["これどこで買えますか？", "もっと安いのある？", "似たような商品を探して", "プチプラで似たやつない？"],
    "ko": ["이거 어디서 살 수 있어요?", "비슷한 제품 더 싼 거 찾아줘", "저렴이 추천해줘", "이 가방 구매처 알려줘"],
    "ar": ["من أين أشتري هذه الحقيبة؟", "أريد شيء مشابه لكن أرخص", "وين اشتري هذا؟", "هل يوجد بديل أرخص"],
    "hi": ["यह कहाँ से खरीद सकते हैं?", "इससे सस्ता कुछ दिखाओ", "इसका सस्ता विकल्प ढूंढो", "इसके जैसा कुछ और चाहिए"],
    "th": ["ซื้อที่ไหนคะ", "มีแบบถูกกว่านี้ไหม", "หาซื้อได้ที่ไหน", "อยากได้ของคล้ายๆ กันแต่ถูกกว่า"],
    "tr": ["Bunu nereden alabilirim?", "daha ucuzu var mı", "bu rujun muadili var mı", "benzer ürün bulur musun"],
}
OPEN = {
    "en": [
        "what is this?",
        "no need for calories, just tell me the name",
        "a cheaper dupe, and its calories please",
        "which one is cheaper?",
        "translate the nutrition facts",
        "book a table at a cheaper restaurant like this",
        "I began to count calories years ago as my doctor told me to, and so I take a picture of every plate, as of this one here",
    ],
    "id": ["ini apa ya?", "foto liburan kemarin", "tolong terjemahkan", "jangan hitung kalori, ini masakan apa?", "mana yang lebih murah?"],
    "es": [
        "¿qué es esto?",
        "mira qué calor hace",
        "¿cuál es más barato?",
        "traduce los valores nutricionales",
        "sin calorías",
    ],
    "fr": ["c'est quoi ?", "il fait une chaleur", "lequel est moins cher ?", "notre chat", "pas besoin des calories, juste le nom"],
    "de": [
        "Was ist das?",
        "unser neuer Heizkörper",
        "welches ist billiger?",
        "Übersetz die Nährwerte",
        "ohne Kalorien, nur der Name",
    ],
    "it": [
        "cos'è questo?",
        "il calorifero perde acqua",
        "quale dei due è più economico?",
        "che bella vista",
        "traduci i valori nutrizionali",
    ],
    "pt": ["o que é isso?", "que calor hoje", "qual deles é mais barato?", "olha que lindo", "sem calorias, só o nome"],
    "nl": ["wat is dit?", "mijn hond", "welke is goedkoper?", "vertaal dit even", "geen calorieën, alleen de naam"],
    "ru": ["что это?", "калорифер течёт", "что дешевле?", "аналоговая камера деда", "переведи пищевую ценность"],
    "zh": ["这是什么？", "今天好热", "哪个更便宜", "翻译一下营养成分", "不用算热量，告诉我菜名"],
    "ja": ["これは何？", "今日は暑いね", "どっちがもっと安い？", "栄養成分を翻訳して", "カロリーはいらない、料理名だけ"],
    "ko": ["이게 뭐야?", "이 사진 어디서 사진 찍었어?", "어느 게 더 싼 거야?", "영양성분 번역해줘", "칼로리 말고 이름만"],
    "ar": ["ما هذا؟", "كم سعره؟", "أيهما أرخص؟", "ترجم القيمة الغذائية", "بدون سعرات، فقط الاسم"],
    "hi": ["यह क्या है?", "क्या यह सस्ता है?", "कौन सा सस्ता है", "इसका अनुवाद करो", "कैलोरी नहीं, बस नाम बताओ"],
    "th": ["นี่คืออะไร", "แคลเซียมในนมกล่องนี้", "อันไหนถูกกว่า", "ช่วยแปลฉลากโภชนาการ", "ไม่ต้องคำนวณแคลอรี บอกชื่อพอ"],
    "tr": ["bu ne?", "kalorifer bozuldu", "hangisi daha ucuz?", "besin değerlerini çevir", "kalori değil, adı ne?"],
}


def intent_of(caption: str) -> str | None:
    found = images.intent_of(caption, IMAGE_INTENTS)
    return found.tool if found else None


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_caption_decides_where_it_says_what_it_wants(language: str) -> None:
    assert {caption: intent_of(caption) for caption in FOOD[language]} == dict.fromkeys(FOOD[language], "calorie_scan")
    assert {caption: intent_of(caption) for caption in GOODS[language]} == dict.fromkeys(GOODS[language], "dupe_search")


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_not_beyond_doubt_is_left_to_the_model(language: str) -> None:
    assert {caption: intent_of(caption) for caption in OPEN[language]} == dict.fromkeys(OPEN[language])


@pytest.mark.parametrize("caption", ["", "   ", "😋", "?", "\u202e\u200b", "a" * 100_000, "热" * 100_000])
def test_captions_that_say_nothing_decide_nothing(caption: str) -> None:
    assert intent_of(caption) is None


def test_every_language_has_its_words() -> None:
    assert [set(CAPTIONS[name]) for name in ("calories", "dupes", "unless")] == [set(LANGUAGES)] * 3


def test_a_caption_that_is_far_too_long_is_not_even_folded() -> None:
    fold.cache_clear()
    assert intent_of("calories?" + "x" * 100_000) is None
    assert fold.cache_info().misses == 0
