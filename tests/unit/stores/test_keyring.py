"""The keyring: what it holds of its users' keys stays small, however many users write."""

import os
from uuid import UUID, uuid4

from hermes.stores.postgres.keyring import MAX_AT_WORK, Keyring, StoredKey
from hermes.stores.seal import DataKeys, MasterKeys, new_master_key

MASTERS = MasterKeys.parse([new_master_key()])


def stored_key(user_id: UUID) -> StoredKey:
    wrapped = MASTERS.wrap(os.urandom(32), user_id)
    return StoredKey(user_id, 0, wrapped.master, wrapped.blob, None)


def derived(keys: DataKeys) -> int:
    return keys._ready.cache_info().currsize


async def test_derived_keys_are_held_for_the_users_who_were_asked_for_last() -> None:
    keyring, users = Keyring(MASTERS), [uuid4() for _ in range(MAX_AT_WORK + 50)]
    sealed = {}
    for user_id in users:
        keys = await keyring.open(user_id, [stored_key(user_id)])
        sealed[user_id] = keys.seal("a label", b"hello")
        keyring.known(users[0])
    held = {user_id: keys for user_id, (_, keys) in keyring._known.items()}
    assert list(held) == users, "the keys themselves stay"
    assert derived(held[users[0]]) == 1, "this user was asked for all the time"
    assert sum(map(derived, held.values())) == MAX_AT_WORK
    assert [held[user_id].open("a label", sealed[user_id]) for user_id in users] == [b"hello"] * len(users)
