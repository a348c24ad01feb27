"""The replies that Hermes itself makes, without a model, and the values that each of them needs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class ReplyKind(StrEnum):
    """The reason for a reply. The value is the key in the catalogues."""

    SIGNUP = "signup"
    """The sender is not signed up."""
    ACTIVATION = "activation"
    """The sender signed up, and is not activated yet."""
    UPGRADE = "upgrade"
    """No credit is left: how to get more, with the user's own referral code."""
    DAY_BUDGET = "day_budget"
    """The tokens of the day are used up."""
    MONTH_BUDGET = "month_budget"
    """The tokens of the month are used up."""
    PAUSED = "paused"
    """No model is called for any user: the cap is reached, or the kill switch is on."""
    BUSY = "busy"
    """Too many calls at once; no slot became free in time."""
    RETRY_LATER = "retry_later"
    """Every model failed."""
    TOOL_DISCLAIMER = "tool_disclaimer"
    """Stands before the raw result of a tool. The only reply for which a credit may be posted."""
    IMAGE_TOO_LARGE = "image_too_large"
    """The image is larger than the limit."""
    IMAGE_UNREADABLE = "image_unreadable"
    """The image is damaged, of an unknown kind, or could not be fetched."""
    TOO_MANY_MESSAGES = "too_many_messages"
    """The sender writes faster than Hermes answers."""
    APOLOGY = "apology"
    """Hermes gave up on a message, which is now a dead letter."""
    OFFER = "offer"
    """Stands before the words of an offer: what Hermes would do."""
    OFFER_HOW = "offer_how"
    """Stands behind the words of an offer: how the user approves it."""
    OFFER_APPROVE_BUTTON = "offer_approve_button"
    """The button that approves an offer: at most 20 characters."""
    OFFER_REFUSE_BUTTON = "offer_refuse_button"
    """The button that refuses an offer: at most 20 characters."""
    OFFER_REFUSED = "offer_refused"
    """The user refused an offer."""
    OFFER_USED = "offer_used"
    """The offer was carried out before."""
    OFFER_EXPIRED = "offer_expired"
    """The offer is too old or was refused, or there is none."""


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
    ReplyKind.OFFER: (),
    ReplyKind.OFFER_HOW: ("code", "retry_in"),
    ReplyKind.OFFER_APPROVE_BUTTON: (),
    ReplyKind.OFFER_REFUSE_BUTTON: (),
    ReplyKind.OFFER_REFUSED: (),
    ReplyKind.OFFER_USED: (),
    ReplyKind.OFFER_EXPIRED: (),
}
"""The values that the caller gives to each reply, by name. The value None says that there is none: its part of the reply is left out.

    link            str        where to sign up, to activate, to buy
    referral_code   str        the user's own
    reward          int        credits for each friend who joins
    resets_at       datetime   when Hermes answers again, with a zone; also give `now`, and the user's `zone`
    max_bytes       int        the largest image that Hermes accepts
    retry_in        timedelta  how long to wait; of an offer, how long it is open
    code            str        with which the user approves an offer
"""
