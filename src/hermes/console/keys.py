"""API keys as operators see them, with what they cost; and how an owner makes and revokes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from hermes.console.access import ConsoleAccess, Subject
from hermes.console.key_limits import ShownLimit, change_limits, show_limits
from hermes.ports.costs import Costs
from hermes.ports.errors import NotFound, PortError, StoreUnavailable, require_known
from hermes.ports.key_limits import NO_LIMITS, InvalidLimit, KeyLimits
from hermes.ports.key_use import KeyUsage, KeyUse
from hermes.ports.operators import Actor, Role
from hermes.ports.runtime import Transactions
from hermes.ports.users import KEY_SCOPES, OPERATOR_SCOPES, ApiKey, ApiKeys

PAGE = 50
MAX_NAME_CHARS = 100
SPEND_DAYS = 30


class KeyRefused(PortError):
    """A field of the form cannot be used; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class KeySummary:
    """A key, with what its calls cost."""

    key: ApiKey
    today: int
    """Micro-dollars since midnight (UTC)."""
    month: int
    """Micro-dollars of the last 30 days."""
    used: KeyUsage | None = None
    """What counts against its limits now; None for a key without limits, and while the counters are away."""

    is_expired: bool = False

    @property
    def limits(self) -> list[ShownLimit]:
        """Its limits, with what is used of them."""
        return [each for each in show_limits(self.key.limits, self.used) if each.limit]


@dataclass(frozen=True, slots=True)
class KeysPage:
    """One page of keys."""

    keys: Sequence[KeySummary]
    next: UUID | None
    """The last key of the page, if there are more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyForm:
    """What an owner asks for."""

    name: str
    account: str
    tier: str | None = None
    trains: bool = False
    scopes: Sequence[str] | None = None
    """None: all but `ops`."""
    channels: Sequence[str] | None = None
    limits: Mapping[str, str] = field(default_factory=dict)
    """By the names of the options of `hermes keys create`, as the owner wrote them."""


class ConsoleKeys:
    """Reads, makes and revokes API keys. Every act is checked and audited first; no secret is ever audited."""

    def __init__(
        self,
        transactions: Transactions,
        api_keys: ApiKeys,
        costs: Costs,
        access: ConsoleAccess,
        *,
        use: KeyUse,
        tiers: Collection[str],
        usual: KeyLimits,
        now: Callable[[], datetime],
    ) -> None:
        """`usual` are the limits of a key for which the owner names no others."""
        self._transactions, self._api_keys, self._costs, self._access, self._now = transactions, api_keys, costs, access, now
        self._use, self.tiers, self.usual = use, sorted(tiers), usual

    async def list(self, actor: Actor, *, before: UUID | None = None) -> KeysPage:
        """Return keys of the accounts that the operator sees, the newest first, also revoked ones."""
        midnight = self._now().replace(hour=0, minute=0, second=0, microsecond=0)
        month = midnight - timedelta(days=SPEND_DAYS - 1)
        async with self._transactions.begin() as tx:
            seen = [key for key in await self._api_keys.list(tx) if actor.operator.sees(key.account)]
            places = {key.id: place for place, key in enumerate(seen)}
            begin = 0 if before is None else places.get(before, len(seen)) + 1
            shown = seen[begin : begin + PAGE]
            spent = {
                each.api_key_id: each for each in await self._costs.of_keys(tx, [key.id for key in shown], today=midnight, month=month)
            }
        used = await asyncio.gather(*(self._read_usage(key) for key in shown))
        keys = [
            KeySummary(
                key,
                spent[key.id].today if key.id in spent else 0,
                spent[key.id].month if key.id in spent else 0,
                usage,
                is_expired=key.limits.expires_at is not None and key.limits.expires_at <= self._now(),
            )
            for key, usage in zip(shown, used, strict=True)
        ]
        return KeysPage(keys, shown[-1].id if len(seen) > begin + PAGE else None)

    async def _read_usage(self, key: ApiKey) -> KeyUsage | None:
        if key.revoked_at is not None or key.limits == NO_LIMITS:
            return None
        try:
            return await self._use.used(key.id)
        except StoreUnavailable:
            return None

    async def create(self, actor: Actor, form: KeyForm) -> tuple[ApiKey, str]:
        """Make a key; the second value is the secret, which is returned only this once. Raises KeyRefused, NotFound, AccessRefused."""
        facts = {
            "name": form.name[:MAX_NAME_CHARS],
            "scopes": None if form.scopes is None else [scope[:40] for scope in form.scopes[:20]],
            "tier": form.tier,
            "trains": form.trains,
            "limits": {name: text[:MAX_NAME_CHARS] for name, text in form.limits.items()},
        }
        subject = Subject(kind="key", id=form.name[:MAX_NAME_CHARS], account=form.account[:MAX_NAME_CHARS])
        await self._access.permit(actor, Role.OWNER, "key.create", subject, facts=facts)
        check_form(form)
        if form.tier is not None:
            require_known(form.tier, self.tiers, "tier")
        if actor.operator.accounts is not None and OPERATOR_SCOPES & {*(form.scopes or ())}:
            raise KeyRefused("a key with the scope ops sees all accounts; an operator of single accounts cannot make one")
        try:
            limits = change_limits(self.usual, form.limits, self._now())
        except InvalidLimit as error:
            raise KeyRefused(str(error)) from None
        async with self._transactions.begin() as tx:
            return await self._api_keys.create(
                tx, form.name, form.account, tier=form.tier, trains=form.trains, scopes=form.scopes, channels=form.channels, limits=limits
            )

    async def revoke(self, actor: Actor, key_id: UUID, typed: str) -> ApiKey:
        """Revoke a key; repeating it changes nothing. `typed` is its name as the operator typed it.

        Raises KeyRefused if it is another, NotFound, AccessRefused."""
        async with self._transactions.begin() as tx:
            key = next((key for key in await self._api_keys.list(tx) if key.id == key_id), None)
        if key is None or not actor.operator.sees(key.account):
            raise NotFound(f"there is no API key {key_id}")
        await self._access.permit(
            actor, Role.OWNER, "key.revoke", Subject(kind="key", id=str(key.id), account=key.account), facts={"name": key.name}
        )
        if typed.strip() != key.name.strip():
            raise KeyRefused("nothing was revoked: the name that you typed is another one")
        async with self._transactions.begin() as tx:
            return await self._api_keys.revoke(tx, str(key.id))


def check_form(form: KeyForm) -> None:
    """Raise KeyRefused for a form that makes no key."""
    for what, text in (("name", form.name), ("account", form.account)):
        if not text or len(text) > MAX_NAME_CHARS or not text.isprintable():
            raise KeyRefused(f"the {what} of a key is one line of 1 to {MAX_NAME_CHARS} characters")
    for scope in form.scopes or ():
        if scope not in KEY_SCOPES:
            raise KeyRefused(f"there is no scope {scope[:40]!r}; expected {', '.join(KEY_SCOPES)}")
