"""A swap, a health check and a line of the fleet's history as JSON, for the command line and for HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes.ports.backends import BackendFinding
from hermes.ports.users import FleetEvent

if TYPE_CHECKING:
    from hermes.gateway.fleet import SwapFailed, SwapResult


def swap_json(done: SwapResult | SwapFailed, adapter: str | None) -> dict[str, Any]:
    if not isinstance(done, Exception):
        agent, old, outcome, reason, checks = done.agent, done.old, "swapped" if done.is_changed else "unchanged", "", done.checks
    else:
        agent, old, reason, checks = done.agent, done.agent.adapter, done.because.reason, tuple(done.because.checks)
        outcome = done.because.kind.removeprefix("adapter_")
    return {"agent": agent.name, "outcome": outcome, "from": old, "to": adapter, "reason": reason, "checks": checks_json(checks)}


def fleet_event_json(event: FleetEvent) -> dict[str, Any]:
    plain = {name: getattr(event, name) for name in ("agent", "kind", "reason", "by", "epoch")}
    return {
        "id": str(event.id),
        "at": event.at.isoformat(),
        **plain,
        "from": event.old,
        "to": event.new,
        "checks": checks_json(event.checks),
    }


def checks_json(checks: Sequence[BackendFinding]) -> list[dict[str, Any]]:
    return [asdict(check) for check in checks]
