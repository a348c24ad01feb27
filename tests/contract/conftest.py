"""What the tests of the stores share: keys, a user to store something for, and the adapter that is under test.

A test that takes `transactions` runs on both adapters of its port; one that only PostgreSQL can pass is marked `on_postgres`."""

import pytest

from hermes.ports.inbox import Inbox
from hermes.ports.runtime import Transactions
from hermes.ports.users import User, Users, UserState
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.testing.memory import MemoryInbox, MemoryTransactions, MemoryUsers
from hermes.turn import Platform
from tests.contract.turns import Turns


@pytest.fixture
def keyring() -> Keyring:
    """A keyring under a master key of this test's own."""
    return Keyring(MasterKeys.parse([new_master_key()]))


@pytest.fixture
async def user(database: Database, keyring: Keyring) -> User:
    """Somebody who wrote to the account `bali` on Telegram."""
    async with database.begin() as tx:
        user, _ = await PostgresUsers(keyring).find_or_create(tx, "bali", Platform.TELEGRAM, "42", state=UserState.ACTIVE)
    return user


@pytest.fixture(params=["postgres", "memory"])
def adapter(request: pytest.FixtureRequest) -> str:
    """The adapter under test."""
    return str(request.param)


@pytest.fixture
def transactions(adapter: str, request: pytest.FixtureRequest) -> Transactions:
    return MemoryTransactions() if adapter == "memory" else request.getfixturevalue("database")


@pytest.fixture
def people(adapter: str, keyring: Keyring) -> Users:
    return MemoryUsers() if adapter == "memory" else PostgresUsers(keyring)


@pytest.fixture
def inbox(people: Users, keyring: Keyring) -> Inbox:
    return MemoryInbox(people=people) if isinstance(people, MemoryUsers) else PostgresInbox(keyring)


@pytest.fixture
def turns(transactions: Transactions, people: Users, inbox: Inbox) -> Turns:
    return Turns(transactions, people, inbox)
