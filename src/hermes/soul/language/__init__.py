"""Which of the sixteen languages a person writes in.

script      what the letters say by themselves
detect      the language of one message
preference  the language of a person: it changes when they do, and not for one word
spoken      the language that each user is spoken to in"""

from hermes.soul.language.detect import LANGUAGES, detect_language, load_language_model
from hermes.soul.language.preference import LanguagePreference
from hermes.soul.language.user_languages import UserLanguages

__all__ = ["LANGUAGES", "LanguagePreference", "UserLanguages", "detect_language", "load_language_model"]
