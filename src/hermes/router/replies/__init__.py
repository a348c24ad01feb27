"""Every sentence that Hermes says on its own behalf, in sixteen languages.

    reply(ReplyKind.DAY_BUDGET, user.language, resets_at=spent.resets_at, now=clock.now(), zone=ZoneInfo("Asia/Makassar"))

The sentences are in languages/, one file each. Plural forms, dates and durations are CLDR's, by way of Babel. Knows nothing of users,
credits or channels: what a sentence needs is given to it."""

from hermes.router.replies.catalogue import LANGUAGES, language_of
from hermes.router.replies.kinds import NEEDS, ReplyKind
from hermes.router.replies.page import replies_page
from hermes.router.replies.say import MissingValue, reply
from hermes.router.replies.words import Money

__all__ = ["LANGUAGES", "NEEDS", "MissingValue", "Money", "ReplyKind", "language_of", "replies_page", "reply"]
