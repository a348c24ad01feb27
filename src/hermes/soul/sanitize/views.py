"""The texts that one text may stand for. A model may read an attack that a pattern on the written text does not find.

`fold` folds all ways to write a letter into one, for comparison only: stored text keeps its characters. Case, accents, letter styles and
invisible characters are folded away. Letters of other alphabets that look Latin are folded in a second step, `read_as_latin`, because in
their own alphabet they mean themselves.

Each view is a text that is scanned on its own: as written; with letters of other alphabets read as Latin; with digits read as
letters; with spaced-out letters joined; reversed; and with everything that is encoded in it decoded, again and again.

The length of the text bounds everything: a view is made at most once, and a decoded text is shorter than its code."""

# ruff: noqa: RUF001  # this module is about letters and their look-alikes

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
import unicodedata
from collections.abc import Callable, Iterator
from urllib.parse import unquote


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


MAX_DECODED_LENGTHS = 8
"""The most that is decoded, in lengths of the text: a decoded text may hold more code, and decoding must end."""

MAX_BINARY_DIGITS = 8_000
"""The most digits of a binary number: converting it to bytes takes quadratic time."""


def views(text: str) -> Iterator[str]:
    """Folded texts to scan, each once, the text as written first."""
    seen: set[str] = set()
    waiting, chars_left = [text], MAX_DECODED_LENGTHS * len(text) + MAX_DECODED_LENGTHS
    while waiting and chars_left > 0:
        current = waiting.pop(0)
        chars_left -= len(current) + 1
        for folded in visible_readings(current):
            if folded and folded not in seen:
                seen.add(folded)
                yield folded
        waiting += decoded_texts(current)


def visible_readings(text: str) -> Iterator[str]:
    """The ways to read the visible letters of a text."""
    folded = join_letters(fold(text))
    yield folded
    plain = read_as_latin(folded) if _FOREIGN.search(folded) and _LATIN.search(folded) else folded
    yield plain
    if _LEET.search(plain):
        yield plain.translate(_LEET_AS_I)
        yield plain.translate(_LEET_AS_L)
    if _ROT13.search(plain):
        yield codecs.decode(plain, "rot13")
    if _REVERSED.search(plain):
        yield plain[::-1]


def decoded_texts(text: str) -> Iterator[str]:
    """Texts that are hidden in a text, and the text with its escapes replaced."""
    if (tags := "".join(_TAGS.findall(text))) and tags.strip("\U000e007f"):
        yield "".join(chr(ord(character) - 0xE0000) for character in tags if ord(character) < 0xE007F)
    if len(selectors := "".join(_SELECTORS.findall(text))) >= 8:
        yield selected_bytes(selectors)
    if _REORDERED.search(text):
        yield _REORDERED.sub("", text)[::-1]
        yield _RUN_REVERSED.sub(lambda found: found[1][::-1], text)
    if is_upside_down(text):
        yield turn_upright(text)
    if "&" in text and (plain := html.unescape(text)) != text:
        yield plain
    if _PERCENT.search(text):
        yield unquote(text, errors="replace")
    if "\\" in text and (plain := _ESCAPE.sub(lambda found: chr(int(found[1] or found[2] or found[3], 16)), text)) != text:
        yield plain
    yield from decode_runs(text)


def decode_runs(text: str) -> Iterator[str]:
    """The texts of base64, base32, hexadecimal and binary runs."""
    for run in _BASE64.findall(text):
        yield from decode_text(base64.b64decode, pad_code(run.replace("-", "+").replace("_", "/").rstrip("="), 4))
    for run in _BASE32.findall(text):
        yield from decode_text(base64.b32decode, pad_code(run.rstrip("="), 8))
    for run in _HEX.findall(text):
        yield from decode_text(bytes.fromhex, re.sub(r"0x|[^0-9a-fA-F]", "", run))
    for run in _BINARY.findall(text):
        yield from decode_text(lambda digits: int(digits, 2).to_bytes(len(digits) // 8, "big"), re.sub(r"\D", "", run)[:MAX_BINARY_DIGITS])


def decode_text(decode: Callable[[str], bytes], code: str) -> Iterator[str]:
    """The text of a code; nothing if it is not valid code, or does not decode to text."""
    try:
        plain = decode(code).decode()
    except (binascii.Error, ValueError):
        return
    if all(character.isprintable() or character.isspace() for character in plain):
        yield plain


def pad_code(code: str, size: int) -> str:
    return code + "=" * (-len(code) % size)


def selected_bytes(selectors: str) -> str:
    """The text in a run of variation selectors. There are 256 of them, one for each byte."""
    values = (ord(character) - 0xFE00 if ord(character) < 0xFE10 else ord(character) - 0xE0100 + 16 for character in selectors)
    return bytes(values).decode(errors="replace")


def join_letters(folded: str) -> str:
    """Join letters that were set apart: "i g n o r e  a l l" becomes "ignore all", and so does "i.g.n.o.r.e a.l.l"."""
    if _SPREAD.search(folded) is None:
        return folded
    return _SPREAD.sub(lambda found: found[0].replace(found[1], ""), folded)


# Reversed or shifted attacks hold one of these: searching for them is cheaper than scanning every text both ways.
_TELLING = (
    "ignore",
    "disregard",
    "forget",
    "instruction",
    "previous",
    "system",
    "override",
    "reveal",
    "pretend",
    "you are",
    "jailbreak",
    "restriction",
)
_ROT13 = re.compile("|".join(codecs.encode(word, "rot13") for word in _TELLING))
_REVERSED = re.compile("|".join(word[::-1] for word in _TELLING))
_LATIN = re.compile(r"[a-z]")
_FOREIGN = re.compile(r"[\u0370-\u052f\u0531-\u058f\uab70-\uabbf]")
_LEET = re.compile(r"[a-z][013456789@$!|+€£¡]+[a-z]|(?<![a-z0-9@$!|+€£¡])[013456789@$!|+€£¡]+[a-z]{2}|[a-z]{2}[0134578@$|+€]+(?![a-z0-9])")
_LEET_AS_I = str.maketrans("01345678@$!|+€£9¡2", "oieasgtbasiitelgiz")
_LEET_AS_L = str.maketrans("01345678@$!|+€£9¡2", "oleasgtbasllteegiz")
_SPREAD = re.compile(r"(?<![^\W_])[^\W\d_]([ ._\-*·|/,~+])[^\W\d_](?:\1[^\W\d_])+(?![^\W_])")
_TAGS = re.compile("[\U000e0020-\U000e007f]+")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,}")
_REORDERED = re.compile("[\u202d\u202e\u2066-\u2069\u202a-\u202c]")
_RUN_REVERSED = re.compile("\u202e([^\u202c\u202d\u202e\n]*)\u202c?")
_PERCENT = re.compile(r"(?:%[0-9a-fA-F]{2}.{0,3}){3}")
_ESCAPE = re.compile(r"\\u\{?([0-9a-fA-F]{4})\}?|\\x([0-9a-fA-F]{2})|\\U0*([0-9a-fA-F]{4,5})(?![0-9a-fA-F])")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16,}={0,2}")
_BASE32 = re.compile(r"(?<![A-Z2-7])[A-Z2-7]{16,}={0,6}")
_HEX = re.compile(r"(?<![0-9a-fA-F])(?:(?:0x|\\x)?[0-9a-fA-F]{2}[ ,:-]?){8,}")
_BINARY = re.compile(r"(?<![01])(?:[01]{8}[ ,]?){4,}")
