"""Join messages into one turn: the items of an album and, if the settings say so, messages that one user writes in quick succession.

Platforms send every item as a message of its own. The first one waits a little; the worker that claims it joins the messages that came
after it meanwhile. Only on platforms that Hermes sends answers to: on the others each request waits for an answer of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from hermes.ports.inbox import Claim, InboxMessage
from hermes.turn import SEND_PLATFORMS, Envelope

MAX_JOINED_MESSAGES = 20
"""The largest album has ten items."""


@dataclass(frozen=True, slots=True)
class JoinWindow:
    """How long a message waits for others to join it, in seconds."""

    album_s: float = 1.0
    burst_s: float = 0.0
    """0: a message that is not part of an album does not wait."""

    def wait_s(self, envelope: Envelope) -> float:
        """How long this message waits before its turn begins."""
        if envelope.event.platform not in SEND_PLATFORMS:
            return 0.0
        return max(self.burst_s, self.album_s if envelope.album is not None else 0.0)

    def messages_to_join(self, claim: Claim, behind: Sequence[InboxMessage]) -> list[InboxMessage]:
        """Return the waiting messages that belong to the claimed one: all of its album; and in a burst, all up to the first message of
        another sender or thread. `behind` is in the order of arrival."""
        return list(self._belonging(claim, behind))

    def _belonging(self, claim: Claim, behind: Sequence[InboxMessage]) -> Iterator[InboxMessage]:
        album, is_burst = claim.envelope.album, bool(self.burst_s)
        for message in behind:
            is_same_sender = message.user_id == claim.user_id and message.envelope.thread == claim.envelope.thread
            if is_same_sender and (is_burst or (album is not None and message.envelope.album == album)):
                yield message
            else:
                is_burst = False


DEFAULT_JOIN_WINDOW = JoinWindow()


def join_messages(envelopes: Sequence[Envelope]) -> Envelope:
    """Join several messages of one sender into one: all their texts in order, and all their media."""
    first = envelopes[0]
    if len(envelopes) == 1:
        return first
    text = "\n".join(envelope.event.text for envelope in envelopes if envelope.event.text.strip())
    with_media = [envelope for envelope in envelopes if envelope.event.media_url]
    # An image comes first: if the first medium is a video, step route_image shows the model none of them.
    with_media.sort(key=lambda envelope: not (envelope.event.media_type or "").startswith("image/"))
    shown = with_media[0].event if with_media else first.event
    more = chain.from_iterable((envelope.event.media_url, *envelope.attachments) for envelope in with_media)
    event = replace(first.event, text=text, media_url=shown.media_url, media_type=shown.media_type)
    return replace(first, event=event, attachments=tuple(reference for reference in more if reference)[1:])
