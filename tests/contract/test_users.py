"""Users: signed up, linked, brought by a friend, activated. Credits come once, and no user loses a channel to another. On both adapters."""

import asyncio
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.ports.credits import Balance, Credits
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.runtime import Transactions
from hermes.ports.users import ChannelBusy, ChannelTaken, LinkResult, NewUser, User, UserChannel, UserDataCounts, Users, UserState
from hermes.router.replies import LANGUAGES
from hermes.router.signup import ReferralRefused, Signup, find_user
from hermes.stores.postgres.credits import PostgresCredits
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.sessions import PostgresSessions
from hermes.stores.postgres.users import PostgresUsers
from hermes.testing.memory import MemoryCredits, MemoryTransactions, MemoryUsers
from hermes.turn import Envelope, MessageEvent, Platform

PHONE = UserChannel("bali", Platform.WHATSAPP, "628123456")
CHAT = UserChannel("bot", Platform.TELEGRAM, "42")
GRANT, REWARD = 100, 20


@dataclass
class House:
    """One adapter of the ports, each call in a transaction of its own."""

    transactions: Transactions
    people: Users
    credits: Credits

    @property
    def signup(self) -> Signup:
        return Signup(people=self.people, credits=self.credits, signup_grant=GRANT, referral_reward=REWARD)

    async def ask(self, method: str, *arguments: Any, **named: Any) -> Any:
        async with self.transactions.begin() as tx:
            return await getattr(self.people, method)(tx, *arguments, **named)

    async def create(self, referred_by: str | None = None, **about: Any) -> User:
        async with self.transactions.begin() as tx:
            return await self.signup.create(tx, NewUser(**about), referred_by=referred_by)

    async def activate(self, user: User, referred_by: str | None = None) -> User:
        async with self.transactions.begin() as tx:
            return await self.signup.activate(tx, user.id, referred_by=referred_by)

    async def find_or_create(self, channel: UserChannel, state: UserState = UserState.STRANGER) -> User:
        user, _ = await self.ask("find_or_create", channel.account, channel.platform, channel.sender_id, state=state)
        return user

    async def find(self, wanted: str) -> User:
        async with self.transactions.begin() as tx:
            return await find_user(tx, self.people, wanted)

    async def credits_of(self, *users: User) -> list[int]:
        async with self.transactions.begin() as tx:
            return [(await self.credits.balance(tx, user.id)).available for user in users]


@pytest.fixture(params=["postgres", "memory"])
def house(request: pytest.FixtureRequest) -> House:
    if request.param == "memory":
        ledger = MemoryCredits()
        return House(MemoryTransactions(), MemoryUsers(ledger), ledger)
    return House(request.getfixturevalue("database"), PostgresUsers(request.getfixturevalue("keyring")), PostgresCredits())


@pytest.fixture
def stored(database: Database, keyring: Keyring) -> House:
    """The real one, where only that can tell."""
    return House(database, PostgresUsers(keyring), PostgresCredits())


# --- sign up


async def test_somebody_signs_up_before_they_have_written_a_word(house: House) -> None:
    before = datetime.now(UTC)
    user = await house.create(tier="pro", language="id")
    assert user == User(
        user.id, UserState.INVITED, "pro", "id", user.referral_code, trains=False, referred_by=None, created_at=user.created_at
    )
    assert user.created_at is not None
    assert abs((user.created_at - before).total_seconds()) < 60
    assert await house.ask("get", user.id) == user
    assert await house.ask("channels", [user.id]) == {}
    assert await house.credits_of(user) == [0], "credits come with activation"


async def test_signing_up_again_with_the_same_id_changes_nothing(house: House) -> None:
    newcomer = NewUser(tier="pro")
    first = await house.ask("create", newcomer)
    assert await house.ask("create", replace(newcomer, tier="free", state=UserState.ACTIVE)) == first
    assert await house.ask("list") == [first]


async def test_nobody_signs_up_as_a_stranger_or_in_a_language_that_is_not_spoken(house: House) -> None:
    with pytest.raises(ValueError, match="a user who signs up is invited or active, not stranger"):
        await house.ask("create", NewUser(state=UserState.STRANGER))
    with pytest.raises(ValueError, match="Hermes does not speak 'tlh'; it speaks en, id, es"):
        await house.ask("create", NewUser(language="tlh"))
    assert await house.ask("list") == []


async def test_tier_and_language_are_changed_and_a_language_can_be_taken_back(house: House) -> None:
    user = await house.create()
    await house.ask("set_tier", user.id, "venue-growth")
    for language in (*LANGUAGES, None):
        await house.ask("set_language", user.id, language)
        assert await house.ask("get", user.id) == replace(user, tier="venue-growth", language=language)
    with pytest.raises(ValueError, match="Hermes does not speak 'pt-BR'"):
        await house.ask("set_language", user.id, "pt-BR")


async def test_what_is_changed_of_nobody_and_of_somebody_who_was_deleted_is_refused(house: House) -> None:
    gone = await house.create()
    await house.ask("forget", gone.id)
    changes: list[tuple[Any, ...]] = [
        ("set_tier", "pro"),
        ("set_language", "en"),
        ("activate",),
        ("link", PHONE),
        ("refer", (await house.create(state=UserState.ACTIVE)).id),
    ]
    for method, *values in changes:
        with pytest.raises(NotFound):
            await house.ask(method, uuid4(), *values)
        with pytest.raises(UserErased):
            await house.ask(method, gone.id, *values)


async def test_users_are_listed_the_newest_first_and_by_state(house: House) -> None:
    stranger = await house.find_or_create(CHAT)
    invited, active, gone = await house.create(), await house.create(state=UserState.ACTIVE), await house.create()
    await house.ask("forget", gone.id)
    listed = [user.id for user in await house.ask("list")]
    assert listed == [active.id, invited.id, stranger.id]
    assert [user.id for user in await house.ask("list", limit=1)] == [active.id]
    assert [user.id for user in await house.ask("list", state=UserState.STRANGER)] == [stranger.id]
    assert [user.id for user in await house.ask("list", state=UserState.DELETED)] == [gone.id]


# --- find


async def test_a_user_is_found_by_what_a_person_would_write(house: House) -> None:
    user = await house.create()
    await house.ask("link", user.id, PHONE)
    text = str(user.id)
    for wanted in (text, text.upper(), text[:4], text[:8], text[:9], text[:20], f" {text[:6]} ", user.referral_code, str(PHONE)):
        assert await house.find(wanted) == user, wanted


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("", "there is no user ''"),
        ("abc", "'abc' is too short; write at least 4 characters of the id"),
        ("abcd", "there is no user abcd"),
        ("nobody", "there is no user 'nobody'; expected an id, its beginning, a referral code, or platform:account/sender"),
        ("abcd-", "there is no user 'abcd-'; expected"),
        ("abcdefab" * 5, "there is no user 'abcdefab"),
        ("a\x00b", r"there is no user 'a\\x00b'"),
        ("\udcff", r"there is no user '\\udcff'"),
        ("whatsapp:bali/1", "no user writes from whatsapp:bali/1"),
        ("pigeon:bali/1", "'pigeon:bali/1' is no channel; expected platform:account/sender, such as telegram:bali/42"),
        ("whatsapp:bali", "'whatsapp:bali' is no channel"),
    ],
)
async def test_nobody_is_found_by_anything_else(house: House, wanted: str, said: str) -> None:
    await house.create()
    with pytest.raises(NotFound, match=f"^{said}"):
        await house.find(wanted)


async def test_a_beginning_that_two_ids_share_means_nobody(house: House) -> None:
    first, second = await house.create(id=UUID(int=0xABCD << 112 | 1)), await house.create(id=UUID(int=0xABCD << 112 | 1 << 100))
    with pytest.raises(NotFound, match=f"^more than one id begins with abcd: {first.id}, {second.id}; write more of it$"):
        await house.find("abcd")
    assert await house.find("abcd0000-0000-0000") == first


# --- link


async def test_a_channel_is_linked_and_its_first_message_is_from_that_user(house: House) -> None:
    user = await house.create(state=UserState.ACTIVE)
    assert await house.ask("find", PHONE) is None
    assert await house.ask("link", user.id, PHONE) == LinkResult(is_new=True)
    assert await house.ask("link", user.id, CHAT) == LinkResult(is_new=True)
    assert await house.ask("link", user.id, PHONE) == LinkResult(is_new=False)
    assert await house.ask("find", PHONE) == user
    assert await house.ask("channels", [user.id]) == {user.id: [PHONE, CHAT]}
    assert await house.find_or_create(PHONE) == user


async def test_a_channel_of_another_user_is_refused_and_stays_theirs(house: House) -> None:
    other, user = await house.find_or_create(PHONE, UserState.ACTIVE), await house.create()
    with pytest.raises(ChannelTaken, match=f"^whatsapp:bali/628123456 is the channel of another user, {other.id}$"):
        await house.ask("link", user.id, PHONE)
    assert await house.ask("find", PHONE) == other
    invited = await house.create()
    await house.ask("link", invited.id, CHAT)
    with pytest.raises(ChannelTaken):
        await house.ask("link", user.id, CHAT)


async def test_a_stranger_on_a_channel_makes_room_and_is_forgotten(house: House) -> None:
    stranger, user = await house.find_or_create(PHONE), await house.create(state=UserState.ACTIVE)
    assert await house.ask("link", user.id, PHONE) == LinkResult(is_new=True, replaced=stranger.id)
    assert (await house.ask("get", stranger.id)).state is UserState.DELETED
    assert await house.find_or_create(PHONE) == user
    assert await house.ask("link", user.id, PHONE) == LinkResult(is_new=False)


async def test_a_stranger_who_was_ever_given_credits_makes_no_room(house: House) -> None:
    stranger, user = await house.find_or_create(PHONE), await house.create()
    async with house.transactions.begin() as tx:
        await house.credits.grant(tx, stranger.id, 5, "apology:1")
    with pytest.raises(ChannelTaken, match=f"a stranger who has an account of credits; activate that stranger, {stranger.id}$"):
        await house.ask("link", user.id, PHONE)
    assert await house.find_or_create(PHONE) == stranger
    assert (await house.activate(stranger)).state is UserState.ACTIVE
    assert await house.credits_of(stranger) == [5 + GRANT]


async def test_a_stranger_with_another_channel_keeps_that_one(house: House) -> None:
    stranger, user = await house.find_or_create(PHONE), await house.create()
    await house.ask("link", stranger.id, CHAT)
    assert await house.ask("link", user.id, PHONE) == LinkResult(is_new=True)
    assert await house.ask("channels", [user.id, stranger.id]) == {user.id: [PHONE], stranger.id: [CHAT]}
    assert (await house.ask("get", stranger.id)).state is UserState.STRANGER


def envelope(channel: UserChannel, text: str = "hello") -> Envelope:
    event = MessageEvent(platform=channel.platform, sender_id=channel.sender_id, text=text)
    return Envelope(event=event, account=channel.account, channel_id=channel.sender_id, event_key=secrets.token_hex(8))


async def test_a_message_that_waits_is_not_lost_to_a_link(stored: House, keyring: Keyring) -> None:
    stranger, user, inbox = await stored.find_or_create(PHONE), await stored.create(), PostgresInbox(keyring)
    async with stored.transactions.begin() as tx:
        receipt = await inbox.accept(tx, envelope(PHONE), uuid4())
        assert receipt is not None
    with pytest.raises(
        ChannelBusy, match=r"^a message from whatsapp:bali/628123456 waits for its answer; link the channel after the answer$"
    ):
        await stored.ask("link", user.id, PHONE)
    assert await stored.find_or_create(PHONE) == stranger
    async with stored.transactions.begin() as tx:
        claim: Any = await inbox.claim(tx, receipt.turn_id)
        await inbox.finish(tx, claim)
    assert await stored.ask("link", user.id, PHONE) == LinkResult(is_new=True, replaced=stranger.id)


async def test_after_a_link_the_conversation_begins_anew_under_the_users_own_key(stored: House, keyring: Keyring) -> None:
    stranger, user, inbox = await stored.find_or_create(PHONE), await stored.create(state=UserState.ACTIVE), PostgresInbox(keyring)
    async with stored.transactions.begin() as tx:
        first = await inbox.accept(tx, envelope(PHONE, "let me in"), uuid4())
        assert first is not None
        claim: Any = await inbox.claim(tx, first.turn_id)
        await PostgresSessions(keyring).current(tx, first.conversation_id, stranger.id)
        await inbox.finish(tx, claim)
    await stored.ask("link", user.id, PHONE)
    async with stored.transactions.begin() as tx:
        second = await inbox.accept(tx, envelope(PHONE, "thank you"), uuid4())
        assert second is not None
        session = await PostgresSessions(keyring).current(tx, second.conversation_id, user.id)
    assert (second.conversation_id == first.conversation_id, second.seq, session.user_id, session.previous) == (False, 1, user.id, None)


async def test_a_first_message_and_a_link_at_once_make_one_owner(stored: House) -> None:
    for number in range(10):
        channel, user = replace(PHONE, sender_id=f"{number}"), await stored.create(state=UserState.ACTIVE)
        met, linked = await asyncio.gather(stored.find_or_create(channel), stored.ask("link", user.id, channel))
        owner = await stored.ask("find", channel)
        assert owner == user
        assert linked.replaced in (None, met.id)
        assert met == user or linked.replaced == met.id


async def test_of_two_links_of_one_channel_one_is_refused(stored: House) -> None:
    one, other = await stored.create(), await stored.create()
    done = await asyncio.gather(*(stored.ask("link", user.id, PHONE) for user in (one, other)), return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["ChannelTaken", "LinkResult"]


async def test_a_linked_channel_has_not_been_written_from_until_a_message_comes(stored: House) -> None:
    user = await stored.create()
    await stored.ask("link", user.id, PHONE)

    async def last() -> Any:
        async with stored.transactions.begin() as tx:
            [[at]] = await (await connection_of(tx).execute("select last_inbound_at from user_channels")).fetchall()
            return at

    assert await last() is None
    await stored.ask("find", PHONE)
    assert await last() is None
    await stored.find_or_create(PHONE)
    assert await last() is not None


# --- activation, and what it gives


async def test_activation_gives_the_signup_grant_once(house: House) -> None:
    stranger, invited = await house.find_or_create(CHAT), await house.create()
    for user in (stranger, invited):
        for _ in range(2):
            assert (await house.activate(user)).state is UserState.ACTIVE
    assert await house.credits_of(stranger, invited) == [GRANT, GRANT]
    active = await house.create(state=UserState.ACTIVE)
    await house.activate(active)
    assert await house.credits_of(active) == [GRANT]


async def test_somebody_who_was_active_before_is_given_nothing_by_activating_them(house: House) -> None:
    guest = await house.find_or_create(CHAT, UserState.ACTIVE)  # as chat completions create their users: without a grant
    await house.activate(guest)
    assert await house.credits_of(guest) == [0]


async def test_ten_activations_at_once_give_once(stored: House) -> None:
    friend = await stored.create(state=UserState.ACTIVE)
    user = await stored.create(referred_by=friend.referral_code)
    await asyncio.gather(*(stored.activate(user) for _ in range(10)))
    assert await stored.credits_of(user, friend) == [GRANT + REWARD, GRANT + REWARD]
    async with stored.transactions.begin() as tx:
        assert await stored.credits.audit(tx) == []


# --- referrals


async def test_a_friend_who_brings_somebody_and_who_is_brought_get_the_reward_once(house: House) -> None:
    friend = await house.create(state=UserState.ACTIVE)
    invited = await house.create(referred_by=friend.referral_code)
    assert (invited.state, invited.referred_by) == (UserState.INVITED, friend.id)
    assert await house.credits_of(friend, invited) == [GRANT, 0], "the reward comes when they join"
    await house.activate(invited)
    await house.activate(invited, referred_by=friend.referral_code)
    assert await house.credits_of(friend, invited) == [GRANT + REWARD, GRANT + REWARD]
    at_once = await house.create(state=UserState.ACTIVE, referred_by=friend.referral_code)
    assert await house.credits_of(friend, at_once) == [GRANT + 2 * REWARD, GRANT + REWARD]
    stranger = await house.find_or_create(CHAT)
    await house.activate(stranger, referred_by=friend.referral_code)
    assert await house.credits_of(friend, stranger) == [GRANT + 3 * REWARD, GRANT + REWARD]


async def test_a_referral_that_counts_for_nothing_is_refused_and_nothing_happens(house: House) -> None:
    friend, other = await house.create(state=UserState.ACTIVE), await house.create(state=UserState.ACTIVE)
    invited, brought = await house.create(), await house.create(referred_by=other.referral_code)
    cases = [
        (invited, invited.referral_code, f"{invited.referral_code} is their own referral code; users cannot refer themselves"),
        (friend, friend.referral_code, f"{friend.referral_code} is their own referral code; users cannot refer themselves"),
        (friend, other.referral_code, f"{friend.id} is active already; only a user who is not active yet can be referred"),
        (brought, friend.referral_code, f"{brought.id} was referred by {other.id} already"),
        (invited, brought.referral_code, f"the owner of {brought.referral_code} is invited; only an active user can refer others"),
    ]
    for user, code, said in cases:
        with pytest.raises(ReferralRefused, match=f"^{said}$"):
            await house.activate(user, referred_by=code)
    for code in ("nobody", "", f"deleted/{uuid4()}", "\udcff", "a\x00b"):
        with pytest.raises(NotFound, match=r"^there is no referral code"):
            await house.activate(invited, referred_by=code)
    assert await house.ask("get", invited.id) == invited
    assert await house.credits_of(friend, other, invited, brought) == [GRANT, GRANT, 0, 0]


async def test_who_was_deleted_brings_nobody(house: House) -> None:
    friend = await house.create(state=UserState.ACTIVE)
    invited = await house.create(referred_by=friend.referral_code)
    await house.ask("forget", friend.id)
    user = await house.activate(invited)
    assert (user.referred_by, await house.credits_of(user, friend)) == (None, [GRANT, GRANT])
    with pytest.raises(NotFound):
        await house.create(referred_by=friend.referral_code)
    with pytest.raises(ReferralRefused, match=r"is deleted; only an active user can refer others$"):
        await house.create(referred_by=(await house.ask("get", friend.id)).referral_code)


async def test_without_a_grant_or_reward_nothing_is_given(stored: House) -> None:
    signup = Signup(people=stored.people, credits=stored.credits, signup_grant=0, referral_reward=0)
    async with stored.transactions.begin() as tx:
        friend = await signup.create(tx, NewUser(state=UserState.ACTIVE))
        user = await signup.create(tx, NewUser(state=UserState.ACTIVE), referred_by=friend.referral_code)
    assert await stored.credits_of(friend, user) == [0, 0]


async def test_friends_who_bring_others_at_once_do_not_wait_for_each_other(stored: House) -> None:
    """Credits of two users in one transaction are changed in the order of their ids, or some of these would be victims of a deadlock."""
    friends = [await stored.create(state=UserState.ACTIVE) for _ in range(2)]
    invited = [await stored.create(referred_by=friends[number % 2].referral_code) for number in range(16)]
    await asyncio.gather(*(stored.activate(user) for user in invited))
    assert await stored.credits_of(*friends, *invited) == [GRANT + 8 * REWARD] * 2 + [GRANT + REWARD] * 16
    async with stored.transactions.begin() as tx:
        assert (await stored.credits.audit(tx), await stored.credits.balance(tx, invited[0].id)) == ([], Balance(GRANT + REWARD, 0))


async def test_of_somebody_who_only_signed_up_nothing_is_kept(house: House) -> None:
    assert await house.ask("count_data", (await house.create()).id) == UserDataCounts()


# --- two ids of one sender


async def test_who_is_known_by_one_of_two_ids_is_known_by_both(house: House) -> None:
    user_id = replace(PHONE, sender_id="ID.99")
    for first, second in ((PHONE, user_id), (replace(user_id, account="java"), replace(PHONE, account="java"))):
        somebody = await house.find_or_create(first)
        known, is_new = await house.ask(
            "find_or_create", second.account, second.platform, second.sender_id, state=UserState.STRANGER, alias=first.sender_id
        )
        assert (known, is_new) == (somebody, False)
        assert await house.find_or_create(second) == somebody
        assert await house.find_or_create(first) == somebody


async def test_a_newcomer_with_two_ids_is_one_person(house: House) -> None:
    met, is_new = await house.ask("find_or_create", PHONE.account, PHONE.platform, PHONE.sender_id, state=UserState.STRANGER, alias="ID.99")
    assert is_new
    assert await house.find_or_create(replace(PHONE, sender_id="ID.99")) == met


async def test_two_users_stay_two_when_their_ids_turn_out_to_be_one_persons(house: House) -> None:
    number, name = await house.find_or_create(PHONE), await house.find_or_create(replace(PHONE, sender_id="ID.99"))
    met, is_new = await house.ask("find_or_create", PHONE.account, PHONE.platform, PHONE.sender_id, state=UserState.STRANGER, alias="ID.99")
    assert (met, is_new) == (number, False)
    assert await house.find_or_create(replace(PHONE, sender_id="ID.99")) == name
