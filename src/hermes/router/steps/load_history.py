"""Step 4: load the session's messages so far. A history that cannot be read is empty, and `is_missing` says so.

A conversation that has grown too long for its model is compacted first: an edit of its graph, which keeps every response that was sampled
before.

    too long?  →  load the graph  →  old tool output cut, the middle summarised  →  saved as a `compaction`

A summary by a model is paid once per turn, however often the turn is driven: it is an effect like any other. If the compaction fails, the
turn still answers: the model is shown the history as it is, and the next message tries again."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import structlog

from hermes.ports.credits import BudgetSpent, CallsPaused
from hermes.ports.errors import DataDamaged, NotFound, StaleHead
from hermes.ports.inbox import Claim, TurnStart
from hermes.ports.models import Caller, CallPurpose, NoAnswer
from hermes.ports.session import Session
from hermes.ports.sessions import RecentHistory
from hermes.router.compaction_policy import CompactionPolicy
from hermes.router.effects import EffectResult, JournaledAnswer, OpenEffect, ask_model, call_once, make_caller
from hermes.router.services import Services
from hermes.router.steps.resolve_user import ResolvedUser
from hermes.trajectories.compress import compact_when_full
from hermes.trajectories.errors import SessionError
from hermes.trajectories.sampling_model import ModelFailed, SampledMessage, SampleRequest

log = structlog.get_logger()

COMPACT_STEP = "compact"


@dataclass(frozen=True, slots=True)
class LoadedHistory:
    """The session, and the last messages of its list, which are shown to the model."""

    session: Session
    history: RecentHistory
    is_missing: bool = False
    """It could not be read. The model is asked without it, and the turn is appended after all that is stored."""

    is_compacted: bool = False
    """It was too long for the model, and this turn shortened it."""

    @property
    def has_tools(self) -> bool:
        return any(message.get("tool_calls") or message.get("role") == "tool" for message in self.history.messages)


async def load_history(claim: Claim, person: ResolvedUser, services: Services) -> LoadedHistory:
    """Return the session's history, compacted first if it has grown too long for the model. Raises UserErased, and StoreUnavailable if the
    session itself cannot be read."""
    past, compaction = await read_history(claim, services, start=claim.start), services.compaction
    if compaction is None or past.is_missing or not compaction.is_due(past.history.messages, person.tier):
        return past
    if claim.envelope.is_shared:
        return without_oldest(past, compaction, person.tier)
    caller = replace(make_caller(claim, person, past.session.id, CallPurpose.COMPACT), may_use_cache=False)
    if await compact_history(claim, past.session, caller, compaction, services):
        return replace(await read_history(claim, services), is_compacted=True)
    return past


def without_oldest(past: LoadedHistory, compaction: CompactionPolicy, tier: str) -> LoadedHistory:
    """The history of a shared room without its oldest messages, so that it fits. It is not summarised: a summary would merge the words of
    several people, and a model could take one person's quotation for another person's words."""
    history = past.history
    kept = list(history.messages)
    while kept and not (kept[0].get("role") == "user" and compaction.fits(kept, tier)):
        kept.pop(0)
    left_out = len(history.messages) - len(kept)
    return replace(past, history=RecentHistory(tuple(kept), history.head, history.offset + left_out), is_compacted=True)


async def read_history(claim: Claim, services: Services, *, start: TurnStart | None = None) -> LoadedHistory:
    """Return the session's history as it is; with `start`, of the session that the claim found."""
    session = start.session if start is not None else None
    if session is None or session.is_shared != claim.envelope.is_shared:
        session = await find_session(claim, services)
    try:
        return LoadedHistory(session, await services.histories.read(claim.envelope.conversation_key, session))
    except NotFound:
        log.warning("history_missing", session_id=str(session.id))
        return LoadedHistory(session, RecentHistory((), session.head, session.length), is_missing=True)
    except DataDamaged:
        # No turn can be appended to a damaged list. The conversation goes on in a new session, and an alert tells the operator.
        services.alerts.alert("history_damaged", session_id=str(session.id))
        async with services.transactions.begin() as tx:
            session = await services.sessions.begin(tx, session, claim.user_id)
        return LoadedHistory(session, RecentHistory((), session.head), is_missing=True)


async def find_session(claim: Claim, services: Services) -> Session:
    """Return the session that the message belongs to now; begin one if none goes on."""
    async with services.transactions.once() as tx:
        session = await services.sessions.find_current(tx, claim.conversation_id, is_shared=claim.envelope.is_shared)
    if session is not None:
        return session
    async with services.transactions.begin() as tx:
        return await services.sessions.current(tx, claim.conversation_id, claim.user_id, is_shared=claim.envelope.is_shared)


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
            sample_id=f"{claim.turn_id}/{COMPACT_STEP}",
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

        async def run(body: bytes, effect: OpenEffect) -> EffectResult:
            return await ask_model(effect, json.loads(body), self._caller, tools=(), max_tokens=request.max_tokens)

        try:
            _, answered = await call_once(self._claim, COMPACT_STEP, index, prepared, run, services=self._services)
        except (BudgetSpent, CallsPaused) as error:
            raise ModelFailed(str(error), is_spent=True) from error
        except NoAnswer as error:
            raise ModelFailed(str(error)) from error
        answer = JournaledAnswer.from_bytes(answered)
        return SampledMessage(answer.message, answer.record(()), answer.micro_usd)
