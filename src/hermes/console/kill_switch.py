"""The kill switch for operators: they stop all model calls with a reason, owners allow them again, and the audit log has both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from hermes.console.access import ConsoleAccess, Subject, refuse_act
from hermes.ports.credits import CallsPaused, GlobalSpend, KillSwitchHistory, KillSwitchRecord, KillSwitchUse, PauseReason
from hermes.ports.errors import StoreUnavailable
from hermes.ports.operators import Actor, Role
from hermes.ports.runtime import Transactions

SHOWN_USES = 20
"""How many uses of the kill switch are shown."""
KILL_SWITCH = Subject(kind="setting", id="kill_switch")
ENGAGE_ACTION, RELEASE_ACTION = "kill_switch.on", "kill_switch.off"


@dataclass(frozen=True, slots=True)
class KillSwitchState:
    """Whether calls are stopped, and how often they were."""

    engaged: KillSwitchRecord | None
    capped_until: datetime | None
    """When the daily cap, if it is reached, ends."""
    uses: Sequence[KillSwitchUse]


class KillSwitchControl:
    """Stops all model calls, and allows them again."""

    def __init__(
        self,
        access: ConsoleAccess,
        transactions: Transactions,
        spend: GlobalSpend,
        history: KillSwitchHistory,
        *,
        cap_micro_usd: int | None,
    ) -> None:
        self._access, self._transactions, self._spend, self._history = access, transactions, spend, history
        self._cap_micro_usd = cap_micro_usd

    async def read(self) -> KillSwitchState:
        """Return what stops calls now, and the uses of the kill switch. Raises StoreUnavailable."""
        async with self._transactions.begin() as tx:
            uses = await self._history.list(tx, limit=SHOWN_USES)
        engaged = next((use for use in uses if use.released_at is None), None)
        if engaged is not None:
            return KillSwitchState(KillSwitchRecord(engaged.engaged_at, engaged.by, engaged.reason), None, uses)
        return KillSwitchState(None, await self._find_cap_end(), uses)

    async def _find_cap_end(self) -> datetime | None:
        try:
            await self._spend.admit(self._cap_micro_usd)
        except CallsPaused as paused:
            return paused.until if paused.reason is PauseReason.CAP else None
        return None

    async def engage(self, actor: Actor, reason: str, *, by: str = "") -> None:
        """Stop all model calls: `engage_kill_switch`."""
        await engage_kill_switch(self._access, self._spend.kill_switch, actor, reason, by=by)

    async def release(self, actor: Actor, *, by: str = "") -> None:
        """Allow model calls again, for owners. Raises AccessRefused."""
        await self._access.permit(actor, Role.OWNER, RELEASE_ACTION, KILL_SWITCH)
        await self._spend.release(by or actor.operator.name)


async def engage_kill_switch(
    access: ConsoleAccess, engage: Callable[[str, str], Awaitable[None]], actor: Actor, reason: str, *, by: str = ""
) -> None:
    """Stop all model calls, for operators. `by` stands in the record instead of the operator's name. Raises AccessRefused.

    `engage` takes the reason and the name. If the audit log cannot be written, calls are stopped all the same, where they can be; then it
    raises StoreUnavailable: the switch is there for the worst hour, and an entry is not worth a bill."""
    try:
        await access.permit(actor, Role.OPERATOR, ENGAGE_ACTION, KILL_SWITCH, reason=reason)
    except StoreUnavailable:
        if refuse_act(actor, Role.OPERATOR, ENGAGE_ACTION, KILL_SWITCH) is None:
            await engage(reason, by or actor.operator.name)
        raise
    await engage(reason, by or actor.operator.name)
