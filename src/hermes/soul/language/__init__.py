"""Which of the sixteen languages a person writes in.

script      what the letters say by themselves
detect      the language of one message
preference  the language of a person: it changes when they do, and not for one word"""

from hermes.soul.language.detect import LANGUAGES, detect_language, warm
from hermes.soul.language.preference import Preference

__all__ = ["LANGUAGES", "Preference", "detect_language", "warm"]
