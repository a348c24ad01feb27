"""What the tests of turns share: a message that was accepted, and the claim on it."""

from uuid import UUID, uuid4

from hermes.ports.inbox import Claim
from hermes.ports.users import UserState
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.users import PostgresUsers
from hermes.turn import Envelope, MessageEvent, Platform


async def new_turn(database: Database, keyring: Keyring, text: str = "hello", *, channel: str = "c1") -> UUID:
    """Accept a message and return its turn."""
    envelope = Envelope(
        event=MessageEvent(platform=Platform.REST, sender_id=channel, text=text), account="shop", channel_id=channel, event_key=str(uuid4())
    )
    async with database.begin() as tx:
        user, _ = await PostgresUsers(keyring).find_or_create(tx, "shop", Platform.REST, channel, state=UserState.ACTIVE)
        return (await PostgresInbox(keyring).accept(tx, envelope, user, uuid4())).turn_id


async def claim_turn(database: Database, keyring: Keyring, turn_id: UUID) -> Claim:
    """Claim a turn that waits."""
    async with database.begin() as tx:
        claim = await PostgresInbox(keyring).claim(tx, turn_id)
    assert isinstance(claim, Claim)
    return claim


async def new_claim(database: Database, keyring: Keyring, text: str = "hello", *, channel: str = "c1") -> Claim:
    """Accept a message and claim it."""
    return await claim_turn(database, keyring, await new_turn(database, keyring, text, channel=channel))
