"""Encryption at rest, the pure core: keys and bytes in, bytes out.

    masters = MasterKeys.parse(settings.master_keys)
    keys = DataKeys({row.generation: masters.unwrap(WrappedKey(row.master, row.blob), user.id) for row in rows})
    keys.open("telegram:channel:bali/42", keys.seal("telegram:channel:bali/42", b"a sunset bar in Canggu"))

The operator's master keys wrap one random data key per user, and HKDF derives a key from it for every purpose and label. Deleting a
user's data key deletes everything that it sealed. Knows nothing about databases, Redis, settings or async."""

from hermes.stores.seal.data_keys import DataKeys, FernetCipher, new_data_key
from hermes.stores.seal.errors import DataKeyMissing, MasterKeyInvalid, MasterKeyMissing, SealBroken, SealError
from hermes.stores.seal.master_keys import MasterKeys, WrappedKey, new_master_key

__all__ = [
    "DataKeyMissing",
    "DataKeys",
    "FernetCipher",
    "MasterKeyInvalid",
    "MasterKeyMissing",
    "MasterKeys",
    "SealBroken",
    "SealError",
    "WrappedKey",
    "new_data_key",
    "new_master_key",
]
