"""What belongs to an account, on PostgreSQL: the API keys of its clients, the agent that answers on it, its credentials at a platform."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from typing import Any, NamedTuple
from uuid import UUID

import structlog
from psycopg.types.json import Jsonb

from hermes.ports.backends import BackendFinding, FindingLevel
from hermes.ports.channels import ChannelAccount
from hermes.ports.errors import IdempotencyKeyReused, NotFound, UserErased
from hermes.ports.runtime import Transaction
from hermes.ports.users import Agent, AgentChanged, ApiKey, FleetEvent, FleetEventKind, SwapReason, Tone
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_value, fetch_values
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import SealError
from hermes.turn import Platform

log = structlog.get_logger()

API_KEYS, AGENTS, CHANNEL_ACCOUNTS = load_queries("api_keys"), load_queries("agents"), load_queries("channel_accounts")
KEY_PREFIX = "hk_"
"""The start of every API key, so that the operator can search files for a leaked key."""
PREFIX_LENGTH = len(KEY_PREFIX) + 8


# --- API keys


class PostgresApiKeys:
    """The port ApiKeys. Stores the SHA-256 of a key: a key is 32 random bytes, which cannot be guessed, so no slower hash is needed."""

    async def create(
        self,
        tx: Transaction,
        name: str,
        account: str,
        *,
        tier: str | None = None,
        trains: bool = False,
        scopes: Sequence[str] | None = None,
        channels: Sequence[str] | None = None,
    ) -> tuple[ApiKey, str]:
        secret = KEY_PREFIX + secrets.token_urlsafe(32)
        row = {
            "account": account,
            "name": name,
            "prefix": secret[:PREFIX_LENGTH],
            "digest": digest(secret),
            "tier": tier,
            "trains": trains,
            "scopes": None if scopes is None else [*scopes],
            "channels": None if channels is None else [*channels],
        }
        await execute(tx, API_KEYS["add_account"], row)
        [key] = await fetch_rows(tx, ApiKey, API_KEYS["create"], row)
        return key, secret

    async def find(self, tx: Transaction, secrets: Collection[str]) -> Mapping[str, ApiKey]:
        by_digest = {digest(secret): secret for secret in secrets}
        rows = await fetch_rows(tx, read_found_key, API_KEYS["find"], {"digests": [*by_digest]})
        found = {by_digest[key_digest]: key for key_digest, key in rows}
        if found:
            await execute(tx, API_KEYS["touch"], {"ids": [key.id for key in found.values()]})
        return found

    async def list(self, tx: Transaction) -> Sequence[ApiKey]:
        return await fetch_rows(tx, ApiKey, API_KEYS["list"])

    async def revoke(self, tx: Transaction, name_or_id: str) -> ApiKey:
        ids = await fetch_values(tx, API_KEYS["matching"], {"name_or_id": name_or_id})
        if len(ids) != 1:
            known = f"{len(ids)} API keys are called" if ids else "there is no API key"
            raise NotFound(f"{known} {name_or_id!r}; `hermes keys list` shows their ids")
        [key] = await fetch_rows(tx, ApiKey, API_KEYS["revoke"], {"id": ids[0]})
        return key


class PostgresIdempotencyKeys:
    """The port IdempotencyKeys."""

    def __init__(self, *, ttl_s: float = 86_400) -> None:
        self._ttl_s = ttl_s

    async def keep(self, tx: Transaction, api_key_id: UUID, key: str, digest: bytes, turn_id: UUID) -> UUID:
        # Hashed, because a client may put private data into its key, such as an order number or a name.
        hashed = hashlib.sha256(f"{api_key_id}/{key}".encode("utf-8", "surrogatepass")).hexdigest()
        row = {"api_key_id": api_key_id, "key": hashed, "digest": digest, "turn_id": turn_id, "ttl_s": self._ttl_s}
        if await execute(tx, API_KEYS["keep"], row):
            return turn_id
        [first] = await fetch_rows(tx, FirstUse, API_KEYS["first_use"], row)  # the conflict, so it is older than this statement
        if not hmac.compare_digest(first.digest, digest):
            raise IdempotencyKeyReused
        return first.turn_id

    async def clean(self, tx: Transaction) -> int:
        return await execute(tx, API_KEYS["clean"], {"ttl_s": self._ttl_s})


class FirstUse(NamedTuple):
    """What an idempotency key is tied to."""

    digest: bytes
    turn_id: UUID


def read_found_key(*, digest: bytes, **columns: Any) -> tuple[bytes, ApiKey]:
    return digest, ApiKey(**columns)


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


# --- agents


class AgentDaySpend(NamedTuple):
    """What the calls for an agent cost."""

    agent: str
    micro_usd: int


class PostgresAgents:
    """The port Agents. A transaction that changes an agent's adapter holds the agent's row until its end."""

    async def add(self, tx: Transaction, agent: Agent) -> tuple[Agent, bool]:
        columns = {name: getattr(agent, name) for name in ("name", "tone", "role", "tier", "adapter", "cwd", "daily_micro_usd")}
        agent_id: UUID | None = await fetch_value(tx, AGENTS["add"], columns)
        if agent_id is not None:
            for account in agent.accounts:
                await execute(tx, AGENTS["answer_on"], {"account": account, "agent_id": agent_id})
        return await self.get(tx, agent.name), agent_id is not None

    async def get(self, tx: Transaction, name: str) -> Agent:
        agent = await fetch_row(tx, read_agent, AGENTS["get"], {"name": name})
        if agent is None:
            raise NotFound(f"there is no agent {name}")
        return agent

    async def list(self, tx: Transaction) -> Sequence[Agent]:
        return await fetch_rows(tx, read_agent, AGENTS["list"])

    async def point(
        self, tx: Transaction, name: str, *, adapter: str | None, cwd: str | None, expected_epoch: int, because: SwapReason
    ) -> Agent:
        before = await self._lock(tx, name)
        if await execute(tx, AGENTS["is_noted"], {"id": because.id}):  # an earlier call committed, but its caller never got the answer
            return replace(await self.get(tx, name), adapter=adapter, cwd=cwd, epoch=expected_epoch + 1)
        if before.epoch != expected_epoch:
            raise AgentChanged
        await execute(tx, AGENTS["point"], {"agent_id": before.id, "adapter": adapter, "cwd": cwd})
        event = event_columns(because) | {"agent_id": before.id, "old": before.adapter, "new": adapter, "epoch": before.epoch + 1}
        await execute(tx, AGENTS["note"], event)
        return await self.get(tx, name)

    async def set_cap(self, tx: Transaction, name: str, daily_micro_usd: int | None) -> Agent:
        if daily_micro_usd is not None and daily_micro_usd < 0:
            raise ValueError(f"a cap is not below zero, got {daily_micro_usd}")
        await execute(tx, AGENTS["set_cap"], {"name": name, "daily_micro_usd": daily_micro_usd})
        return await self.get(tx, name)

    async def note(self, tx: Transaction, name: str, *, adapter: str | None, because: SwapReason) -> None:
        agent = await self._lock(tx, name)
        event = event_columns(because) | {"agent_id": agent.id, "old": agent.adapter, "new": adapter, "epoch": agent.epoch}
        await execute(tx, AGENTS["note"], event)

    async def spend(self, tx: Transaction, day: date) -> Mapping[str, int]:
        return dict(await fetch_rows(tx, AgentDaySpend, AGENTS["spend"], {"day": day}))

    async def events(self, tx: Transaction, name: str | None = None, *, limit: int = 50) -> Sequence[FleetEvent]:
        query = AGENTS["events" if name is None else "events_of"]
        return await fetch_rows(tx, read_event, query, {"name": name, "limit": limit})

    async def _lock(self, tx: Transaction, name: str) -> LockedAgent:
        """Lock an agent's row, so that the history has its events in the order in which they happened."""
        agent = await fetch_row(tx, LockedAgent, AGENTS["lock"], {"name": name})
        if agent is None:
            raise NotFound(f"there is no agent {name}")
        return agent


class LockedAgent(NamedTuple):
    """An agent's row before its pointer moves."""

    id: UUID
    adapter: str | None
    epoch: int


def read_agent(*, tone: str, accounts: Sequence[str], **columns: Any) -> Agent:
    return Agent(tone=Tone(tone), accounts=tuple(accounts), **columns)


def event_columns(because: SwapReason) -> dict[str, Any]:
    checks = Jsonb([{name: make_storable(value) for name, value in asdict(check).items()} for check in because.checks])
    return {
        "id": because.id,
        "kind": because.kind,
        "reason": make_storable(because.reason),
        "by": make_storable(because.by),
        "checks": checks,
    }


def make_storable(text: str) -> str:
    """The text without the characters that PostgreSQL refuses: a reason may hold any text of a vendor."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def read_event(*, kind: str, checks: Sequence[Mapping[str, Any]], **columns: Any) -> FleetEvent:
    found = tuple(BackendFinding(**{**check, "level": FindingLevel(check["level"])}) for check in checks)
    return FleetEvent(kind=FleetEventKind(kind), checks=found, **columns)


# --- channel accounts


class PostgresChannelAccounts:
    """Accounts at platforms. Each has a data key of its own, wrapped by a master key; it seals the account's credentials.

    Fails closed; running processes send and receive with what they read last."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def put(self, tx: Transaction, account: ChannelAccount) -> bool:
        """Store an account, in place of the one of that platform and name; return whether there was none."""
        place = {"platform": account.platform, "account": account.account}
        await execute(tx, CHANNEL_ACCOUNTS["add_account"], place)
        known: UUID | None = await fetch_value(tx, CHANNEL_ACCOUNTS["known"], place)
        id_ = known or account.id
        if known is None:
            await self._keyring.make(tx, id_)
        sealed = (await self._keyring.of(tx, id_)).seal(seal_label(id_), json.dumps(dict(account.about)).encode())
        await execute(tx, CHANNEL_ACCOUNTS["put"], {**place, "id": id_, "is_polled": account.is_polled, "about": sealed})
        return known is None

    async def get(self, tx: Transaction, platform: Platform, account: str) -> ChannelAccount:
        """Return an account; raise NotFound."""
        row = await fetch_row(tx, SealedAccount, CHANNEL_ACCOUNTS["get"], {"platform": platform, "account": account})
        if row is None:
            raise NotFound(f"there is no {platform} account {account}")
        return await self._read(tx, row)

    async def list(self, tx: Transaction) -> Sequence[ChannelAccount]:
        """Return all accounts, by platform and name. An account whose key is missing is left out, and logged."""
        found = []
        for row in await fetch_rows(tx, SealedAccount, CHANNEL_ACCOUNTS["list"]):
            try:
                found.append(await self._read(tx, row))
            except (SealError, UserErased) as error:
                log.warning("channel_account_unreadable", platform=row.platform, account=row.account, error=type(error).__name__)
        return found

    async def mark(self, tx: Transaction) -> str:
        """Return a text that is different after every change, so that a process knows when to read the accounts again."""
        return str(await fetch_value(tx, CHANNEL_ACCOUNTS["mark"]))

    async def remove(self, tx: Transaction, platform: Platform, account: str) -> bool:
        """Delete an account and its credentials; False if there was none. Conversations stay."""
        removed: UUID | None = await fetch_value(tx, CHANNEL_ACCOUNTS["remove"], {"platform": platform, "account": account})
        if removed is not None:
            await self._keyring.discard(tx, removed)
        return removed is not None

    async def _read(self, tx: Transaction, row: SealedAccount) -> ChannelAccount:
        about = json.loads((await self._keyring.of(tx, row.id)).open(seal_label(row.id), row.about))
        return ChannelAccount(platform=Platform(row.platform), account=row.account, about=about, is_polled=row.is_polled, id=row.id)


class SealedAccount(NamedTuple):
    """A channel account as it is stored."""

    id: UUID
    platform: str
    account: str
    is_polled: bool
    about: bytes


def seal_label(id_: UUID) -> str:
    return f"channel_accounts/{id_}"
