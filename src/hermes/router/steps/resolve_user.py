"""Step 1: who writes, and who answers there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, timedelta, tzinfo
from zoneinfo import ZoneInfo

from hermes.ports.agents import Agent
from hermes.ports.errors import PortError, UserErased
from hermes.ports.inbox import Claim
from hermes.ports.users import User, UserState
from hermes.router.services import Services
from hermes.turn import Platform


class UnknownSender(PortError):
    """Nobody knows the sender; they may sign up."""


class NotActivated(PortError):
    """The sender signed up, and is not activated yet."""


class TooManyMessages(PortError):
    """The sender writes faster than Hermes answers."""

    retry_in = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class ResolvedUser:
    """Somebody who may be answered, and how."""

    user: User
    agent: Agent
    language: str
    tier: str
    """Whose models and tokens: the agent's, where it has a tier of its own."""
    zone: tzinfo = UTC

    def in_timezone(self, timezone: str | None) -> ResolvedUser:
        """The same person, with their own time where it is known."""
        try:
            return self if timezone is None else replace(self, zone=ZoneInfo(timezone))
        except (ValueError, OSError, KeyError):
            return self


async def load_user(claim: Claim, services: Services) -> ResolvedUser:
    """Return who wrote, whatever their state: also somebody who is refused is answered in their language."""
    async with services.transactions.once() as tx:
        user = await services.people.get(tx, claim.user_id)
    if user.state is UserState.DELETED:
        raise UserErased
    agent = services.agent_on(claim.envelope.account)
    language = services.languages.of(user, claim.envelope.event.text)
    return ResolvedUser(user, agent, language, agent.tier or user.tier)


async def resolve_user(claim: Claim, person: ResolvedUser, services: Services) -> ResolvedUser:
    """Let in who is active, and does not write too fast. Raises TooManyMessages, UnknownSender and NotActivated."""
    if claim.recent > services.per_minute and claim.envelope.event.platform is not Platform.REST:  # a program has a limit of its own
        raise TooManyMessages
    if person.user.state is UserState.STRANGER:
        raise UnknownSender
    if person.user.state is UserState.INVITED:
        raise NotActivated
    return person
