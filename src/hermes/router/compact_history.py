"""Compact a conversation that has grown too long for its model, before the call: an edit of its graph, which keeps every response that was
sampled before.

    too long?  →  load the graph  →  old tool output cut, the middle summarised  →  saved as a `compaction`

A summary by a model is paid once per turn, however often the turn is driven: it is an effect like any other. If the compaction fails, the
turn still answers: the model is shown the history as it is, and the next message tries again."""

from __future__ import annotations

import json

import structlog

from hermes.ports.credits import BudgetSpent, CallsPaused
from hermes.ports.errors import DataDamaged, NotFound, StaleHead
from hermes.ports.inbox import Claim
from hermes.ports.models import Caller, NoAnswer
from hermes.ports.sessions import Session
from hermes.router.compaction_policy import CompactionPolicy
from hermes.router.effects import EffectResult, Effects
from hermes.router.model_call import JournaledAnswer, ask_model
from hermes.router.services import Services
from hermes.trajectories.compress import compact_when_full
from hermes.trajectories.errors import SessionError
from hermes.trajectories.sampling_model import ModelFailed, SampledMessage, SampleRequest

log = structlog.get_logger()

STEP = "compact"


async def compact_history(claim: Claim, session: Session, caller: Caller, compaction: CompactionPolicy, services: Services) -> bool:
    """Compact a session's list; return whether it was compacted. Then the caller must read the list again.

    Raises ClaimLost and StoreUnavailable, and no error of the compaction itself."""
    if await has_called_model(claim, services):
        return False
    try:
        async with services.transactions.begin() as tx:
            graph = await services.graphs.load(tx, session.id)
        done = await compact_when_full(
            graph,
            compaction.settings,
            compaction.counter,
            compaction.summariser_for(TurnModel(claim, caller, services), caller.tier),
            limit_tokens=compaction.limit_of(caller.tier),
            sample_id=f"{claim.turn_id}/{STEP}",
        )
        if not done.was_compressed:
            return False
        async with services.transactions.begin() as tx:
            await services.inbox.hold(tx, claim)
            await services.graphs.save(tx, session.id, session.head, graph)
    except (StaleHead, NotFound, DataDamaged, SessionError) as error:
        log.warning("not_compacted", session_id=str(session.id), error=type(error).__name__)
        return False
    await services.histories.drop([session.id])
    log.info("compacted", session_id=str(session.id), before=done.original_tokens, after=done.compressed_tokens, by=done.summary)
    return True


async def has_called_model(claim: Claim, services: Services) -> bool:
    """Whether an earlier attempt has already asked the model: then its answer must stay under the list that it was shown."""
    if claim.attempt == 1:
        return False
    async with services.transactions.once() as tx:
        return await services.journal.effect(tx, claim.turn_id, "call_model", 0) is not None


class TurnModel:
    """A SamplingModel for one turn: calls go through the gateway, and the journal keeps each of them from being paid twice."""

    name = "router"

    def __init__(self, claim: Claim, caller: Caller, services: Services) -> None:
        self._claim, self._caller, self._services = claim, caller, services
        self._calls = 0

    async def sample(self, request: SampleRequest) -> SampledMessage:
        index, self._calls = self._calls, self._calls + 1
        prepared = json.dumps([dict(message) for message in request.messages], separators=(",", ":")).encode()

        async def run(body: bytes) -> EffectResult:
            return await ask_model(self._services, json.loads(body), self._caller, tools=(), max_tokens=request.max_tokens)

        effects = Effects(self._services.transactions, self._services.journal)
        try:
            answer = JournaledAnswer.from_bytes(await effects.once(self._claim, STEP, index, prepared, run, is_repeatable=True))
        except (BudgetSpent, CallsPaused) as error:
            raise ModelFailed(str(error), is_spent=True) from error
        except NoAnswer as error:
            raise ModelFailed(str(error)) from error
        return SampledMessage(answer.message, answer.record(()), answer.micro_usd)
