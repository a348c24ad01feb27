"""A model of the settings, for batches and summaries: the `SamplingModel` of trajectories/, with the whole gateway behind it.

async with open_model(settings, "claude-haiku") as model:
    message = await model.sample(SampleRequest(messages=[…], sample_id="a/0/1"))

Every call passes the kill switch and the global daily cap, is priced, and has its row under the source `batch`. The gateway answers none
of them from its cache, and asks for token ids wherever a server has them. A user of the account pays, in the tier `batch`. If the settings
have no tier of that name, the global cap and the run's own budget are the only limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from hermes.app.adapters import Adapters, open_adapters
from hermes.app.catalogue import UNLIMITED_TOKENS, backend_kind, backends_of, missing_backends, models_of
from hermes.app.gateway import ModelServices, open_models
from hermes.app.redis_client import redis_client
from hermes.app.root import model_adapters
from hermes.app.stores import open_database_and_keys
from hermes.backends import HttpClient
from hermes.config import BackendKind, Settings, TierSettings, nearest
from hermes.config.models import variable_name
from hermes.config.values import NamedTables
from hermes.gateway.chat_request import NO_TOKEN_LIMIT, ChatRequest
from hermes.gateway.client_chats import record_of
from hermes.gateway.gateway import Gateway
from hermes.gateway.slots import max_slots_per_backend
from hermes.graph import CallRecord
from hermes.ops.metrics import Metrics
from hermes.ports.backends import BackendError, BadRequest, ContextTooLong, ModelRequest, RateLimited, Unauthorized, Unsupported
from hermes.ports.credits import BudgetSpent, CallsPaused
from hermes.ports.errors import PortError, StartRefused
from hermes.ports.models import Answer, Caller, CallOutcome, CallPurpose, CallSource, ChainFailed, ModelCall, NoAnswer, UnknownPrice
from hermes.ports.users import UserState
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.keyring import Keyring
from hermes.trajectories.sampling_model import ModelFailed, SampledMessage, SampleRequest, SamplingModel
from hermes.turn import Platform

BATCH_TIER = "batch"
BATCH_SENDER = "batch"
"""The sender id of the user who pays. Ids of an account's other OpenAI clients are longer: they begin with the id of an API key."""
MAX_RETRY_AFTER_S = 120.0
"""The longest pause that a vendor's `Retry-After` may cause for the next calls."""
MIN_REDIS_TIMEOUT_S = 10.0
PERMANENT_ERRORS = (BadRequest, ContextTooLong, Unsupported)
"""Errors that the same request would meet again."""


@asynccontextmanager
async def open_model(settings: Settings, name: str, *, account: str = "batch") -> AsyncIterator[SamplingModel]:
    """Open the stores of the settings and one model of the catalogue, for as long as the block lasts.

    As many calls run at the same time as the model's backend has slots; a further caller waits, however long it takes. Raises StartRefused
    for a model that does not exist or cannot be asked: no stand-in answers for it, because a made-up answer is worse than none."""
    async with open_batch_services(settings, name) as services:
        yield await make_batch_model(services, name, account=account)


@dataclass(frozen=True, slots=True)
class BatchServices:
    """What a batch needs: the settings, the adapters, the database with its keys, the metrics and the models."""

    settings: Settings
    adapters: Adapters
    database: Database
    keyring: Keyring
    metrics: Metrics
    models: ModelServices


@asynccontextmanager
async def open_batch_services(settings: Settings, name: str) -> AsyncIterator[BatchServices]:
    """Open the stores and the gateway, without intake and without a worker. Raises as `open_model` does."""
    refuse_unusable_model(settings, name)
    settings = with_longer_redis_timeout(with_batch_tier(settings, name))
    async with AsyncExitStack() as stack:
        pool = settings.database
        addresses, database, keyring = await stack.enter_async_context(
            open_database_and_keys(settings, pool_min=pool.pool_min, pool_max=pool.pool_max)
        )
        client = redis_client(addresses.redis_url, settings)
        stack.push_async_callback(client.aclose)
        metrics, http = Metrics(), HttpClient()
        stack.push_async_callback(http.aclose)
        adapters = await stack.enter_async_context(open_adapters(settings, database, keyring, client, metrics=metrics, http=http))
        models = await stack.enter_async_context(open_models(settings, model_adapters(adapters), database, metrics, http))
        yield BatchServices(settings, adapters, database, keyring, metrics, models)


async def make_batch_model(services: BatchServices, name: str, *, account: str = "batch") -> GatewayModel:
    """Return one model of open services. The account's user pays for it. The first call creates that user, who allows training: the prompts
    are the operator's."""
    async with services.database.begin() as tx:
        people = services.adapters.people
        user, is_new = await people.find_or_create(tx, account, Platform.COMPLETIONS, BATCH_SENDER, state=UserState.ACTIVE)
        if is_new:
            await people.allow_training(tx, user.id, trains=True)
    return GatewayModel(
        name,
        services.models.gateway,
        account=account,
        user_id=user.id,
        deadline_s=services.settings.completions.deadline_s,
        at_once=max_concurrent_calls(services.settings, name),
    )


def refuse_unusable_model(settings: Settings, name: str) -> None:
    """Raise StartRefused for a model that is not in the catalogue, and for one whose backend cannot be asked."""
    known = models_of(settings)
    if name not in known:
        raise StartRefused(f"there is no model {name}; did you mean {nearest(name, known)}? There are {', '.join(known)}")
    backend = known[name].backend
    reason = missing_backends(settings).get(backend)
    if reason is not None:
        variable = f"HERMES_BACKENDS_{variable_name(backend)}_API_KEY"
        raise StartRefused(f"{name} cannot be asked: {backend} has {reason}; set {variable}, or try the model `scripted`, which needs none")


def with_batch_tier(settings: Settings, name: str) -> Settings:
    """Return the same settings, with a tier for batches if they have none."""
    if BATCH_TIER in settings.tiers:
        return settings
    return replace(settings, tiers=NamedTables({**settings.tiers, BATCH_TIER: TierSettings(chain=(name,), day_tokens=UNLIMITED_TOKENS)}))


def with_longer_redis_timeout(settings: Settings) -> Settings:
    """Return the same settings, with more time for Redis: no user waits for a batch's answer, and a refused call is made again."""
    return replace(settings, redis=replace(settings.redis, timeout_s=max(settings.redis.timeout_s, MIN_REDIS_TIMEOUT_S)))


def max_concurrent_calls(settings: Settings, name: str) -> int:
    """How many calls of a model may run at the same time in this process. More would wait for a slot, and be refused after a while."""
    backend = models_of(settings)[name].backend
    backends = backends_of(settings)
    if backend_kind(backends, backend) is BackendKind.LOCAL:
        return 1  # it takes one call at a time, and the waiting of the others would count against their own deadlines
    return max_slots_per_backend(settings.llm.slots, backends[backend].slots)


class GatewayModel:
    """A SamplingModel for one model of the catalogue, without fallbacks: a sample of another model would be recorded under a wrong name."""

    def __init__(self, name: str, gateway: Gateway, *, account: str, user_id: UUID, deadline_s: float, at_once: int) -> None:
        """`deadline_s` is for requests without a timeout. Calls beyond `at_once` wait here, before the gateway's own slots."""
        self.name, self.gateway, self.account, self.user_id = name, gateway, account, user_id
        self.deadline_s, self.at_once = deadline_s, at_once
        self._places, self._pause = asyncio.Semaphore(at_once), RetryAfterPause()

    @property
    def max_tokens(self) -> int:
        """The longest answer that the settings allow; no request gets more."""
        return self.gateway.catalogue.models[self.name].max_tokens

    async def sample(self, request: SampleRequest) -> SampledMessage:
        """Return one answer; raise ModelFailed. The wait for a free place is not part of the request's time."""
        async with self._places:
            await self._pause.wait()
            try:
                answer = await self.gateway.complete(self._model_request(request), self._caller(request))
            except (NoAnswer, BackendError, PortError) as error:
                if isinstance(error, ChainFailed):
                    self._pause.note(error.last)
                raise model_failure(error) from error
        return SampledMessage(answer.completion.message, self._record(request, answer), answer.micro_usd)

    def _model_request(self, request: SampleRequest) -> ModelRequest:
        return ModelRequest(
            messages=request.messages,
            max_tokens=request.max_tokens or NO_TOKEN_LIMIT,
            tools=request.tools,
            sampling=request.sampling,
            wants_tokens=True,
            user=str(self.user_id),
            cwd=None if request.cwd is None else Path(request.cwd),
        )

    def _caller(self, request: SampleRequest) -> Caller:
        return Caller(
            user_id=self.user_id,
            account=self.account,
            tier=BATCH_TIER,
            source=CallSource.BATCH,
            purpose=CallPurpose.BATCH,
            may_use_cache=False,
            models=(self.name,),
            deadline_s=self.deadline_s if request.timeout_s is None else request.timeout_s,
        )

    def _record(self, request: SampleRequest, answer: Answer) -> CallRecord:
        """Return the record that /v1/chat/completions would write, under the caller's own id for the sample."""
        chat_request = ChatRequest(
            model=self.name,
            messages=request.messages,
            max_tokens=request.max_tokens,
            tools=request.tools,
            sampling=request.sampling,
            metadata={},
        )
        call = ModelCall(
            id=answer.call_id,
            day=self.gateway.clock.now().date(),
            account_id=self.account,
            source=CallSource.BATCH,
            tier=BATCH_TIER,
            model=answer.model,
            outcome=CallOutcome.ANSWERED,
            latency_ms=answer.latency_ms,
            backend=answer.backend,
            micro_usd=answer.micro_usd,
        )
        record = record_of(chat_request, call, answer.completion, self.gateway.catalogue.limits)
        sent = {"reasoning_sent": True} if answer.completion.is_reasoning_sent else {}
        return replace(record, sample_id=request.sample_id, extra={**(record.extra or {}), **sent})


class RetryAfterPause:
    """Holds back the next calls for as long as a vendor's `Retry-After` says, because the vendor would refuse them too."""

    def __init__(self) -> None:
        self._until = 0.0

    def note(self, error: BackendError | None) -> None:
        if isinstance(error, RateLimited) and error.retry_after_s is not None and not error.is_exhausted:
            self._until = max(self._until, time.monotonic() + min(error.retry_after_s, MAX_RETRY_AFTER_S))

    async def wait(self) -> None:
        while (left_s := self._until - time.monotonic()) > 0:  # noqa: ASYNC110  # another call may prolong it meanwhile
            await asyncio.sleep(left_s)


def model_failure(error: Exception) -> ModelFailed:
    """Translate a failed call: may the caller try it again, and may other calls still succeed?"""
    last = error.last if isinstance(error, ChainFailed) else error
    # A wrong key, an unpaid bill, a kill switch that an operator must release: every other request would fail too.
    is_spent = isinstance(last, BudgetSpent | CallsPaused | UnknownPrice | Unauthorized) or (
        isinstance(last, RateLimited) and last.is_exhausted
    )
    is_refused = isinstance(error, ChainFailed) and last is None  # the gateway skipped the model, for instance because it takes no tools
    return ModelFailed(str(error), is_final=is_refused or isinstance(last, PERMANENT_ERRORS), is_spent=is_spent)
