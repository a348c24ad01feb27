"""What `/ready` asks besides the stores: whether a worker lives, and whether messages wait for too long.

Hermes accepts messages without a worker, and answers them later. So these parts never make it unavailable: it is `degraded`."""

from __future__ import annotations

from hermes.app.root import Hermes
from hermes.ports.processes import ProcessRole, ProcessState


class PartDegraded(Exception):
    """A part works less well than it should; the text says how, and names no host."""


async def check_workers(hermes: Hermes) -> None:
    """Raise PartDegraded unless a worker gives its beat and is not silent."""
    stalled_after_s = hermes.settings.work.stalled_after_s
    async with hermes.database.once() as tx:
        processes = await hermes.adapters.processes.all(tx)
    states = [process.state(stalled_after_s) for process in processes if process.role is ProcessRole.WORKER]
    if ProcessState.LIVE in states:
        return
    if ProcessState.SILENT in states:
        raise PartDegraded("no turn ends in any worker; messages are accepted and wait")
    raise PartDegraded(f"no worker gave a beat for {stalled_after_s:g} s; messages are accepted and wait")


async def check_queue(hermes: Hermes) -> None:
    """Raise PartDegraded if a message has waited for a worker for too long."""
    limit_s = hermes.settings.work.late_after_s
    async with hermes.database.once() as tx:
        waited_s = await hermes.work.oldest_turn_s(tx)
    if waited_s is not None and waited_s > limit_s:
        raise PartDegraded(f"the oldest message has waited for {waited_s:.0f} s")
