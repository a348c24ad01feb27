"""Tell which of the sixteen languages a user writes in.

script          what the letters alone say
detect          the language of one message
preference      the language of a user: two messages in another language change it, one does not
user_languages  the language in which Hermes answers each user"""

from hermes.soul.language.detect import LANGUAGES, detect_language, load_language_model
from hermes.soul.language.preference import LanguagePreference
from hermes.soul.language.user_languages import UserLanguages

__all__ = ["LANGUAGES", "LanguagePreference", "UserLanguages", "detect_language", "load_language_model"]
