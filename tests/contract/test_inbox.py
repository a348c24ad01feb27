"""The inbox: each message once, numbered, claimed by one, fenced off from those who come too late. On both adapters."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from hermes.ports.errors import ClaimLost, InboxFull
from hermes.ports.inbox import AcceptedMessage, Claim, Inbox, InboxMessage, TurnOrigin, UnreadableMessage
from hermes.ports.key_use import KeyForbids
from hermes.ports.runtime import Transactions
from hermes.ports.users import Users, UserState
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.inbox import PostgresInbox, decode_envelope, encode_envelope
from hermes.stores.postgres.job_queue import open_job_queue
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.testing.memory import MemoryInbox, MemoryUsers
from hermes.turn import Envelope, MessageEvent, Platform
from tests.contract.turns import on_postgres
from tests.statements import logged_statements

ASKED = Envelope(
    event=MessageEvent(
        platform=Platform.TELEGRAM, sender_id="77", text="A sunset bar in Canggu? 🌅", media_url="file:1", media_type="image/png"
    ),
    account="bali-bot",
    channel_id="-100",
    event_key="update:1",
    sent_at=datetime(2026, 11, 15, 6, 0, tzinfo=UTC),
    thread="5",
    attachments=("file:2", "file:3"),
)
CAP = 7


@pytest.fixture
def inbox(people: Users, keyring: Keyring) -> Inbox:
    return MemoryInbox(people=people, cap=CAP) if isinstance(people, MemoryUsers) else PostgresInbox(keyring, cap=CAP)


async def accept(
    transactions: Transactions,
    people: Users,
    inbox: Inbox,
    envelope: Envelope,
    turn_id: UUID | None = None,
    *,
    traceparent: str | None = None,
) -> AcceptedMessage:
    async with transactions.begin() as tx:
        await people.find_or_create(tx, envelope.account, envelope.event.platform, envelope.event.sender_id, state=UserState.ACTIVE)
        accepted = await inbox.accept(tx, envelope, turn_id or uuid4(), traceparent=traceparent)
    assert accepted is not None
    return accepted


async def claim(transactions: Transactions, inbox: Inbox, turn_id: UUID) -> Claim | None:
    async with transactions.begin() as tx:
        claimed = await inbox.claim(tx, turn_id)
    assert not isinstance(claimed, UnreadableMessage)
    return claimed


async def claim_unreadable(transactions: Transactions, inbox: Inbox, turn_id: UUID) -> UnreadableMessage:
    async with transactions.begin() as tx:
        claimed = await inbox.claim(tx, turn_id)
    assert isinstance(claimed, UnreadableMessage)
    return claimed


async def test_what_is_accepted_comes_back_whole(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    receipt = await accept(transactions, people, inbox, ASKED)
    claimed = await claim(transactions, inbox, receipt.turn_id)
    assert claimed is not None
    assert claimed.envelope == ASKED
    assert (claimed.turn_id, claimed.conversation_id, claimed.seq, claimed.epoch, claimed.attempt) == (
        receipt.turn_id,
        receipt.conversation_id,
        1,
        1,
        1,
    )
    assert 0 <= claimed.age_s < 60


async def test_the_trace_of_the_accept_is_kept_with_the_message(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    traces = [f"00-{number:032x}-{number:016x}-01" for number in (1, 2)]
    first = await accept(transactions, people, inbox, ASKED, traceparent=traces[0])
    await accept(transactions, people, inbox, ASKED, traceparent=traces[1])  # the platform sends it again: its own trace leads nowhere
    second = await accept(transactions, people, inbox, replace(ASKED, event_key="update:2"), traceparent=traces[1])
    untraced = await accept(transactions, people, inbox, replace(ASKED, event_key="update:3"))
    claimed = await claim(transactions, inbox, first.turn_id)
    assert claimed is not None
    async with transactions.begin() as tx:
        behind = await inbox.waiting_behind(tx, claimed, 10)
        found = [await inbox.message_of(tx, each.turn_id) for each in (first, second, untraced)]
    assert claimed.traceparent == traces[0]
    assert [message.traceparent for message in behind] == [traces[1], None]
    assert [message and message.traceparent for message in found] == [*traces, None]


async def test_a_duplicate_stores_nothing_and_returns_the_first_receipt(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    first = await accept(transactions, people, inbox, ASKED)
    again = await accept(transactions, people, inbox, replace(ASKED, thread="other"))
    assert again == replace(first, is_new=False)
    async with transactions.begin() as tx:
        assert await inbox.waiting(tx) == 1


@on_postgres
async def test_the_same_key_at_once_is_stored_once(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    receipts = await asyncio.gather(*(accept(transactions, people, inbox, ASKED) for _ in range(12)))
    assert sum(receipt.is_new for receipt in receipts) == 1
    assert len({receipt.turn_id for receipt in receipts}) == 1


async def test_the_same_key_of_another_account_is_another_message(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    first = await accept(transactions, people, inbox, ASKED)
    other = await accept(transactions, people, inbox, replace(ASKED, account="lombok-bot"))
    assert other.is_new
    assert other.conversation_id != first.conversation_id


@on_postgres
async def test_messages_of_a_conversation_are_numbered_without_gaps_or_twins(
    transactions: Transactions, people: Users, keyring: Keyring
) -> None:
    roomy = PostgresInbox(keyring, cap=1000)
    receipts = await asyncio.gather(*(accept(transactions, people, roomy, replace(ASKED, event_key=f"k{n}")) for n in range(30)))
    assert sorted(receipt.seq for receipt in receipts) == list(range(1, 31))


async def test_over_the_cap_nothing_is_accepted_and_another_account_is_not_hurt(
    transactions: Transactions, people: Users, inbox: Inbox
) -> None:
    for n in range(CAP):
        await accept(transactions, people, inbox, replace(ASKED, event_key=f"k{n}"))
    with pytest.raises(InboxFull):
        await accept(transactions, people, inbox, replace(ASKED, event_key="one more"))
    assert (await accept(transactions, people, inbox, replace(ASKED, event_key="k4"))).is_new is False, "a duplicate is still found"
    assert (await accept(transactions, people, inbox, replace(ASKED, account="lombok-bot"))).is_new
    async with transactions.begin() as tx:
        assert await inbox.waiting(tx) == CAP + 1


async def test_an_attempt_is_counted_before_it_is_made(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    receipt = await accept(transactions, people, inbox, ASKED)
    attempts = [await claim(transactions, inbox, receipt.turn_id) for _ in range(3)]
    assert [(each.attempt, each.epoch) for each in attempts if each] == [(1, 1), (2, 2), (3, 3)]


@on_postgres
async def test_a_newer_claim_of_the_conversation_fences_the_older(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    one = await accept(transactions, people, inbox, ASKED)
    two = await accept(transactions, people, inbox, replace(ASKED, event_key="update:2"))
    older, newer = await claim(transactions, inbox, one.turn_id), await claim(transactions, inbox, two.turn_id)
    assert older is not None
    assert newer is not None

    async def come_too_late() -> None:
        async with transactions.begin() as tx:
            await inbox.finish(tx, older)
            await inbox.hold(tx, older)

    with pytest.raises(ClaimLost):
        await come_too_late()
    async with transactions.begin() as tx:
        await inbox.hold(tx, newer)
        assert await inbox.waiting(tx) == 2, "what the fenced one did was rolled back"


async def test_a_turn_that_ended_is_not_claimed_again_and_fences_nobody(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    one = await accept(transactions, people, inbox, ASKED)
    two = await accept(transactions, people, inbox, replace(ASKED, event_key="update:2"))
    done = await claim(transactions, inbox, one.turn_id)
    assert done is not None
    async with transactions.begin() as tx:
        await inbox.hold(tx, done)
        await inbox.finish(tx, done)
    running = await claim(transactions, inbox, two.turn_id)
    assert running is not None
    assert await claim(transactions, inbox, one.turn_id) is None
    async with transactions.begin() as tx:
        await inbox.hold(tx, running)


async def test_a_buried_message_keeps_its_reason_and_is_not_claimed(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    receipt = await accept(transactions, people, inbox, ASKED)
    claimed = await claim(transactions, inbox, receipt.turn_id)
    assert claimed is not None
    async with transactions.begin() as tx:
        await inbox.bury(tx, claimed, "gave up")
    assert await claim(transactions, inbox, receipt.turn_id) is None
    if isinstance(inbox, MemoryInbox):
        assert inbox.buried == {receipt.turn_id: "gave up"}
        return
    async with transactions.begin() as tx:
        found = await (await connection_of(tx).execute("select state, reason from inbox")).fetchall()
    assert found == [("dead", "gave up")]


async def test_a_message_of_a_deleted_sender_cannot_be_read(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    receipt = await accept(transactions, people, inbox, ASKED)
    async with transactions.begin() as tx:
        sender, _ = await people.find_or_create(tx, ASKED.account, Platform.TELEGRAM, "77", state=UserState.STRANGER)
        await people.forget(tx, sender.id)
    unread = await claim_unreadable(transactions, inbox, receipt.turn_id)
    assert (unread.attempt, unread.is_erased, unread.is_damaged) == (1, True, False)
    async with transactions.begin() as tx:
        await inbox.bury_unread(tx, receipt.turn_id, "its sender was deleted")
    assert await claim(transactions, inbox, receipt.turn_id) is None


@on_postgres
async def test_a_damaged_message_is_counted_each_time_it_is_tried(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    receipt = await accept(transactions, people, inbox, ASKED)
    async with transactions.begin() as tx:
        await connection_of(tx).execute("update inbox set envelope = set_byte(envelope, 20, 255 - get_byte(envelope, 20))")
    tries = [await claim_unreadable(transactions, inbox, receipt.turn_id) for _ in range(2)]
    assert [(each.attempt, each.is_erased, each.is_damaged) for each in tries] == [(1, False, True), (2, False, True)]


@on_postgres
async def test_a_missing_master_key_is_no_damage(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    receipt = await accept(transactions, people, inbox, ASKED)
    stranger = PostgresInbox(Keyring(MasterKeys.parse([new_master_key()])))
    unread = await claim_unreadable(transactions, stranger, receipt.turn_id)
    assert (unread.is_erased, unread.is_damaged) == (False, False)


async def test_an_attempt_is_excused_only_while_its_claim_stands(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    receipt = await accept(transactions, people, inbox, ASKED)
    older, newer = await claim(transactions, inbox, receipt.turn_id), await claim(transactions, inbox, receipt.turn_id)
    assert older is not None
    assert newer is not None
    async with transactions.begin() as tx:
        await inbox.uncount_attempt(tx, older)
        await inbox.uncount_attempt(tx, newer)
    again = await claim(transactions, inbox, receipt.turn_id)
    assert again is not None
    assert again.attempt == 2


async def test_where_a_turn_came_from_is_known_to_those_who_ask_for_it(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    receipt = await accept(transactions, people, inbox, ASKED)
    async with transactions.begin() as tx:
        assert await inbox.origin(tx, receipt.turn_id) == TurnOrigin(
            *("bali-bot", Platform.TELEGRAM, "-100"), has_ended=False, user_names=("77",), is_person=True
        )
        assert await inbox.origin(tx, uuid4()) is None
        await inbox.bury_unread(tx, receipt.turn_id, "x")
        assert await inbox.origin(tx, receipt.turn_id) == TurnOrigin(
            *("bali-bot", Platform.TELEGRAM, "-100"), has_ended=True, user_names=("77",), is_person=True
        )
        message = await inbox.message_of(tx, receipt.turn_id)
        assert message is not None
        await people.forget(tx, message.user_id)
        erased = await inbox.origin(tx, receipt.turn_id)
        assert erased is not None
        assert erased.is_sender_erased


async def test_a_private_conversation_of_the_api_belongs_to_its_user_whatever_others_call_their_channels(
    transactions: Transactions, people: Users, inbox: Inbox
) -> None:
    places = dict[UUID, tuple[str, bool]]()

    async def write(user: str, channel: str | None) -> tuple[UUID, str, bool]:
        event = MessageEvent(platform=Platform.REST, sender_id=user, text="hi")
        about = {"account": "shop", "channel_id": channel or user, "event_key": str(uuid4()), "is_own": channel is None}
        receipt = await accept(transactions, people, inbox, Envelope(event=event, **about))
        async with transactions.begin() as tx:
            message = await inbox.message_of(tx, receipt.turn_id)
        assert message is not None
        places[receipt.conversation_id] = (message.envelope.channel_id, message.envelope.is_shared)
        return receipt.conversation_id, *places[receipt.conversation_id]

    ann, *_ = await write("ann", None)
    assert await write("bob", "ann") != (ann, "ann", True)
    room, *_ = await write("cid", "ann")
    assert await write("ann", "ann") == (ann, "ann", False)
    # A channel that others opened under the name of a user who came later.
    shop, *_ = await write("bob", "dan")
    assert await write("dan", "dan") == (shop, "dan", True)
    dan, *_ = await write("dan", None)
    assert places == {ann: ("ann", False), room: ("channel:ann", True), shop: ("dan", True), dan: ("user:dan", False)}
    async with transactions.begin() as tx:
        found = [
            await inbox.find_channel(tx, "shop", Platform.REST, user, channel)
            for user, channel in (("ann", None), ("ann", "ann"), ("bob", "ann"), ("dan", None), ("dan", "dan"), ("eve", None), ("eve", "x"))
        ]
    assert found == ["ann", "ann", "channel:ann", "user:dan", "dan", None, None]


async def test_what_was_said_can_be_read_after_the_turn_whatever_became_of_it(
    transactions: Transactions, people: Users, inbox: Inbox
) -> None:
    receipt = await accept(transactions, people, inbox, ASKED)
    async with transactions.begin() as tx:
        user, _ = await people.find_or_create(tx, ASKED.account, Platform.TELEGRAM, "77", state=UserState.STRANGER)
        await inbox.bury_unread(tx, receipt.turn_id, "x")
        said = await inbox.message_of(tx, receipt.turn_id)
        assert said is not None
        assert said == InboxMessage(receipt.turn_id, receipt.conversation_id, user.id, ASKED, said.received_at)
        assert await inbox.message_of(tx, uuid4()) is None


@pytest.mark.parametrize(("adapter", "fate"), [("postgres", "deleted"), ("memory", "deleted"), ("postgres", "damaged")])
async def test_what_nobody_can_read_any_more_was_not_said(transactions: Transactions, people: Users, inbox: Inbox, fate: str) -> None:
    receipt = await accept(transactions, people, inbox, ASKED)
    async with transactions.begin() as tx:
        if fate == "deleted":
            sender, _ = await people.find_or_create(tx, ASKED.account, Platform.TELEGRAM, "77", state=UserState.STRANGER)
            await people.forget(tx, sender.id)
        else:
            await connection_of(tx).execute("update inbox set envelope = set_byte(envelope, 20, 255 - get_byte(envelope, 20))")
    async with transactions.begin() as tx:
        assert await inbox.message_of(tx, receipt.turn_id) is None


@on_postgres
async def test_what_waits_behind_and_cannot_be_read_holds_up_nobody(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    head, _ = [await accept(transactions, people, inbox, replace(ASKED, event_key=key)) for key in "ab"]
    claimed = await claim(transactions, inbox, head.turn_id)
    assert claimed is not None
    stranger = PostgresInbox(Keyring(MasterKeys.parse([new_master_key()])))
    async with transactions.begin() as tx:
        assert await stranger.waiting_behind(tx, claimed, 10) == []


@on_postgres
async def test_the_database_shows_no_word_of_the_message(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    await accept(transactions, people, inbox, ASKED)
    async with transactions.begin() as tx:
        rows = await (await connection_of(tx).execute("select inbox::text from inbox")).fetchall()
    assert "Canggu" not in str(rows)
    assert b"Canggu".hex() not in str(rows)


# --- several messages that are one turn


async def test_what_is_joined_has_no_turn_of_its_own_and_stays_joined_in_every_claim(
    transactions: Transactions, people: Users, inbox: Inbox
) -> None:
    texts = ["look", "at", "this"]
    said = [replace(ASKED, event_key=text, event=replace(ASKED.event, text=text)) for text in texts]
    receipts = [await accept(transactions, people, inbox, each) for each in said]
    first = await claim(transactions, inbox, receipts[0].turn_id)
    assert first is not None
    async with transactions.begin() as tx:
        behind = await inbox.waiting_behind(tx, first, 10)
        assert [(other.turn_id, other.envelope) for other in behind] == [
            (receipt.turn_id, each) for receipt, each in zip(receipts[1:], said[1:], strict=True)
        ]
        whole = await inbox.join(tx, first, behind)
    event = replace(ASKED.event, text="look\nat\nthis")
    more = ("file:2", "file:3", "file:1", "file:2", "file:3", "file:1", "file:2", "file:3")
    assert whole == replace(first, envelope=replace(said[0], event=event, attachments=more))
    assert await claim(transactions, inbox, receipts[1].turn_id) is None
    again = await claim(transactions, inbox, receipts[0].turn_id)
    assert again is not None
    assert again.envelope == whole.envelope
    async with transactions.begin() as tx:
        assert await inbox.waiting_behind(tx, again, 10) == []
        heard = await inbox.message_of(tx, receipts[0].turn_id)
        assert await inbox.waiting(tx) == 1
    assert heard is not None
    assert heard.envelope == whole.envelope


async def test_who_was_fenced_off_joins_nothing(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    first, second = [await accept(transactions, people, inbox, replace(ASKED, event_key=key)) for key in "ab"]
    early = await claim(transactions, inbox, first.turn_id)
    assert early is not None
    await claim(transactions, inbox, first.turn_id)
    with pytest.raises(ClaimLost):
        async with transactions.begin() as tx:
            await inbox.join(tx, early, await inbox.waiting_behind(tx, early, 10))
    assert await claim(transactions, inbox, second.turn_id) is not None


@on_postgres
async def test_a_claim_counts_what_the_same_user_sent_within_a_minute(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    bob = replace(ASKED, event=replace(ASKED.event, sender_id="78"))
    said = [replace(ASKED, event_key="1"), replace(ASKED, event_key="2"), replace(bob, event_key="3"), replace(ASKED, event_key="4")]
    turns = [(await accept(transactions, people, inbox, each)).turn_id for each in said]
    async with transactions.begin() as tx:
        await connection_of(tx).execute(b"update inbox set received_at = now() - interval '61 seconds' where event_key = '1'")
    counts = [claimed.recent for turn_id in turns if (claimed := await claim(transactions, inbox, turn_id))]
    assert counts == [1, 1, 1, 2]


async def test_the_items_of_an_album_count_once(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    first, *_, last = [(await accept(transactions, people, inbox, replace(ASKED, event_key=key))).turn_id for key in "abcd"]
    album = await claim(transactions, inbox, first)
    assert album is not None
    async with transactions.begin() as tx:
        await inbox.join(tx, album, (await inbox.waiting_behind(tx, album, 10))[:2])
    following = await claim(transactions, inbox, last)
    assert following is not None
    assert following.recent == 2


async def test_a_message_that_was_attempted_does_not_join(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    first, second, third = [(await accept(transactions, people, inbox, replace(ASKED, event_key=key))).turn_id for key in "abc"]
    await claim(transactions, inbox, third)
    head = await claim(transactions, inbox, first)
    assert head is not None
    async with transactions.begin() as tx:
        assert [message.turn_id for message in await inbox.waiting_behind(tx, head, 10)] == [second]


def test_what_a_newer_hermes_wrote_into_an_envelope_is_passed_over() -> None:
    assert decode_envelope(encode_envelope(ASKED).replace(b'{"event"', b'{"mood":"sunny","event"', 1)) == ASKED
    assert decode_envelope(encode_envelope(ASKED).replace(b'{"event":{', b'{"event":{"mood":"sunny",', 1)) == ASKED


async def test_a_conversation_of_the_api_is_shared_as_soon_as_a_second_user_writes_and_stays_so(
    transactions: Transactions, people: Users, inbox: Inbox
) -> None:
    def from_(user: str, **more: bool) -> Envelope:
        event = MessageEvent(platform=Platform.REST, sender_id=user, text="hi")
        return Envelope(event=event, account="shop", channel_id="desk", event_key=str(uuid4()), **more)  # type: ignore[arg-type]

    first = await accept(transactions, people, inbox, from_("ada"))
    assert await is_shared(transactions, inbox, first) == (False, False)
    second = await accept(transactions, people, inbox, from_("bob"))
    assert await is_shared(transactions, inbox, second) == (True, True)
    assert await is_shared(transactions, inbox, first) == (True, True), "also for what came before"
    third = await accept(transactions, people, inbox, from_("ada"))
    assert await is_shared(transactions, inbox, third) == (True, True)


async def test_a_conversation_whose_platform_says_so_is_shared_and_a_private_one_is_found(
    transactions: Transactions, people: Users, inbox: Inbox
) -> None:
    group = await accept(transactions, people, inbox, replace(ASKED, is_shared=True))
    assert await is_shared(transactions, inbox, group) == (True, True)
    async with transactions.begin() as tx:
        said = await inbox.message_of(tx, group.turn_id)
        assert said is not None
        assert await inbox.last_private(tx, said.user_id, ASKED.account) is None
    alone = await accept(transactions, people, inbox, replace(ASKED, channel_id="77", event_key="update:2"))
    async with transactions.begin() as tx:
        found = await inbox.last_private(tx, said.user_id, ASKED.account)
        assert await inbox.last_private(tx, said.user_id, "another account") is None
    assert found is not None
    assert (found.turn_id, found.envelope.is_shared) == (alone.turn_id, False)


async def test_a_conversation_that_became_shared_is_private_no_more(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    before = await accept(transactions, people, inbox, ASKED)
    assert await is_shared(transactions, inbox, before) == (False, False)
    await accept(transactions, people, inbox, replace(ASKED, event_key="update:2", is_shared=True))
    after = await accept(transactions, people, inbox, replace(ASKED, event_key="update:3"))
    assert [await is_shared(transactions, inbox, each) for each in (before, after)] == [(True, True)] * 2
    async with transactions.begin() as tx:
        said = await inbox.message_of(tx, before.turn_id)
        assert said is not None
        assert await inbox.last_private(tx, said.user_id, ASKED.account) is None


async def is_shared(transactions: Transactions, inbox: Inbox, receipt: AcceptedMessage) -> tuple[bool, bool]:
    """What a claim says, and what is said to those who come back to it."""
    async with transactions.begin() as tx:
        claimed, said = await inbox.claim(tx, receipt.turn_id), await inbox.message_of(tx, receipt.turn_id)
    assert isinstance(claimed, Claim)
    assert said is not None
    return claimed.envelope.is_shared, said.envelope.is_shared


@pytest.mark.parametrize(
    ("platform", "channel_id", "is_shared"),
    [
        (Platform.TELEGRAM, "-100200300", True),
        (Platform.TELEGRAM, "77", False),
        (Platform.TELEGRAM, "77@Ab3x", False),
        (Platform.WHATSAPP, "group:Y2FwaQ", True),
        (Platform.WHATSAPP, "4915700000001", False),
        (Platform.INSTAGRAM, "1784", False),
        (Platform.REST, "-desk", False),
    ],
)
def test_what_an_older_version_stored_is_a_group_by_its_channel(platform: Platform, channel_id: str, is_shared: bool) -> None:
    stored = json.loads(encode_envelope(replace(ASKED, event=replace(ASKED.event, platform=platform), channel_id=channel_id)))
    for new in ("is_shared", "sender_name"):
        del stored[new]
    read = decode_envelope(json.dumps(stored).encode())
    assert (read.is_shared, read.sender_name) == (is_shared, "")


async def test_a_stopped_turn_has_ended_and_its_worker_is_fenced(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    receipt = await accept(transactions, people, inbox, ASKED)
    held = await claim(transactions, inbox, receipt.turn_id)
    assert held is not None
    async with transactions.begin() as tx:
        assert await inbox.stop(tx, receipt.turn_id)
    async with transactions.begin() as tx:
        assert not await inbox.stop(tx, receipt.turn_id)
        assert not await inbox.stop(tx, uuid4())
        origin = await inbox.origin(tx, receipt.turn_id)
        assert origin is not None
        assert (origin.has_ended, origin.is_started, origin.is_stopped) == (True, True, True)
        assert await inbox.waiting(tx) == 0
    assert await claim(transactions, inbox, receipt.turn_id) is None
    with pytest.raises(ClaimLost):
        async with transactions.begin() as tx:
            await inbox.hold(tx, held)


async def test_to_stop_a_turn_that_waits_leaves_the_claim_before_it(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    first, second = [
        await accept(transactions, people, inbox, replace(ASKED, event_key=key)) for key in ("to be answered", "to be withdrawn")
    ]
    held = await claim(transactions, inbox, first.turn_id)
    assert held is not None
    async with transactions.begin() as tx:
        assert await inbox.stop(tx, second.turn_id)
    async with transactions.begin() as tx:
        await inbox.hold(tx, held)
        await inbox.finish(tx, held)
        assert not await inbox.stop(tx, first.turn_id)
    assert await claim(transactions, inbox, second.turn_id) is None


# --- with the sender and the job, in one statement


async def test_nothing_is_written_for_a_sender_who_is_no_user(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    async with transactions.once() as tx:
        assert await inbox.accept(tx, ASKED, uuid4(), defer_in_s=0.0) is None
        assert await inbox.waiting(tx) == 0
    assert (await accept(transactions, people, inbox, ASKED)).is_new


async def test_the_other_id_of_a_sender_is_noted_with_the_message(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    first = await accept(transactions, people, inbox, ASKED)
    other = replace(ASKED, event=replace(ASKED.event, sender_id="ada"), event_key="update:2")
    async with transactions.once() as tx:
        assert await inbox.accept(tx, other, uuid4()) is None
        assert await inbox.accept(tx, replace(ASKED, event_key="update:3"), uuid4(), alias="ada") is not None
        found = await inbox.accept(tx, other, uuid4())
    assert found is not None
    assert (found.user_id, found.seq) == (first.user_id, 3)


async def test_a_key_that_may_not_speak_for_people_writes_nothing(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    await accept(transactions, people, inbox, ASKED)
    async with transactions.once() as tx:
        with pytest.raises(KeyForbids):
            await inbox.accept(tx, replace(ASKED, event_key="update:2"), uuid4(), refuses_people=True)
        assert await inbox.waiting(tx) == 1


@on_postgres
async def test_a_deferred_turn_is_the_job_that_the_queue_would_defer(
    transactions: Transactions, people: Users, inbox: Inbox, database: Database
) -> None:
    first = await accept(transactions, people, inbox, ASKED)
    async with open_job_queue(database) as work, transactions.begin() as tx:
        await work.defer_turn(tx, first.turn_id, first.conversation_id)
        await work.defer_turn(tx, first.turn_id, first.conversation_id, in_s=60.0)
    turns = uuid4(), uuid4()
    for turn_id, in_s in zip(turns, (0.0, 60.0), strict=True):
        async with transactions.once() as tx:
            assert await inbox.accept(tx, replace(ASKED, event_key=str(turn_id)), turn_id, defer_in_s=in_s) is not None
    query = b"""select queue_name, task_name, priority, lock, queueing_lock, status::text, attempts, args,
        (scheduled_at - now()) > interval '50 seconds'
        from procrastinate_jobs order by id"""
    async with transactions.begin() as tx:
        jobs = await (await connection_of(tx).execute(query)).fetchall()
    *same, _, _ = jobs[0]
    wanted = [
        (*same, {"id": str(turn_id)}, is_late) for turn_id, is_late in zip((first.turn_id,) * 2 + turns, (None, True) * 2, strict=True)
    ]
    assert jobs == wanted


@on_postgres
async def test_an_ordinary_message_is_accepted_in_one_statement(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    await accept(transactions, people, inbox, ASKED)
    async with transactions.once() as tx:
        with logged_statements(tx) as statements:
            assert await inbox.accept(tx, replace(ASKED, event_key="update:2"), uuid4(), defer_in_s=0.0) is not None
    assert len(statements) == 1


@on_postgres
async def test_a_remembered_sender_who_became_another_user_is_looked_up(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    first = await accept(transactions, people, inbox, ASKED)
    async with transactions.begin() as tx:
        await people.forget(tx, first.user_id)
    async with transactions.once() as tx:
        assert await inbox.accept(tx, replace(ASKED, event_key="update:2"), uuid4()) is None
    second = await accept(transactions, people, inbox, replace(ASKED, event_key="update:3"))
    claimed = await claim(transactions, inbox, second.turn_id)
    assert second.user_id != first.user_id
    assert claimed is not None
    assert claimed.envelope.event == ASKED.event


@on_postgres
async def test_messages_that_other_processes_accepted_count_for_the_cap(
    transactions: Transactions, people: Users, keyring: Keyring
) -> None:
    here = PostgresInbox(keyring, cap=1_010)
    await accept(transactions, people, here, ASKED)
    copied = "turn_id, account_id, event_key, conversation_id, user_id, seq, envelope"
    others = f"""insert into inbox ({copied})
        select gen_random_uuid(), account_id, 'other:' || n, conversation_id, user_id, 1000 + n, envelope
        from inbox, generate_series(1, 1008) as n"""  # noqa: S608  # no value of a user
    async with transactions.begin() as tx:
        await connection_of(tx).execute(others.encode())
    assert (await accept(transactions, people, here, replace(ASKED, event_key="update:2"))).is_new, "the last one with room"
    with pytest.raises(InboxFull):
        await accept(transactions, people, here, replace(ASKED, event_key="update:3"))
