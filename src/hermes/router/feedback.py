"""What people think of an answer: a reaction to a message of ours becomes an annotation on the model's response behind it.

    👍 on a message  →  the turn that sent it  →  the last sample of that turn: reaction="👍", reward=1.0

An annotation is never removed. One that is taken back is followed by one that says so (`reaction=""`, `reward=None`), and what came
later stands. In a group the reward is the mean of what everybody thinks last; who they are, only a hash under the conversation's seed
tells. Reactions carry no time: of two that a platform brings in the wrong order, the one that came last counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from hermes.graph import MessageGraph
from hermes.graph.message import digest
from hermes.graph.response import Response
from hermes.ports.channels import Reaction
from hermes.ports.delivery_tracking import AnswerSource, DeliveryTracking
from hermes.ports.errors import NotFound, StaleHead, UserErased
from hermes.ports.graphs import Graphs
from hermes.ports.transactions import Transactions
from hermes.turn import Platform

log = structlog.get_logger()

MAX_TRIES = 5
"""How often a conversation may move on while its graph is read."""
MAX_REACTION_CHARS = 16
"""Characters of a reaction that are kept; the longest emoji has fewer."""

GOOD_REACTIONS = "👍 ❤ 🧡 💛 💚 💙 💜 🖤 🤍 🤎 💕 💖 💘 ❤‍🔥 🔥 🥰 😍 😘 🤩 😁 😊 🤗 👏 🙌 🎉 🙏 👌 💪 💯 ⭐ 🌟 🏆 🤝 🫡 ✅ love like"
BAD_REACTIONS = "👎 💔 😠 😡 🤬 🤮 🤢 💩 🤡 🖕 🥱 😒 🙄 ❌ angry dislike"
REWARDS: Mapping[str, float] = {**dict.fromkeys(GOOD_REACTIONS.split(), 1.0), **dict.fromkeys(BAD_REACTIONS.split(), -1.0)}
"""What a reaction is worth. Laughter, tears and surprise are as often about what was told as about how, and are worth nothing here.
The words are Instagram's, where it sends no sign."""
APPEARANCE_MARKS = dict.fromkeys([0xFE0E, 0xFE0F, *range(0x1F3FB, 0x1F400)])
"""Signs that only say how an emoji looks: as a picture, in a colour of skin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """Keeps what people think of answers."""

    transactions: Transactions
    tracking: DeliveryTracking
    graphs: Graphs

    async def apply(self, platform: Platform, account: str, reaction: Reaction) -> bool:
        """Note a reaction; return whether anything was new about it. Raises StoreUnavailable.

        May come twice. A reaction to what no model said (a reply of our own, a reminder, an answer out of the cache, somebody else's
        message) is nobody's, and so is one to a conversation that was erased."""
        for _ in range(MAX_TRIES):
            try:
                is_noted = await self._note(platform, account, reaction)
            except StaleHead:
                continue
            except (UserErased, NotFound) as error:
                log.info("reaction_passed", platform=str(platform), account=account, reason=type(error).__name__)
                return False
            if is_noted:
                log.info("reaction_noted", platform=str(platform), account=account)
            return is_noted
        log.warning("reaction_lost", platform=str(platform), account=account, tries=MAX_TRIES)
        return False

    async def _note(self, platform: Platform, account: str, reaction: Reaction) -> bool:
        async with self.transactions.begin() as tx:
            spoken = await self.tracking.answer_source(tx, account, platform, reaction.message_id, channel_id=reaction.channel_id)
            if spoken is None or not spoken.calls:
                raise NotFound
            graph = await self.graphs.load(tx, spoken.session_id)
            response = last_response(graph, spoken)
            note = annotation_for(response, reaction, hash_sender(graph, reaction.sender_id))
            if note is None:
                return False
            graph.annotate(response, **note)
            await self.graphs.save(tx, spoken.session_id, graph.head, graph)
            return True


def last_response(graph: MessageGraph, spoken: AnswerSource) -> Response:
    """The last sample of a turn. Where a tool's words were sent as they are, that is the one which called for them. Raises NotThere."""
    places = {call: place for place, call in enumerate(spoken.calls)}
    found = [response for response in graph.responses() if response.sample_id in places]
    if not found:
        raise NotFound
    return max(found, key=lambda response: places[response.sample_id])


def annotation_for(response: Response, reaction: Reaction, who: str) -> dict[str, Any] | None:
    """What a reaction adds to what is known of a response; None for nothing: they have said so already, or take back what never was."""
    thoughts = {str(note["reaction_by"]): str(note["reaction"]) for note in response.annotations if "reaction_by" in note}
    emoji = reaction.emoji[:MAX_REACTION_CHARS]
    if thoughts.get(who, "") == emoji:
        return None
    rewards = [reward for thought in {**thoughts, who: emoji}.values() if (reward := reward_of(thought)) is not None]
    return {"reaction": emoji, "reaction_by": who, "reward": sum(rewards) / len(rewards) if rewards else None}


def reward_of(emoji: str) -> float | None:
    """What a reaction is worth; None where nobody can say."""
    return REWARDS.get(emoji.translate(APPEARANCE_MARKS))


def hash_sender(graph: MessageGraph, sender_id: str) -> str:
    """Somebody as this conversation names them, and no other: the same each time, and not to be found out without its seed."""
    return digest(f"reaction\0{graph.seed}\0{sender_id}".encode()).hex()[:16]
