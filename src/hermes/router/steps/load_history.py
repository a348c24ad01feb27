"""Step 4: load the session's messages so far. A history that cannot be read is empty, and `is_missing` says so."""

from __future__ import annotations

from dataclasses import dataclass, replace

import structlog

from hermes.ports.errors import DataDamaged, NotFound
from hermes.ports.inbox import Claim
from hermes.ports.sessions import RecentHistory, Session
from hermes.router.compact_history import compact_history
from hermes.router.compaction_policy import CompactionPolicy
from hermes.router.model_call import make_caller
from hermes.router.services import Services
from hermes.router.steps.resolve_user import ResolvedUser

log = structlog.get_logger()


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
    past, compaction = await read_history(claim, services), services.compaction
    if compaction is None or past.is_missing or not compaction.is_due(past.history.messages, person.tier):
        return past
    if claim.envelope.is_shared:
        return without_oldest(past, compaction, person.tier)
    caller = replace(make_caller(claim, person, past.session.id), may_use_cache=False)
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


async def read_history(claim: Claim, services: Services) -> LoadedHistory:
    """Return the session's history as it is."""
    async with services.transactions.once() as tx:
        session = await services.sessions.find_current(tx, claim.conversation_id, is_shared=claim.envelope.is_shared)
    if session is None:
        async with services.transactions.begin() as tx:
            session = await services.sessions.current(tx, claim.conversation_id, claim.user_id, is_shared=claim.envelope.is_shared)
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
