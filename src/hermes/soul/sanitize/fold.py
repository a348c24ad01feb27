"""Fold all ways to write a letter into one, for comparison only: stored text keeps its characters.

Case, accents, letter styles and invisible characters are folded away. Letters of other alphabets that look Latin are
folded in a second step, `read_as_latin`, because in their own alphabet they mean themselves."""

# ruff: noqa: RUF001  # this module is about letters and their look-alikes

from __future__ import annotations

import re
import unicodedata


def fold(text: str) -> str:
    """The text without case, accents, invisible characters and letter styles; digits and punctuation stay. Idempotent."""
    if text.isascii():
        return _INVISIBLE.sub("", text).lower()
    folded = _fold_once(text)
    return folded if folded == text else _fold_once(folded)  # casefolding can bring marks back (İ), and without them new pairs compose


def read_as_latin(folded: str) -> str:
    """A folded text with every letter that looks Latin read as Latin: Cyrillic, Greek, Armenian and Cherokee look-alikes."""
    return folded.translate(_LOOK_ALIKES)


def to_simplified_chinese(text: str) -> str:
    """Traditional Chinese characters as simplified ones, as far as our word lists use them."""
    return text.translate(_SIMPLIFIED)


def is_upside_down(text: str) -> bool:
    """Whether a text has at least four letters that occur only in upside-down text (ǝ ɹ ʇ)."""
    return len(_UPSIDE_DOWN_ONLY.findall(text)) >= 4


def turn_upright(text: str) -> str:
    """Upside-down text, turned upright."""
    return text.translate(_UPSIDE_DOWN)[::-1]


def _fold_once(text: str) -> str:
    text = _MARKS.sub("", unicodedata.normalize("NFKD", _INVISIBLE.sub("", text.translate(_STYLED))))
    return unicodedata.normalize("NFC", text.casefold()).translate(_SAME)


def _pairs(*texts: str) -> dict[int, str]:
    """A translation table from texts in which each character is followed by its replacement."""
    return {ord(text[place]): text[place + 1] for text in texts for place in range(0, len(text), 2)}


# Characters without width: soft hyphen, joiners, direction marks, fillers, variation selectors, tags, control characters.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Accents and vowel points that writers may leave out. Hindi and Thai vowel signs are letters to a reader, and stay; the nukta goes.
_MARKS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed\u093c\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff"
    "\ufe20-\ufe2f]"
)
# Letters in circles, squares and flags, small capitals, and letters with strokes: Unicode normalisation leaves them alone.
_STYLED = {first + place: chr(ord("a") + place) for first in (0x1F130, 0x1F150, 0x1F170, 0x1F1E6) for place in range(26)} | _pairs(
    "ᴀaʙbᴄcᴅdᴇeꜰfɢgʜhɪiᴊjᴋkʟlᴍmɴnᴏoᴘpꞯqʀrꜱsᴛtᴜuᴠvᴡwʏyᴢz",
    "ɑaƀbɓbƈcȼcđdɖdɗdɇeƒfɡgɠgħhɦhıiɨiɩiɉjƙkłlƚlɫlɱmƞnɲnŋnøoɵoƥpɋqɍrʂsŧtƭtʉuʋvƴyɏyƶzȥzʐz",
)
# Spellings that readers take for the same: forms of alef, ya and kaf; apostrophes; dashes.
_SAME = _pairs("أاإاآاٱاىيیيئيؤوةهکكۀه", "ѐеѝи", "‘'’'ʼ'`'´'′'", "‐-‑-‒-–-—-―-−-")
_LOOK_ALIKES = _pairs(
    "аaвbеeзzіiјjкkмmнhоoрpсcтtуyхxѕsԁdԛqԝwһhѵvгrиuпnьbъbшwяrэeӏlԍgҽeғfѡwԏtԑeүyҝkҡk",
    "αaβbγyδdεeζzηnθoιiκkλlμmνvξeοoπnρpσoςsτtυuφoχxψwωwϲcϳjϝf",
    "օoոnսuհhյjցgզqեeբbտsաwւlռnկkքp",
    "ꭰdꭱrꭲtꭵiꭺaꭻjꭼeꮃwꮇmꮋhꮐgꮓzꮕnꮖiꮢrꮪsꮩvꮮlꮯcꮲpꮶkꭹyꮎoꮟb",
)
_UPSIDE_DOWN = _pairs("ɐaqbɔcpdǝeɟfƃgɥhᴉiıiɾjʞkןlʃlɯmundpbqɹrʇtnuʌvʍwʎy")
_UPSIDE_DOWN_ONLY = re.compile("[ɐɔǝɟƃɥᴉɾʞןɯɹʇʌʍʎ]")
_SIMPLIFIED = _pairs(
    "視视無无說说們们從从現现開开發发統统設设對对應应這这個个為为沒没規规則则輸输顯显關关閉闭過过濾滤員员獄狱內内語语複复還还訴诉並并會会聽听話话給给將将項项請请條条",
    "記记憶忆舊旧約约權权義义數数據据碼码鑰钥訊讯絕绝務务執执變变當当機机導导繞绕嚴严實实審审護护欄栏讀读寫写動动態态號号線线網网帳账錄录歷历檔档轉转傳传隱隐測测試试",
    "維维調调師师啟启啓启進进換换擬拟擺摆脫脱縛缚釋释瞞瞒與与後后來来時时間间誰谁麼么嗎吗裡里裏里樣样點点體体產产業业參参處处總总結结譯译編编級级認认證证許许評评詢询",
    "問问題题專专屬属標标準准達达運运別别盡尽讓让須须棄弃廢废銷销刪删蓋盖聲声稱称斷断簡简頁页電电郵邮資资戶户洩泄講讲靜静鑑鉴於于經经獲获儘尽",
)
