"""Messages that are one turn together: the items of an album, and what somebody writes in one go, where the settings say so.

Platforms send every item by itself. The first one waits a little; whoever claims it takes along what came behind it meanwhile. Only on
platforms that answers are sent to: elsewhere each request waits for an answer of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from hermes.ports.inbox import Claim, InboxMessage
from hermes.turn import Envelope, Platform

MAX_JOINED_MESSAGES = 20
"""Messages that are taken along at most. The largest album has ten items."""
JOINING_PLATFORMS = frozenset({Platform.TELEGRAM, Platform.WHATSAPP, Platform.INSTAGRAM})


@dataclass(frozen=True, slots=True)
class JoinWindow:
    """How long a message waits for more of it, in seconds."""

    album_s: float = 1.0
    burst_s: float = 0.0
    """0: what is no album is not waited for."""

    def wait_s(self, envelope: Envelope) -> float:
        """How long this message waits before its turn begins."""
        if envelope.event.platform not in JOINING_PLATFORMS:
            return 0.0
        return max(self.burst_s, self.album_s if envelope.album is not None else 0.0)

    def messages_to_join(self, claim: Claim, behind: Sequence[InboxMessage]) -> list[InboxMessage]:
        """Which of the messages that wait behind this one belong to it: of its album all that are there; of a burst all that came before
        it ended, up to the first one of somebody else. `behind` is in the order of their coming."""
        return list(self._belonging(claim, behind))

    def _belonging(self, claim: Claim, behind: Sequence[InboxMessage]) -> Iterator[InboxMessage]:
        album, is_burst = claim.envelope.album, bool(self.burst_s)
        for said in behind:
            is_theirs = said.user_id == claim.user_id and said.envelope.thread == claim.envelope.thread
            if is_theirs and (is_burst or (album is not None and said.envelope.album == album)):
                yield said
            else:
                is_burst = False


DEFAULT_JOIN_WINDOW = JoinWindow()


def join_messages(envelopes: Sequence[Envelope]) -> Envelope:
    """One message out of several of the same sender: all their words in their order, and all that came with them."""
    first = envelopes[0]
    if len(envelopes) == 1:
        return first
    text = "\n".join(envelope.event.text for envelope in envelopes if envelope.event.text.strip())
    seen = [envelope for envelope in envelopes if envelope.event.media_url]
    # The first picture stands for all of them: whoever looks would not look behind a video.
    seen.sort(key=lambda envelope: not (envelope.event.media_type or "").startswith("image/"))
    shown = seen[0].event if seen else first.event
    more = chain.from_iterable((envelope.event.media_url, *envelope.attachments) for envelope in seen)
    event = replace(first.event, text=text, media_url=shown.media_url, media_type=shown.media_type)
    return replace(first, event=event, attachments=tuple(reference for reference in more if reference)[1:])
