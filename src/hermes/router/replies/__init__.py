"""Every sentence that Hermes itself says, without a model, in sixteen languages.

    reply(ReplyKind.DAY_BUDGET, user.language, resets_at=spent.resets_at, now=clock.now(), zone=ZoneInfo("Asia/Makassar"))

The sentences are in languages/, one file each. Plural forms, dates and durations are CLDR's, by way of Babel. Knows nothing of users,
credits or channels: the caller gives the values that a sentence needs."""

from hermes.router.replies.catalogue import LANGUAGES, nearest_language
from hermes.router.replies.formatting import Money
from hermes.router.replies.kinds import REPLY_VALUES, ReplyKind
from hermes.router.replies.reference_page import replies_page
from hermes.router.replies.render import MissingValue, PackReplies, reply

__all__ = ["LANGUAGES", "REPLY_VALUES", "MissingValue", "Money", "PackReplies", "ReplyKind", "nearest_language", "replies_page", "reply"]
