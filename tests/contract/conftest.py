"""What the tests of the stores share: keys, and a user to store something for."""

import pytest

from hermes.ports.users import User, UserState
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.turn import Platform


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
