"""A user's reaction to a message of ours becomes an annotation on the model's response behind it.

    👍 on a message  →  the turn that sent it  →  the last sample of that turn: reaction="👍", reward=1.0

An annotation is never removed. When a user takes a reaction back, a second annotation says so (`reaction=""`, `reward=None`); the later
one counts. In a group the reward is the mean of all members' last reactions; the annotation names a member only by a hash under the
conversation's seed. Reactions carry no time: if a platform sends two in the wrong order, the one that arrives last counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from hermes.graph import MessageGraph
from hermes.graph.message import digest
from hermes.graph.response import Response
from hermes.ports.channels import Reaction
from hermes.ports.errors import NotFound, StaleHead, UserErased
from hermes.ports.outbox import AnswerSource, DeliveryTracking
from hermes.ports.runtime import Transactions
from hermes.ports.sessions import Graphs
from hermes.turn import Platform

log = structlog.get_logger()

MAX_TRIES = 5
"""How often the graph is read again because its conversation moved on meanwhile."""
MAX_REACTION_CHARS = 16
"""Characters of a reaction that are kept; the longest emoji has fewer."""

GOOD_REACTIONS = "👍 ❤ 🧡 💛 💚 💙 💜 🖤 🤍 🤎 💕 💖 💘 ❤‍🔥 🔥 🥰 😍 😘 🤩 😁 😊 🤗 👏 🙌 🎉 🙏 👌 💪 💯 ⭐ 🌟 🏆 🤝 🫡 ✅ love like"
BAD_REACTIONS = "👎 💔 😠 😡 🤬 🤮 🤢 💩 🤡 🖕 🥱 😒 🙄 ❌ angry dislike"
REWARDS: Mapping[str, float] = {**dict.fromkeys(GOOD_REACTIONS.split(), 1.0), **dict.fromkeys(BAD_REACTIONS.split(), -1.0)}
"""The reward of a reaction. Laughter, tears and surprise have none: they are as often about what an answer reports as about its quality.
The words are Instagram's, for reactions that it sends without an emoji."""
APPEARANCE_MARKS = dict.fromkeys([0xFE0E, 0xFE0F, *range(0x1F3FB, 0x1F400)])
"""Characters that only say how an emoji looks: as text or image, and its skin colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """Stores users' reactions to answers."""

    transactions: Transactions
    tracking: DeliveryTracking
    graphs: Graphs

    async def apply(self, platform: Platform, account: str, reaction: Reaction) -> bool:
        """Store a reaction; return whether it was new. Raises StoreUnavailable.

        Safe to repeat. A reaction is ignored if no model sampled the message (a reply of our own, a reminder, an answer from the cache,
        another person's message), or if the conversation was erased."""
        for _ in range(MAX_TRIES):
            try:
                is_noted = await self._note(platform, account, reaction)
            except StaleHead:
                continue
            except (UserErased, NotFound) as error:
                log.info("reaction_ignored", platform=str(platform), account=account, reason=type(error).__name__)
                return False
            if is_noted:
                log.info("reaction_noted", platform=str(platform), account=account)
            return is_noted
        log.warning("reaction_lost", platform=str(platform), account=account, tries=MAX_TRIES)
        return False

    async def _note(self, platform: Platform, account: str, reaction: Reaction) -> bool:
        async with self.transactions.begin() as tx:
            source = await self.tracking.answer_source(tx, account, platform, reaction.message_id, channel_id=reaction.channel_id)
            if source is None or not source.calls:
                raise NotFound
            graph = await self.graphs.load(tx, source.session_id)
            response = last_response(graph, source)
            note = annotation_for(response, reaction, hash_sender(graph, reaction.sender_id))
            if note is None:
                return False
            graph.annotate(response, **note)
            await self.graphs.save(tx, source.session_id, graph.head, graph)
            return True


def last_response(graph: MessageGraph, source: AnswerSource) -> Response:
    """The last sample of a turn. If a tool's output was sent unchanged, that is the sample that called the tool. Raises NotFound."""
    places = {call: place for place, call in enumerate(source.calls)}
    found = [response for response in graph.responses() if response.sample_id in places]
    if not found:
        raise NotFound
    return max(found, key=lambda response: places[response.sample_id])


def annotation_for(response: Response, reaction: Reaction, sender: str) -> dict[str, Any] | None:
    """The annotation that a reaction adds to a response; None if it changes nothing: the sender's last reaction is the same."""
    reactions = {str(note["reaction_by"]): str(note["reaction"]) for note in response.annotations if "reaction_by" in note}
    emoji = reaction.emoji[:MAX_REACTION_CHARS]
    if reactions.get(sender, "") == emoji:
        return None
    rewards = [reward for last in {**reactions, sender: emoji}.values() if (reward := reward_of(last)) is not None]
    return {"reaction": emoji, "reaction_by": sender, "reward": sum(rewards) / len(rewards) if rewards else None}


def reward_of(emoji: str) -> float | None:
    """The reward of a reaction; None if it is not in REWARDS."""
    return REWARDS.get(emoji.translate(APPEARANCE_MARKS))


def hash_sender(graph: MessageGraph, sender_id: str) -> str:
    """The name of a sender in one conversation: the same each time, another in every other conversation, and secret without the seed."""
    return digest(f"reaction\0{graph.seed}\0{sender_id}".encode()).hex()[:16]
