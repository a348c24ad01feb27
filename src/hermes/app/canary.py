"""The canary of a swap: one small real call through an agent's new adapter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hermes.app.root import Hermes
from hermes.gateway.fleet import Canary
from hermes.ports.backends import ModelRequest
from hermes.ports.models import Caller, CallPurpose, CallSource
from hermes.ports.users import Agent, UserState
from hermes.turn import Platform

CANARY = ModelRequest(messages=({"role": "user", "content": "Answer with one word: ready"},), max_tokens=256)
CANARY_ACCOUNT, CANARY_SENDER = "fleet", "canary"
"""The user of the canary calls: a user of its own, with rows and a budget like every user."""


def canary_of(hermes: Hermes) -> Canary:
    """Return a function that makes a small real call through the gateway: only to the agent's adapter, in its folder, paid and recorded."""

    async def canary(agent: Agent) -> None:
        async with hermes.database.begin() as tx:
            user, _ = await hermes.adapters.people.find_or_create(tx, CANARY_ACCOUNT, Platform.REST, CANARY_SENDER, state=UserState.ACTIVE)
        tiers = hermes.gateway.catalogue.tiers
        caller = Caller(
            user_id=user.id,
            account=CANARY_ACCOUNT,
            tier=agent.tier or (user.tier if user.tier in tiers else next(iter(tiers))),
            source=CallSource.CANARY,
            purpose=CallPurpose.CANARY,
            agent=agent.name,
            uses_adapter=False,  # only the models below
            may_use_cache=False,
            models=None if agent.adapter is None else (agent.adapter,),
        )
        await hermes.gateway.complete(replace(CANARY, cwd=Path(agent.cwd) if agent.cwd else None), caller)

    return canary
