"""The language of one message. The script decides where it can. For the nine languages in Latin letters py3langid does, and for greetings
and thanks the phrase books: one short word is too little for statistics, and most users begin with one.

The model is read at the first message in Latin letters, or by `load_language_model`: about a third of a second, once."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

from py3langid.langid import MODEL_FILE, LanguageIdentifier  # type: ignore[import-untyped]  # it has no types

from hermes.soul.language.script import WritingScript, is_another_language, script_of
from hermes.soul.trivial import trivial_languages

LANGUAGES = ("en", "id", "es", "fr", "de", "it", "pt", "nl", "ru", "zh", "ja", "ko", "ar", "hi", "th", "tr")
"""The languages that Hermes answers in."""
LATIN = ("en", "id", "es", "fr", "de", "it", "pt", "nl", "tr")
_BY_SCRIPT = {
    WritingScript.CYRILLIC: "ru",
    WritingScript.ARABIC: "ar",
    WritingScript.DEVANAGARI: "hi",
    WritingScript.THAI: "th",
    WritingScript.HANGUL: "ko",
    WritingScript.JAPANESE: "ja",
    WritingScript.HAN: "zh",
}
KNOWN_LANGUAGE_FACTOR = 4.0
"""How many times as likely as the user's known language another one must be. Short messages say little."""
MAX_GREETING_CHARS = 80
MAX_READ_CHARS = 2_000
"""Characters that are read: more do not make the result surer."""
MIN_LIKELIHOOD, MIN_SHORT_LIKELIHOOD = 0.2, 0.7
"""The least likelihood for a user without a known language; the second for a message of fewer than MIN_LONG_LETTERS letters."""
MIN_LONG_LETTERS = 12


def detect_language(text: str, *, known: str | None = None) -> str | None:
    """The language of a message, one of the sixteen; if the message does not show one, `known`.

    Names, links and numbers show none. If `known` is Japanese, Chinese characters alone stay Japanese."""
    return detect_cached(text[:MAX_READ_CHARS], known)


@lru_cache(maxsize=1024)  # a turn calls it twice: for the language to answer in, and for the user's stored language
def detect_cached(text: str, known: str | None) -> str | None:
    words = _NOT_WORDS.sub(" ", text)
    script = script_of(words)
    if script is None or is_another_language(words, script):
        return known
    if script is WritingScript.HAN and known == "ja":
        return "ja"
    if script is not WritingScript.LATIN:
        return _BY_SCRIPT[script]
    if len(_LETTER.findall(words)) < 2:
        return known
    return likeliest_language(words, known)


def likeliest_language(words: str, known: str | None) -> str | None:
    greeting_languages = trivial_languages(words).intersection(LATIN) if len(words) <= MAX_GREETING_CHARS else frozenset[str]()
    if known in greeting_languages:
        return known
    if "en" in greeting_languages:
        return known or "en"  # "hello" and "ok" are used in every language
    likely = dict(_identifier().rank(words))
    if greeting_languages:
        return max(greeting_languages, key=lambda language: likely[language])
    best = max(likely, key=lambda language: likely[language])
    if known in likely:
        return known if likely[known] * KNOWN_LANGUAGE_FACTOR >= likely[best] else str(best)
    enough = MIN_LIKELIHOOD if len(_LETTER.findall(words)) >= MIN_LONG_LETTERS else MIN_SHORT_LIKELIHOOD
    return str(best) if likely[best] >= enough else known


def load_language_model() -> None:
    """Read the model now, so that the first message does not wait for it."""
    _identifier()


@cache
def _identifier() -> Any:
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(LATIN)
    return identifier


_NOT_WORDS = re.compile(r"https?://\S+|www\.\S+|[\w.+-]{1,64}@\S+|[@#]\w+|\d+")
_LETTER = re.compile(r"[^\W\d_]")
