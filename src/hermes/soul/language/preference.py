"""The language of a person. One message in another language is a quotation, a name or a joke; two that agree are a change.

Pure: whoever keeps it keeps two short texts."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from hermes.soul.language.detect import MAX_READ_CHARS, detect_language

MIN_CHANGE_LETTERS = 12
"""Characters that a message needs before it can change a preference. A wide one (中, あ, 한) says as much as three."""


@dataclass(frozen=True, slots=True)
class LanguagePreference:
    """What a person is answered in, and what their last long message was in if that was something else.

    Preference("en").after("dónde puedo cenar hoy?")                                    still "en", with "es" seen once
    Preference("en", seen="es").after("una mesa para dos, por favor")                   "es"
    Preference("en", seen="es").after("thank you so much for that")                     "en", and "es" is forgotten
    """

    language: str | None = None
    seen: str | None = None

    def after(self, text: str) -> LanguagePreference:
        """The preference after one more message. Whoever has none takes that of the first message that tells."""
        found = detect_language(text, known=self.language)
        if found is None or (self.language is not None and weighted_letters(text) < MIN_CHANGE_LETTERS):
            return self
        if self.language is None or found in (self.language, self.seen):
            return LanguagePreference(found)
        return LanguagePreference(self.language, seen=found)


def weighted_letters(text: str) -> int:
    """How much a message says, in letters; of a long one, its beginning."""
    return sum(3 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text[:MAX_READ_CHARS] if character.isalpha())
