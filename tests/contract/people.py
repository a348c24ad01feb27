"""Conversations to store something in."""

from uuid import UUID

from hermes.ports.session import Session
from hermes.ports.users import User
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.sessions import PostgresSessions


async def new_conversation(database: Database, user: User, channel_id: str) -> UUID:
    """A conversation of this user on the account `bali`."""
    async with database.begin() as tx:
        query = "insert into conversations (account_id, platform, channel_id, user_id) values ('bali', 'telegram', %s, %s) returning id"
        [[conversation_id]] = await (await connection_of(tx).execute(query, [channel_id, user.id])).fetchall()
    return UUID(str(conversation_id))


async def new_session(database: Database, keyring: Keyring, user: User, channel_id: str) -> Session:
    """The first session of a new conversation."""
    conversation_id = await new_conversation(database, user, channel_id)
    async with database.begin() as tx:
        return await PostgresSessions(keyring).current(tx, conversation_id, user.id)
