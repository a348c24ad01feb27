"""The language that each user is spoken to in: that of the message where it tells, and their own otherwise."""

from __future__ import annotations

from collections import OrderedDict
from uuid import UUID

from hermes.ports.users import User
from hermes.soul.language.detect import detect_language
from hermes.soul.language.preference import LanguagePreference

DEFAULT_LANGUAGE = "en"
MAX_USERS = 10_000


class UserLanguages:
    """The port Languages. What was seen once it remembers in this process alone: who writes twice elsewhere changes one message later."""

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
