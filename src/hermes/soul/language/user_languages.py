"""The language in which Hermes answers each user: that of the message if it shows one, else the user's own."""

from __future__ import annotations

from collections import OrderedDict
from uuid import UUID

from hermes.ports.users import User
from hermes.soul.language.detect import detect_language
from hermes.soul.language.preference import LanguagePreference

DEFAULT_LANGUAGE = "en"
MAX_USERS = 10_000


class UserLanguages:
    """Implements the port Languages. It remembers a language that was seen once in this process only: if another process answers the
    second message, the language changes one message later."""

    def __init__(self) -> None:
        self._seen: OrderedDict[UUID, str] = OrderedDict()

    def of(self, user: User, text: str) -> str:
        return detect_language(text, known=user.language) or user.language or DEFAULT_LANGUAGE

    def new_language(self, user: User, text: str) -> str | None:
        after = LanguagePreference(user.language, self._seen.get(user.id)).after(text)
        return after.language if after.language != user.language else None

    def note(self, user: User, text: str) -> None:
        after = LanguagePreference(user.language, self._seen.pop(user.id, None)).after(text)
        if after.seen is not None:
            self._seen[user.id] = after.seen
            while len(self._seen) > MAX_USERS:
                self._seen.popitem(last=False)
