"""The checks of `hermes doctor` that need the whole Hermes loaded: stores, packs, models, MCP servers. `doctor_basics.py` has the others.

A check that fails does not stop the others, unless they need its result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from redis.exceptions import RedisError

from hermes.app.catalogue import catalogue_from, check_prices, missing_backends, prices_from, replaced_backends, stand_in_notice
from hermes.app.doctor_basics import Health, HealthFinding
from hermes.app.home import home_of
from hermes.app.master_keys import master_keys, masters_from
from hermes.app.models import backends_from
from hermes.app.packs import migration_folders, packs_from
from hermes.app.redis_client import redis_client
from hermes.app.stores import open_stores
from hermes.app.vaults import makes_vault, vault_folder
from hermes.backends import HttpClient
from hermes.config import PackSettings, Settings
from hermes.gateway.catalogue import DEFAULT_CATALOGUE
from hermes.ports.backends import FindingLevel
from hermes.ports.errors import PortError, StartRefused
from hermes.stores.postgres.credits import PostgresCredits
from hermes.stores.postgres.database import Connection
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.migrate import SchemaRefused, check_server, pending_migrations
from hermes.stores.postgres.vault_keys import VaultKeeper, count_outside
from hermes.stores.seal import MasterKeyInvalid, MasterKeys, SealError

HEALTH_TIMEOUT_S = 5.0


async def examine(settings: Settings) -> AsyncIterator[HealthFinding]:
    """Yield a finding for each of these parts, as soon as it is known.

    Starts the embedded stores for as long as it takes, and makes them if there are none; changes nothing else."""
    home = home_of(settings)
    try:
        packs_from(settings)
    except StartRefused as error:
        yield HealthFinding("packs", Health.BAD, str(error), "see docs/packs.md")
        settings = replace(settings, packs=PackSettings(enabled=()))  # reported once, and not as a fault of the database and the models
    async with AsyncExitStack() as stack:
        try:
            addresses = await stack.enter_async_context(open_stores(settings, home))
        except StartRefused as error:
            yield HealthFinding("stores", Health.BAD, str(error), "see docs/how-to/run.md")
            return
        kind = "a server" if settings.database_url else f"embedded in {home}"
        async for finding in check_postgres(addresses.database_url, kind, settings, home):
            yield finding
        yield await check_redis(addresses.redis_url, "a server" if settings.redis_url else f"embedded in {home}", settings)
    async for finding in check_models(settings):
        yield finding


async def check_postgres(url: str, kind: str, settings: Settings, home: Path) -> AsyncIterator[HealthFinding]:
    limit_s = max(1, round(settings.database.connect_timeout_s))
    try:
        # One plain connection: the pool would retry, and log every failure.
        async with await psycopg.AsyncConnection.connect(url, connect_timeout=limit_s, application_name="hermes doctor") as connection:
            await check_server(connection)
            major = connection.info.server_version // 10_000
            yield HealthFinding("postgres", Health.GOOD, f"PostgreSQL {major} with pgvector, {kind}")
            waiting = await pending_migrations(connection, migration_folders(packs_from(settings)))
            if waiting:
                says = f"{len(waiting)} migrations to run, up to {waiting[-1]}"
                yield HealthFinding("schema", Health.WARNING, says, "they run at the next start")
                return
            yield HealthFinding("schema", Health.GOOD, "up to date")
            async for finding in check_contents(connection, settings, home):
                yield finding
    except SchemaRefused as error:
        yield HealthFinding("postgres", Health.BAD, str(error), "see docs/how-to/run.md")
    except (PortError, psycopg.Error) as error:
        yield HealthFinding("postgres", Health.BAD, str(error).splitlines()[0], "check HERMES_DATABASE_URL and that the server runs")


async def check_contents(connection: Connection, settings: Settings, home: Path) -> AsyncIterator[HealthFinding]:
    try:
        missing = await Keyring(MasterKeys.parse(master_keys(settings, home))).missing_masters(connection)
    except (StartRefused, MasterKeyInvalid):
        missing = []  # check_master_key has reported it
    if missing:
        says = f"data is sealed under master keys that are not set: {', '.join(missing)}"
        yield HealthFinding("sealed data", Health.BAD, says, "add them to HERMES_MASTER_KEYS, behind the newest")
    else:
        yield await check_vault(connection, settings)
    wrong = await PostgresCredits().audit(connection)
    if wrong:
        says = f"{len(wrong)} balances disagree with the ledger: {wrong[0]}"
        yield HealthFinding("credits", Health.BAD, says, "restore them from the ledger")
    else:
        yield HealthFinding("credits", Health.GOOD, "every balance agrees with its ledger")
    yield await check_workers(connection)


async def check_vault(connection: Connection, settings: Settings) -> HealthFinding:
    try:
        missing = await VaultKeeper(masters_from(settings), vault_folder(settings)).missing(connection)
        outside = await count_outside(connection)
    except (StartRefused, SealError, OSError) as error:
        return HealthFinding("vault", Health.BAD, f"cannot be read: {error}", "see docs/operate/erasure.md")
    if missing:
        return HealthFinding("vault", Health.BAD, f"{len(missing)} of its keys are not in this folder", "set HERMES_VAULT")
    if not outside:
        return HealthFinding("vault", Health.GOOD, "wraps every data key")
    if makes_vault(settings):
        return HealthFinding("vault", Health.WARNING, f"{outside} data keys are not wrapped by it yet", "a worker does it within minutes")
    says = "there is none: with a master key and old bytes of the server, what an erased user wrote can be read"
    return HealthFinding("vault", Health.WARNING, says, "set HERMES_VAULT to a folder that all processes share")


async def check_workers(connection: Connection) -> HealthFinding:
    alive = await (
        await connection.execute("select count(*) from procrastinate_workers where last_heartbeat > now() - interval '30 s'")
    ).fetchone()
    waiting = await (await connection.execute("select count(*) from inbox where state = 'waiting'")).fetchone()
    dead = await (await connection.execute("select count(*) from inbox where state = 'dead'")).fetchone()
    counts = f"{waiting[0] if waiting else 0} messages wait, {dead[0] if dead else 0} were given up"
    if not alive or not alive[0]:
        return HealthFinding("workers", Health.WARNING, f"none is running; {counts}", "start one: hermes up, or hermes worker")
    return HealthFinding("workers", Health.GOOD, f"alive; {counts}")


async def check_redis(url: str, kind: str, settings: Settings) -> HealthFinding:
    client = redis_client(url, settings)
    try:
        info = await client.info("server")
        name = info.get("server_name", "redis")
        version = info.get(f"{name}_version", info.get("redis_version"))
        return HealthFinding("redis", Health.GOOD, f"{str(name).capitalize()} {version}, {kind}")
    except (RedisError, OSError) as error:
        return HealthFinding(
            "redis", Health.WARNING, f"cannot be reached: {error}", "Hermes works without it, slower; check HERMES_REDIS_URL"
        )
    finally:
        await client.aclose()


async def check_models(settings: Settings) -> AsyncIterator[HealthFinding]:
    """Ask every backend that a tier's chain uses. A backend that does not answer is bad only if a tier has no other."""
    client = HttpClient()
    try:
        catalogue, backends = catalogue_from(settings), backends_from(settings, client)
        check_prices(catalogue, prices_from(settings), datetime.now(UTC).date())
        for name, reason in (replaced_backends(settings) or missing_backends(settings)).items():
            if any(model.backend == name for model in DEFAULT_CATALOGUE.models.values()) or name in settings.backends:
                says = f"{name}: {reason}" + (f"; {stand_in_notice(settings)}" if name in replaced_backends(settings) else "")
                yield HealthFinding("models", Health.WARNING, says, f"set HERMES_BACKENDS_{name.upper().replace('-', '_')}_API_KEY")
        used = {catalogue.models[name].backend for tier in catalogue.tiers.values() for name in tier.chain}
        healthy = set()
        for name in sorted(used & backends.keys()):
            checks = await backends[name].health_check(timeout_s=HEALTH_TIMEOUT_S)
            wrong = [check for check in checks if check.level is not FindingLevel.INFO]
            if not any(check.level is FindingLevel.ERROR for check in checks):
                healthy.add(name)
            for check in wrong:
                yield HealthFinding("models", Health.WARNING, check.message, check.hint)
            if not wrong:
                yield HealthFinding("models", Health.GOOD, f"{name} answers")
        for name, tier in catalogue.tiers.items():
            if not any(catalogue.models[model].backend in healthy for model in tier.chain):
                yield HealthFinding("models", Health.BAD, f"tier {name} has no model that can be asked", "see docs/how-to/models.md")
        for backend in backends.values():
            await backend.aclose()
    except StartRefused as error:
        yield HealthFinding("models", Health.BAD, str(error).splitlines()[0], "correct hermes.toml; see docs/how-to/models.md")
    finally:
        await client.aclose()
