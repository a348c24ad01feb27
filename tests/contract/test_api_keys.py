"""API keys are shown once and kept as a hash; a promise ties an Idempotency-Key to one turn for a day."""

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from hermes.ports.errors import IdempotencyKeyReused, NotFound
from hermes.ports.users import ApiKey
from hermes.stores.postgres.api_keys import PostgresApiKeys, PostgresIdempotencyKeys
from hermes.stores.postgres.database import Database, connection_of


async def create(database: Database, name: str = "shop", account: str = "api") -> tuple[ApiKey, str]:
    async with database.begin() as tx:
        return await PostgresApiKeys().create(tx, name, account)


async def test_a_key_lets_its_holder_in_and_nobody_else(database: Database) -> None:
    key, secret = await create(database)
    other, _ = await create(database, "other", "shop-2")
    assert (key.name, key.account, key.prefix, key.last_used_at, key.revoked_at) == ("shop", "api", secret[:11], None, None)
    async with database.begin() as tx:
        wrong = ("", "hk_", secret[:-1], f"{secret}x", key.prefix, "hk_\ud800")
        assert await PostgresApiKeys().find(tx, [*wrong, secret, *wrong]) == {secret: key}
        assert await PostgresApiKeys().find(tx, wrong) == {}
        newest_first = await PostgresApiKeys().list(tx)
    assert [known.id for known in newest_first] == [other.id, key.id]
    assert newest_first[1].last_used_at is not None


async def test_the_database_does_not_know_the_secret(database: Database) -> None:
    _, secret = await create(database)
    async with database.begin() as tx:
        rows = str(await (await connection_of(tx).execute("select api_keys::text from api_keys")).fetchall())
    assert secret not in rows
    assert secret.encode().hex() not in rows


@pytest.mark.parametrize("by", ["id", "name", "prefix"])
async def test_a_revoked_key_lets_nobody_in(database: Database, by: str) -> None:
    key, secret = await create(database)
    async with database.begin() as tx:
        revoked = await PostgresApiKeys().revoke(tx, str(getattr(key, by)))
        assert revoked == replace(key, revoked_at=revoked.revoked_at)
        assert revoked.revoked_at is not None
        assert await PostgresApiKeys().revoke(tx, str(getattr(key, by))) == revoked
        assert await PostgresApiKeys().find(tx, [secret]) == {}


async def test_a_key_whose_row_is_locked_is_found_all_the_same(database: Database) -> None:
    (one, one_secret), (two, two_secret) = await create(database, "one"), await create(database, "two")
    async with asyncio.timeout(10), database.begin() as elsewhere:
        await connection_of(elsewhere).execute("select from api_keys where id = %s for update", [one.id])
        async with database.begin() as tx:
            assert await PostgresApiKeys().find(tx, [one_secret, two_secret]) == {one_secret: one, two_secret: two}
    async with database.begin() as tx:
        used = {key.name: key.last_used_at is not None for key in await PostgresApiKeys().list(tx)}
    assert used == {"one": False, "two": True}


async def test_none_or_several_are_not_revoked(database: Database) -> None:
    await create(database)
    await create(database)
    async with database.begin() as tx:
        with pytest.raises(NotFound, match="there is no API key 'ship'"):
            await PostgresApiKeys().revoke(tx, "ship")
        with pytest.raises(NotFound, match="2 API keys are called 'shop'"):
            await PostgresApiKeys().revoke(tx, "shop")
        assert all(key.revoked_at is None for key in await PostgresApiKeys().list(tx))


async def test_of_keys_with_one_name_the_living_one_is_revoked(database: Database) -> None:
    old, _ = await create(database)
    async with database.begin() as tx:
        await PostgresApiKeys().revoke(tx, "shop")
    new, _ = await create(database)
    async with database.begin() as tx:
        assert (await PostgresApiKeys().revoke(tx, "shop")).id == new.id
        assert new.id != old.id


async def test_the_database_does_not_know_what_a_client_called_its_request(database: Database) -> None:
    key, _ = await create(database)
    await keep(database, key, uuid4(), name="order of Mrs Smith")
    async with database.begin() as tx:
        assert "Smith" not in str(await (await connection_of(tx).execute("select promises::text from promises")).fetchall())


async def keep(database: Database, key: ApiKey, turn_id: UUID, *, name: str = "k", digest: bytes = b"body") -> UUID:
    async with database.begin() as tx:
        return await PostgresIdempotencyKeys(ttl_s=60).keep(tx, key.id, name, digest, turn_id)


async def test_the_first_request_decides_the_turn(database: Database) -> None:
    key, _ = await create(database)
    first, second = uuid4(), uuid4()
    assert [await keep(database, key, first), await keep(database, key, second)] == [first, first]
    with pytest.raises(IdempotencyKeyReused):
        await keep(database, key, second, digest=b"other body")


async def test_of_many_at_once_one_decides(database: Database) -> None:
    key, _ = await create(database)
    turns = await asyncio.gather(*(keep(database, key, uuid4()) for _ in range(12)))
    assert len(set(turns)) == 1


async def test_keys_are_scoped_to_the_api_key(database: Database) -> None:
    (one, _), (other, _) = await create(database), await create(database, "other")
    first, second = uuid4(), uuid4()
    assert [await keep(database, one, first), await keep(database, other, second, digest=b"other")] == [first, second]
    assert await keep(database, one, second, name="k2") == second


async def test_after_its_time_a_key_may_be_used_again(database: Database) -> None:
    key, _ = await create(database)
    first, second = uuid4(), uuid4()
    await keep(database, key, first)
    async with database.begin() as tx:
        assert await PostgresIdempotencyKeys(ttl_s=60).clean(tx) == 0
        await connection_of(tx).execute("update promises set created_at = now() - interval '61 s'")
    assert await keep(database, key, second, digest=b"other body") == second
    async with database.begin() as tx:
        await connection_of(tx).execute("update promises set created_at = now() - interval '61 s'")
        assert await PostgresIdempotencyKeys(ttl_s=60).clean(tx) == 1
