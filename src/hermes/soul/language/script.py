"""What the letters of a text alone say about its language: seven of the sixteen languages have a script of their own.

Nine languages share the Latin script, so it decides nothing. A script also has languages that Hermes does not speak: Persian and Urdu are
written with letters that Arabic does not have, Ukrainian with some that Russian does not."""

from __future__ import annotations

import re
from enum import StrEnum


class WritingScript(StrEnum):
    """The scripts of the sixteen languages."""

    LATIN = "latin"
    CYRILLIC = "cyrillic"
    ARABIC = "arabic"
    DEVANAGARI = "devanagari"
    THAI = "thai"
    HANGUL = "hangul"
    JAPANESE = "japanese"
    HAN = "han"


def script_of(text: str) -> WritingScript | None:
    """The script of most of a text's letters; None if it has no letter of these scripts. One kana makes it Japanese: Chinese has none."""
    counts = {script: len(pattern.findall(text)) for script, pattern in _LETTERS.items()}
    # Names and brands are in Latin letters in every language, and one letter of the other scripts often says as much as several Latin ones.
    for script in counts.keys() - {WritingScript.LATIN}:
        counts[script] *= 4
    if counts[WritingScript.JAPANESE]:
        counts[WritingScript.JAPANESE] += counts[WritingScript.HAN]
        counts[WritingScript.HAN] = 0
    best = max(counts, key=lambda script: counts[script])
    return best if counts[best] else None


def is_another_language(text: str, script: WritingScript) -> bool:
    """Whether a text in this script is in a language that Hermes does not speak, by letters that the spoken language does not have."""
    strange = _STRANGE.get(script)
    return strange is not None and len(strange.findall(text)) >= 2  # one letter may come from a name or a dialect


_LETTERS = {
    WritingScript.LATIN: re.compile(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]"),
    WritingScript.CYRILLIC: re.compile(r"[\u0400-\u04ff]"),
    WritingScript.ARABIC: re.compile(r"[\u0620-\u064a\u066e-\u06d3\u06fa-\u06ff]"),
    WritingScript.DEVANAGARI: re.compile(r"[\u0904-\u0939\u0958-\u0961]"),
    WritingScript.THAI: re.compile(r"[\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46]"),
    WritingScript.HANGUL: re.compile(r"[\uac00-\ud7a3\u3131-\u318e]"),
    WritingScript.JAPANESE: re.compile(r"[\u3041-\u3096\u30a1-\u30fa\uff66-\uff9d]"),
    WritingScript.HAN: re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"),
}
_STRANGE = {
    WritingScript.ARABIC: re.compile(r"[\u067e\u0686\u0698\u06a9\u06af\u06cc\u0679\u0688\u0691\u06ba\u06be\u06d2]"),
    WritingScript.CYRILLIC: re.compile(
        r"[\u0404\u0406\u0407\u0454\u0456\u0457\u0490\u0491\u0402\u0452\u040f\u045f\u0409\u0459\u040e\u045e]"
    ),
    WritingScript.DEVANAGARI: re.compile(r"\u0933"),
}
