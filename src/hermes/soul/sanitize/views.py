"""The texts that one text may stand for. A model may read an attack that a pattern on the written text does not find.

Each view is a text that is scanned on its own: as written; with letters of other alphabets read as Latin; with digits read as
letters; with spaced-out letters joined; reversed; and with everything that is encoded in it decoded, again and again.

The length of the text bounds everything: a view is made at most once, and a decoded text is shorter than its code."""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from hermes.soul.sanitize.fold import fold, is_upside_down, read_as_latin, turn_upright

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
