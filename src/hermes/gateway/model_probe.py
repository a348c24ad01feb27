"""The call that finds out whether a model answers again that timed out: a small one of its own, beside the caller's.

A model that times out costs its caller the whole wait for a first token. That wait is paid once: while the model's breaker is open, no
caller waits for it again, and the one whose call finds it due goes on to the next model at once."""

from __future__ import annotations

from dataclasses import replace

from hermes.gateway.chain import ChainLink
from hermes.ports.backends import ModelRequest
from hermes.ports.models import Caller, CallPurpose, CallSource

PROBE = ModelRequest(messages=({"role": "user", "content": "Answer with one word: ready"},), max_tokens=16)


def probe_caller(caller: Caller, link: ChainLink, deadline_s: float) -> Caller:
    """The caller of a probe: only this model, for as long as it may take to its first token. The user whose call found it due pays its
    some twenty tokens; their API key, agent and turn do not."""
    return replace(
        caller,
        source=CallSource.CANARY,
        purpose=CallPurpose.CANARY,
        api_key_id=None,
        turn_id=None,
        session_id=None,
        agent=None,
        may_use_cache=False,
        models=(link.name,),
        deadline_s=min(deadline_s, link.patience.first_token_s),
    )
