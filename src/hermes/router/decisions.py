"""What a message decides about an offer. Pure: it looks at nothing but the message.

button "approve"                                      →  envelope.choice = "offer:approve:7KQ2MP"
button "refuse"                                       →  envelope.choice = "offer:refuse:7KQ2MP"
a text that is only a code, in a private chat         →  perhaps an approval: the offer must exist
any other words, "yes" among them; all in a room      →  nothing"""

from __future__ import annotations

import re

from hermes.ports.tools import OfferDecision
from hermes.turn import Envelope

CODE = r"[2-9A-HJKMNP-TV-Z]{6}"
CHOICE = re.compile(rf"offer:(approve|refuse):({CODE})")
TYPED_CODE = re.compile(CODE, re.ASCII | re.IGNORECASE)


def decision_in(envelope: Envelope) -> OfferDecision | None:
    """Return what a message decides about an offer; None for every other message."""
    if envelope.is_shared:
        return None
    if chosen := CHOICE.fullmatch(envelope.choice):
        return OfferDecision(chosen[2], is_approved=chosen[1] == "approve")
    typed = TYPED_CODE.fullmatch(envelope.event.text.strip())
    return OfferDecision(typed[0].upper(), is_approved=True, is_certain=False) if typed else None


def choice_of(code: str, *, is_approved: bool) -> str:
    """Return the id of a button of an offer."""
    return f"offer:{'approve' if is_approved else 'refuse'}:{code}"


def language_sample(envelope: Envelope) -> str:
    """The text that shows in which language the sender writes; empty for a button or a code, which a person did not word."""
    text = envelope.event.text
    is_code = TYPED_CODE.fullmatch(text.strip()) is not None and any(character.isdigit() for character in text)
    return "" if envelope.choice or is_code else text
