"""A message as the rules see it: sentence by sentence, folded, with each place of the folded text mapped to the text as written.

Text in quotation marks is another person's, or only mentioned, so the rules do not see it; a quoted name is still a name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from hermes.soul import recall_terms

QUOTED = "\u00a4"
"""Stands in the place of a quotation."""
QUOTATION = re.compile(
    '"([^"\n]*)(?:"|$)|\u201c([^\u201d\u201c\n]*)[\u201d\u201c]|\u201e([^\u201c\u201d\u201f\n]*)[\u201c\u201d\u201f]'
    "|\u00ab([^\u00bb\n]*)\u00bb|\u300c([^\u300d\n]*)\u300d|\u300e([^\u300f\n]*)\u300f|(?<![^\\W_])'([^'\n]*(?:'(?=\\w)[^'\n]*)*)'(?!\\w)",
    re.MULTILINE,
)
MAX_QUOTED_NAME_WORDS = 2
"""A quotation with at most this many words may be a name."""
MAX_DENSE_NAME_CHARS = 6
"""The same in characters, for scripts without spaces between words."""
DENSE = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
SENTENCE = re.compile(
    "[^.!?;\n\u3002\uff01\uff1f\u061f\u2026\u0964]+(?:[.](?=\\w)[^.!?;\n\u3002\uff01\uff1f\u061f\u2026\u0964]+)*[.!?;\u3002\uff01\uff1f\u061f\u2026\u0964]*"
)
SAME_LETTERS = str.maketrans(
    {
        **dict(zip("\u0131\u0623\u0625\u0622\u0671\u0649\u0629\u0901", "i\u0627\u0627\u0627\u0627\u064a\u0647\u0902", strict=True)),
        **dict(
            zip(
                "過對歡討厭愛這嗎記請關於數據刪純辣灣憶實別麼麽說話個開從來後經還樂無東",
                "过对欢讨厌爱这吗记请关于数据删纯辣湾忆实别么么说话个开从来后经还乐无东",
                strict=True,
            )
        ),
        **dict.fromkeys([*range(0x064B, 0x0653), 0x0640, 0x093C, 0x200B, 0x200C, 0x200D, 0xFE0F], None),
        "\u061f": "?",
        "\u060c": ",",
        "\u3001": ",",
        "\u3002": ".",
        "\u0964": ".",
        "\u2018": "'",
        "\u2019": "'",
        "`": "'",
    }
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence as it was written, and as the rules see it."""

    text: str
    source: str
    """The text without quotations."""
    plain: str
    """The source, folded."""
    places: tuple[int, ...]
    """For each place of `plain`, and for its end, the place in `source`."""
    quotations: tuple[str, ...]

    def words(self, start: int, end: int) -> str:
        """The source between two places of `plain`."""
        return self.source[self.places[start] : self.places[end]]


def split_sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a message in order."""
    text = unicodedata.normalize("NFC", text).replace("\u2019", "'").replace("\u02bc", "'")
    quotations = list[str]()

    def hide_quotation(found: re.Match[str]) -> str:
        inner = next((group for group in found.groups() if group is not None), "")
        is_name = len(inner.split()) <= MAX_QUOTED_NAME_WORDS and not (DENSE.search(inner) and len(inner) > MAX_DENSE_NAME_CHARS)
        if is_name and not found.group().startswith('"' if inner == "" else "\0"):
            return f" {inner} "
        quotations.append(inner)
        return f" {QUOTED} "

    hidden = QUOTATION.sub(hide_quotation, text)
    left = iter(quotations)
    for found in SENTENCE.finditer(hidden):
        source = " ".join(found.group().split())
        if any(character.isalnum() or character == QUOTED for character in source):
            own_quotations = tuple(next(left) for _ in range(source.count(QUOTED)))
            yield align_sentence(source, own_quotations)


def align_sentence(source: str, quotations: tuple[str, ...] = ()) -> Sentence:
    pieces = [fold_character(character) for character in source]
    places = [place for place, piece in enumerate(pieces) for _ in piece]
    shown = iter(quotations)
    text = re.sub(QUOTED, lambda _: f'"{next(shown)}"', source) if quotations else source
    return Sentence(text, source, "".join(pieces), (*places, len(source)), quotations)


def fold(text: str) -> str:
    """The text in one spelling: as `recall_terms.fold`, and with one form for letters that have several spellings."""
    return "".join(map(fold_character, unicodedata.normalize("NFC", text)))


@lru_cache(maxsize=1 << 13)
def fold_character(character: str) -> str:
    return recall_terms.fold(character).translate(SAME_LETTERS) if not character.isascii() or character == "`" else character.lower()
