"""How somebody becomes a user: signed up, brought by a friend, activated, and given the credits that go with it.

    stranger ──┐                            wrote to us; is told to sign up
               ├──▶ active                  is answered
    invited  ──┘                            signed up; is told to activate

Credits come with activation and once in a life, whoever activates: the sender of a first message that somebody vouches for (an API key,
the operator's own page), or a person at the command line. Everything here belongs into one transaction, which is the caller's."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from uuid import UUID

from hermes.ports.credits import Credits
from hermes.ports.errors import NotFound, PortError
from hermes.ports.transactions import Transaction
from hermes.ports.users import NewUser, User, UserChannel, Users, UserState
from hermes.router.replies import LANGUAGES
from hermes.turn import Platform

MIN_ID_CHARS = 4
"""Characters of an id that a person must write; fewer are a slip of the finger."""
HEX_DIGITS = re.compile(r"[0-9a-f]{1,32}")
PRINTABLE_TEXT = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")
"""What can be stored and shown as a name: no control characters, no halves of a character."""


class ReferralRefused(PortError):
    """This referral counts for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signup:
    """Signs people up and activates them."""

    people: Users
    credits: Credits
    signup_grant: int
    """Credits that a new user starts with."""
    referral_reward: int
    """Credits for whoever is brought by a friend, and as many for the friend."""

    async def create(self, tx: Transaction, newcomer: NewUser, *, referred_by: str | None = None) -> User:
        """Sign somebody up; one who is to be active is activated too. `referred_by` is the referral code of a friend.

        Raises ReferralRefused and NotThere as `activate` does, and ValueError as People.create does."""
        is_active = newcomer.state is UserState.ACTIVE
        user = await self.people.create(tx, replace(newcomer, state=UserState.INVITED) if is_active else newcomer)
        if referred_by is not None:
            await self._refer(tx, user, referred_by)
        return await (self.activate(tx, user.id) if is_active else self.people.get(tx, user.id))

    async def activate(self, tx: Transaction, user_id: UUID, *, referred_by: str | None = None) -> User:
        """Let somebody in, with their signup grant; one who was brought by a friend brings both the reward. No change for an active user.

        Raises NotThere for an unknown user or code, ReferralRefused, and Forgotten for a deleted user."""
        if referred_by is not None:
            await self._refer(tx, await self.people.get(tx, user_id), referred_by)
        is_new = await self.people.activate(tx, user_id)
        user = await self.people.get(tx, user_id)
        if is_new:
            await self._welcome(tx, user)
        return user

    async def _refer(self, tx: Transaction, user: User, code: str) -> None:
        """Note who brought a newcomer. Raises ReferralRefused with the reason."""
        referrer = await self.people.by_code(tx, code) if PRINTABLE_TEXT.fullmatch(code) else None
        if referrer is None:
            raise NotFound(f"there is no referral code {code!r}")
        if await self.people.refer(tx, user.id, referrer.id):
            return
        now = await self.people.get(tx, user.id)
        if now.referred_by == referrer.id:
            return
        if referrer.id == user.id:
            raise ReferralRefused(f"{code} is their own code; nobody brings themselves")
        if now.state is UserState.ACTIVE:
            raise ReferralRefused(f"{user.id} is active already; only a newcomer is brought by somebody")
        if now.referred_by is not None:
            raise ReferralRefused(f"{user.id} was brought by {now.referred_by} already")
        raise ReferralRefused(f"the owner of {code} is {referrer.state}; only who is active brings others")

    async def _welcome(self, tx: Transaction, user: User) -> None:
        grants = [(user.id, self.signup_grant, signup_event(user.id))]
        if user.referred_by is not None:
            grants.append((user.id, self.referral_reward, f"referred:{user.id}"))
            grants.append((user.referred_by, self.referral_reward, f"referral:{user.id}"))
        # By id, as everybody who changes the credits of two users.
        for receiver, amount, event in sorted(grants):
            if amount:
                await self.credits.grant(tx, receiver, amount, event)


def signup_event(user_id: UUID) -> str:
    """The event that gives a user what they start with. The same wherever they come from, so that it gives once."""
    return f"signup:{user_id}"


def check_language(language: str | None) -> str | None:
    """Return a language that Hermes speaks, or None for none; ValueError for another one."""
    if language is not None and language not in LANGUAGES:
        raise ValueError(f"Hermes does not speak {language!r}; it speaks {', '.join(LANGUAGES)}")
    return language


async def find_user(tx: Transaction, people: Users, wanted: str) -> User:
    """Return the user whom a person means: an id, its beginning, a referral code, or a channel (`whatsapp:bali/628123456`).

    Raises NotThere when nobody or more than one is meant."""
    text = wanted.strip()
    if not PRINTABLE_TEXT.fullmatch(text):
        raise NotFound(f"there is no user {wanted!r}")
    if ":" in text:
        return await find_user_on_channel(tx, people, text)
    if (user := await people.by_code(tx, text)) is not None:
        return user
    first, last = id_range(text.lower())
    found = await people.between(tx, first, last)
    if not found:
        raise NotFound(f"there is no user {text}")
    if len(found) > 1:
        raise NotFound(f"more than one id begins with {text}: {', '.join(str(user.id) for user in found)}; write more of it")
    return found[0]


def id_range(beginning: str) -> tuple[UUID, UUID]:
    """The first and the last id that begin so. Raises NotThere for what no id begins with, and for what is too short to mean anybody."""
    bare = beginning.replace("-", "")
    if not HEX_DIGITS.fullmatch(bare) or not str(UUID(bare.ljust(32, "0"))).startswith(beginning):
        raise NotFound(f"there is no user {beginning!r}; expected an id, its beginning, a referral code, or platform:account/sender")
    if len(bare) < MIN_ID_CHARS:
        raise NotFound(f"{beginning!r} is too short; write at least {MIN_ID_CHARS} characters of the id")
    return UUID(bare.ljust(32, "0")), UUID(bare.ljust(32, "f"))


async def find_user_on_channel(tx: Transaction, people: Users, text: str) -> User:
    platform, _, address = text.partition(":")
    account, slash, sender_id = address.partition("/")
    if platform not in set(Platform) or not slash:
        raise NotFound(f"{text!r} is no channel; expected platform:account/sender, such as telegram:bali/42")
    user = await people.find(tx, UserChannel(account, Platform(platform), sender_id))
    if user is None:
        raise NotFound(f"nobody writes from {text}")
    return user
