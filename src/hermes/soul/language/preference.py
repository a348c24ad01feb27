"""The language of a user. One message in another language may be a quotation, a name or a joke; two that agree are a change.

Pure: the caller stores two short texts."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from hermes.soul.language.detect import MAX_READ_CHARS, detect_language

MIN_CHANGE_LETTERS = 12
"""Letters that a message needs to change a preference. A wide letter (中, あ, 한) counts as three."""


@dataclass(frozen=True, slots=True)
class LanguagePreference:
    """The language in which a user is answered and, if their last long message was in another language, that one as `seen`.

    LanguagePreference("en").after("dónde puedo cenar hoy?")                            still "en", with "es" seen once
    LanguagePreference("en", seen="es").after("una mesa para dos, por favor")           "es"
    LanguagePreference("en", seen="es").after("thank you so much for that")             "en", and "es" no longer seen
    """

    language: str | None = None
    seen: str | None = None

    def after(self, text: str) -> LanguagePreference:
        """The preference after one more message. A user without one takes the language of the first message that shows one."""
        found = detect_language(text, known=self.language)
        if found is None or (self.language is not None and weighted_letters(text) < MIN_CHANGE_LETTERS):
            return self
        if self.language is None or found in (self.language, self.seen):
            return LanguagePreference(found)
        return LanguagePreference(self.language, seen=found)


def weighted_letters(text: str) -> int:
    """The letters of a message, a wide one counted as three; of a long message, those of its beginning."""
    return sum(3 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text[:MAX_READ_CHARS] if character.isalpha())
