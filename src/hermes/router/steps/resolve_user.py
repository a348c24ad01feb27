"""Step 1: find the user who writes and the agent that answers them, and refuse users that Hermes does not answer now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, timedelta, tzinfo
from zoneinfo import ZoneInfo

from hermes.ports.errors import PortError, UserErased
from hermes.ports.inbox import Claim
from hermes.ports.users import Agent, User, UserState
from hermes.router.decisions import language_sample
from hermes.router.services import Services
from hermes.turn import Platform


@dataclass(frozen=True, slots=True)
class ResolvedUser:
    """A user in a turn: their agent, language, tier and time zone."""

    user: User
    agent: Agent
    language: str
    tier: str
    """The tier that decides models and budget: the agent's own, if it has one, else the user's."""
    zone: tzinfo = UTC

    def in_timezone(self, timezone: str | None) -> ResolvedUser:
        """The same user in their own time zone; unchanged for None and for an unknown name."""
        try:
            return self if timezone is None else replace(self, zone=ZoneInfo(timezone))
        except (ValueError, OSError, KeyError):
            return self


class SenderRefused(PortError):
    """Hermes does not answer this user now."""

    def __init__(self, person: ResolvedUser) -> None:
        super().__init__()
        self.person = person
        """The user, for the reply in their language."""


class UnknownSender(SenderRefused):
    """The sender is not signed up."""


class NotActivated(SenderRefused):
    """The sender signed up, and is not activated yet."""


class TooManyMessages(SenderRefused):
    """The sender sent more messages in this conversation within a minute than the setting `inbox.per_minute` allows."""

    retry_in = timedelta(minutes=1)


async def resolve_user(claim: Claim, services: Services) -> ResolvedUser:
    """Return the sender of the claimed message, if they are active and do not write too fast.

    Raises TooManyMessages, UnknownSender and NotActivated, and UserErased for a deleted user."""
    person = await load_user(claim, services)
    # `recent` counts the user's messages of the last minute here. API keys have a limit of their own.
    if claim.recent > services.per_minute and claim.envelope.event.platform is not Platform.REST:
        raise TooManyMessages(person)
    if person.user.state is UserState.STRANGER:
        raise UnknownSender(person)
    if person.user.state is UserState.INVITED:
        raise NotActivated(person)
    return person


async def load_user(claim: Claim, services: Services) -> ResolvedUser:
    """Return the sender of the claimed message, whatever their state. Raises UserErased for a deleted user."""
    if claim.start is not None:
        user = claim.start.user
    else:
        async with services.transactions.once() as tx:
            user = await services.people.get(tx, claim.user_id)
    if user.state is UserState.DELETED:
        raise UserErased
    agent = services.agent_on(claim.envelope.account)
    language = services.languages.of(user, language_sample(claim.envelope))
    return ResolvedUser(user, agent, language, agent.tier or user.tier)
