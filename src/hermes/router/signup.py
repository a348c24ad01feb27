"""How a person becomes a user: signed up, referred by a friend, activated, and given the credits that go with it.

    stranger ──┐                            wrote to us; Hermes tells them how to sign up
               ├──▶ active                  Hermes answers
    invited  ──┘                            signed up; Hermes tells them how to activate

A user gets the signup credits once, when they are activated: by their first message, if an API key or the operator's own page vouches for
them, or by an operator at the command line. Everything here runs in one transaction, which the caller opens."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from uuid import UUID

from hermes.ports.credits import Credits
from hermes.ports.errors import NotFound, PortError
from hermes.ports.runtime import Transaction
from hermes.ports.users import NewUser, User, UserChannel, Users, UserState
from hermes.router.replies import LANGUAGES
from hermes.turn import Platform

MIN_ID_CHARS = 4
"""Characters of an id that an operator must write; fewer are likely a typing error."""
HEX_DIGITS = re.compile(r"[0-9a-f]{1,32}")
PRINTABLE_TEXT = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")
"""Text that can be stored and shown as a name: no control characters, no surrogates."""


class ReferralRefused(PortError):
    """This referral does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signup:
    """Signs people up and activates them."""

    people: Users
    credits: Credits
    signup_grant: int
    """Credits that a new user starts with."""
    referral_reward: int
    """Credits for a user that a friend referred, and as many for the friend."""

    async def create(self, tx: Transaction, newcomer: NewUser, *, referred_by: str | None = None) -> User:
        """Sign a user up, and activate them if `newcomer` says so. `referred_by` is the referral code of a friend.

        Raises ReferralRefused and NotFound as `activate` does, and ValueError as Users.create does."""
        is_active = newcomer.state is UserState.ACTIVE
        user = await self.people.create(tx, replace(newcomer, state=UserState.INVITED) if is_active else newcomer)
        if referred_by is not None:
            await self._refer(tx, user, referred_by)
        return await (self.activate(tx, user.id) if is_active else self.people.get(tx, user.id))

    async def activate(self, tx: Transaction, user_id: UUID, *, referred_by: str | None = None) -> User:
        """Activate a user and grant their signup credits. If a friend referred them, both get the reward. Does nothing for an active user.

        Raises NotFound for an unknown user or code, ReferralRefused, and UserErased for a deleted user."""
        if referred_by is not None:
            await self._refer(tx, await self.people.get(tx, user_id), referred_by)
        is_new = await self.people.activate(tx, user_id)
        user = await self.people.get(tx, user_id)
        if is_new:
            await self._welcome(tx, user)
        return user

    async def _refer(self, tx: Transaction, user: User, code: str) -> None:
        """Store the user's referrer. Raises NotFound for an unknown code, and ReferralRefused with the reason."""
        referrer = await self.people.by_code(tx, code) if PRINTABLE_TEXT.fullmatch(code) else None
        if referrer is None:
            raise NotFound(f"there is no referral code {code!r}")
        if await self.people.refer(tx, user.id, referrer.id):
            return
        now = await self.people.get(tx, user.id)
        if now.referred_by == referrer.id:
            return
        if referrer.id == user.id:
            raise ReferralRefused(f"{code} is their own referral code; users cannot refer themselves")
        if now.state is UserState.ACTIVE:
            raise ReferralRefused(f"{user.id} is active already; only a user who is not active yet can be referred")
        if now.referred_by is not None:
            raise ReferralRefused(f"{user.id} was referred by {now.referred_by} already")
        raise ReferralRefused(f"the owner of {code} is {referrer.state}; only an active user can refer others")

    async def _welcome(self, tx: Transaction, user: User) -> None:
        grants = [(user.id, self.signup_grant, signup_event(user.id))]
        if user.referred_by is not None:
            grants.append((user.id, self.referral_reward, f"referred:{user.id}"))
            grants.append((user.referred_by, self.referral_reward, f"referral:{user.id}"))
        # By id, as every transaction that changes the credits of two users: so no two of them wait for each other.
        for receiver, amount, event in sorted(grants):
            if amount:
                await self.credits.grant(tx, receiver, amount, event)


def signup_event(user_id: UUID) -> str:
    """The event that grants a user their signup credits. It is the same however they are activated, so that it grants once."""
    return f"signup:{user_id}"


def check_language(language: str | None) -> str | None:
    """Return the language; None for None. Raises ValueError for a language that Hermes does not speak."""
    if language is not None and language not in LANGUAGES:
        raise ValueError(f"Hermes does not speak {language!r}; it speaks {', '.join(LANGUAGES)}")
    return language


async def find_user(tx: Transaction, people: Users, name: str) -> User:
    """Return the user that an operator names: by id, its beginning, a referral code, or a channel (`whatsapp:bali/628123456`).

    Raises NotFound if no user fits, or more than one."""
    text = name.strip()
    if not PRINTABLE_TEXT.fullmatch(text):
        raise NotFound(f"there is no user {name!r}")
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
    """The first and the last id with this beginning. Raises NotFound if no id can begin so, and if it is shorter than MIN_ID_CHARS."""
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
        raise NotFound(f"no user writes from {text}")
    return user
