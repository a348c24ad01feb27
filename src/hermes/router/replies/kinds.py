"""What Hermes can have to say on its own behalf, and what it must be told to say it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class ReplyKind(StrEnum):
    """Why Hermes speaks for itself. The value is the key in the catalogues."""

    SIGNUP = "signup"
    """Nobody knows the sender."""
    ACTIVATION = "activation"
    """The sender signed up, and is not activated yet."""
    UPGRADE = "upgrade"
    """No credit is left: how to get more, with the user's own referral code."""
    DAY_BUDGET = "day_budget"
    """The tokens of the day are used up."""
    MONTH_BUDGET = "month_budget"
    """The tokens of the month are used up."""
    PAUSED = "paused"
    """No model is called for anybody: the cap is reached, or the kill switch is on."""
    BUSY = "busy"
    """Too many calls at once; no slot became free."""
    RETRY_LATER = "retry_later"
    """Every model failed."""
    TOOL_DISCLAIMER = "tool_disclaimer"
    """Stands before the raw result of a tool. The only one of these for which a credit may be posted."""
    IMAGE_TOO_LARGE = "image_too_large"
    """The picture is over the limit."""
    IMAGE_UNREADABLE = "image_unreadable"
    """The picture is damaged, of an unknown kind, or could not be fetched."""
    TOO_MANY_MESSAGES = "too_many_messages"
    """One sender writes faster than Hermes takes messages."""
    APOLOGY = "apology"
    """A message or its answer ended in the dead letters."""
    REMINDER = "reminder"
    """The time of a reminder has come. Said by itself, and not in place of an answer."""
    PRICE_DROP = "price_drop"
    """A product has come down to the price that the user waits for. Said by itself."""


REPLY_VALUES: Mapping[ReplyKind, tuple[str, ...]] = {
    ReplyKind.SIGNUP: ("link",),
    ReplyKind.ACTIVATION: ("link",),
    ReplyKind.UPGRADE: ("link", "referral_code", "reward"),
    ReplyKind.DAY_BUDGET: ("resets_at",),
    ReplyKind.MONTH_BUDGET: ("resets_at",),
    ReplyKind.PAUSED: ("resets_at",),
    ReplyKind.BUSY: (),
    ReplyKind.RETRY_LATER: (),
    ReplyKind.TOOL_DISCLAIMER: (),
    ReplyKind.IMAGE_TOO_LARGE: ("max_bytes",),
    ReplyKind.IMAGE_UNREADABLE: (),
    ReplyKind.TOO_MANY_MESSAGES: ("retry_in",),
    ReplyKind.APOLOGY: (),
    ReplyKind.REMINDER: ("text",),
    ReplyKind.PRICE_DROP: ("product", "price", "shop", "link"),
}
"""The values that each reply is to be given, by name. One that is None on purpose says: there is none, so leave out the part about it.

    link            str        where to sign up, to activate, to buy
    referral_code   str        the user's own
    reward          int        credits for each friend who joins
    resets_at       datetime   when it goes on, with a zone; also give `now`, and the user's `zone`
    max_bytes       int        the largest picture that is taken
    retry_in        timedelta  how long to wait
    text            str        what to be reminded of, as the user put it
    product         str        brand and name
    price           Money      what it costs now
    shop            str        where
"""
