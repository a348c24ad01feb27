"""A model of the settings, for batches and summaries: trajectories' own small `Model`, with the whole gateway behind it.

async with open_model(settings, "claude-haiku") as model:
    said = await model.sample(Request(messages=[…], sample_id="a/0/1"))

Every call passes the kill switch and the platform's cap, is priced, and has its row under the source `batch`; none is answered out of the
cache, and token ids are asked for wherever a server has them. A user of the account's own pays, in a tier `batch`: where the settings have
none of that name, the platform's cap and the run's own budget are its only limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from uuid import UUID

from hermes.app.adapters import Adapters, adapters_from
from hermes.app.gateway import ModelServices, SystemClock, open_models
from hermes.app.home import StartRefused
from hermes.app.models import UNLIMITED_TOKENS, backend_kind, backends_of, missing_backends, models_of
from hermes.app.root import model_adapters, open_database_and_keys, redis_client
from hermes.backends import HttpClient
from hermes.backends.image_fetch import PublicImageFetcher
from hermes.config import BackendKind, Settings, TierSettings, nearest
from hermes.config.models import variable_name
from hermes.config.named_tables import NamedTables
from hermes.gateway.client_chats.recording import record_of
from hermes.gateway.client_chats.request import NO_TOKEN_LIMIT, ChatRequest
from hermes.gateway.gateway import Gateway
from hermes.gateway.slots import max_slots_per_backend
from hermes.graph import CallRecord
from hermes.ops.alerts import LogAlerts
from hermes.ops.metrics import Metrics
from hermes.ports.backends import BackendError, BadRequest, ContextTooLong, ModelRequest, RateLimited, Unauthorized, Unsupported
from hermes.ports.budgets import BudgetSpent, CallsPaused
from hermes.ports.errors import PortError
from hermes.ports.model_calls import CallOutcome, CallSource, ModelCall
from hermes.ports.models import Answer, Caller, ChainFailed, NoAnswer, UnknownPrice
from hermes.ports.users import UserState
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.redis.answer_signals import RedisAnswerSignals
from hermes.stores.redis.budgets import RedisBudgets
from hermes.stores.redis.script_batch import ScriptBatch
from hermes.trajectories.sampling_model import ModelFailed, SampledMessage, SampleRequest, SamplingModel
from hermes.turn import Platform

BATCH_TIER = "batch"
BATCH_SENDER = "batch"
"""Who pays, by the name that an account's door knows them under. Names of its other users are longer: they begin with a key's id."""
MAX_RETRY_AFTER_S = 120.0
"""The most that a vendor's own `Retry-After` holds up the calls behind it."""
MIN_REDIS_TIMEOUT_S = 10.0
PERMANENT_ERRORS = (BadRequest, ContextTooLong, Unsupported)
"""What the same request meets again."""


@asynccontextmanager
async def open_model(settings: Settings, name: str, *, account: str = "batch") -> AsyncIterator[SamplingModel]:
    """Open the stores that the settings name and the way to one model of the catalogue, for as long as the block lasts.

    As many calls as its backend has slots run at once; a caller beyond that waits its turn, however long it takes. Raises StartRefused
    for a model that is not there or cannot be asked: nothing stands in for it, because a made-up answer is worse than none."""
    async with open_batch_services(settings, name) as services:
        yield await make_batch_model(services, name, account=account)


@dataclass(frozen=True, slots=True)
class BatchServices:
    """What a batch stands on: the stores, what is behind the ports, and the way to the models."""

    settings: Settings
    adapters: Adapters
    database: Database
    metrics: Metrics
    models: ModelServices


@asynccontextmanager
async def open_batch_services(settings: Settings, name: str) -> AsyncIterator[BatchServices]:
    """Open stores and gateway without anything that takes messages in or works on turns. Raises as `open_model` does."""
    refuse_unusable_model(settings, name)
    settings = with_longer_redis_timeout(with_batch_tier(settings, name))
    async with AsyncExitStack() as stack:
        pool = settings.database
        addresses, database, keyring = await stack.enter_async_context(
            open_database_and_keys(settings, pool_min=pool.pool_min, pool_max=pool.pool_max)
        )
        client = redis_client(addresses.redis_url, settings)
        stack.push_async_callback(client.aclose)
        metrics = Metrics()
        alerts, batch, replies = LogAlerts(metrics), ScriptBatch(client), RedisAnswerSignals(client)
        stack.push_async_callback(replies.aclose)
        budgets = RedisBudgets(client, database, PostgresModelCalls(), alerts=alerts, clock=SystemClock(), batch=batch)
        stack.push_async_callback(budgets.aclose)
        http = HttpClient()
        stack.push_async_callback(http.aclose)
        web = PublicImageFetcher(max_bytes=settings.images.max_bytes, timeout_s=settings.images.timeout_s)
        stack.push_async_callback(web.aclose)
        adapters = adapters_from(
            settings, database, keyring, client, http=http, web=web, replies=replies, alerts=alerts, budgets=budgets, batch=batch
        )
        models = await stack.enter_async_context(open_models(settings, model_adapters(adapters), database, metrics, http))
        yield BatchServices(settings, adapters, database, metrics, models)


async def make_batch_model(services: BatchServices, name: str, *, account: str = "batch") -> GatewayModel:
    """One model of an open services, paid by the account's own user, who is met now and allows training: the prompts are the operator's."""
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
    """Raise StartRefused for a model that nobody knows, and for one whose backend cannot be asked."""
    known = models_of(settings)
    if name not in known:
        raise StartRefused(f"there is no model {name}; did you mean {nearest(name, known)}? There are {', '.join(known)}")
    backend = known[name].backend
    why = missing_backends(settings).get(backend)
    if why is not None:
        variable = f"HERMES_BACKENDS_{variable_name(backend)}_API_KEY"
        raise StartRefused(f"{name} cannot be asked: {backend} has {why}; set {variable}, or try the model `scripted`, which needs none")


def with_batch_tier(settings: Settings, name: str) -> Settings:
    """The same settings, with a tier for batches where they have none."""
    if BATCH_TIER in settings.tiers:
        return settings
    return replace(settings, tiers=NamedTables({**settings.tiers, BATCH_TIER: TierSettings(chain=(name,), day_tokens=UNLIMITED_TOKENS)}))


def with_longer_redis_timeout(settings: Settings) -> Settings:
    """The same settings, with more time for Redis: nobody waits for a batch's answer, and a call that is refused is made again."""
    return replace(settings, redis=replace(settings.redis, timeout_s=max(settings.redis.timeout_s, MIN_REDIS_TIMEOUT_S)))


def max_concurrent_calls(settings: Settings, name: str) -> int:
    """How many calls of a model may run at once in this process: more would wait for a slot, and be refused after a while."""
    backend = models_of(settings)[name].backend
    backends = backends_of(settings)
    if backend_kind(backends, backend) is BackendKind.LOCAL:
        return 1  # it takes one at a time, and the others' waiting would count against their own deadlines
    return max_slots_per_backend(settings.llm.slots, backends[backend].slots)


class GatewayModel:
    """Trajectories' Model, for one model of the catalogue and nobody behind it: a sample of another one would be a lie."""

    def __init__(self, name: str, gateway: Gateway, *, account: str, user_id: UUID, deadline_s: float, at_once: int) -> None:
        """`deadline_s` is for requests that say nothing of their time; more than `at_once` wait here, before the gateway's own slots."""
        self.name, self.gateway, self.account, self.user_id = name, gateway, account, user_id
        self.deadline_s, self.at_once = deadline_s, at_once
        self._turns, self._pause = asyncio.Semaphore(at_once), RetryAfterPause()

    @property
    def max_tokens(self) -> int:
        """The longest answer that the settings pay for; no request gets more."""
        return self.gateway.catalogue.models[self.name].max_tokens

    async def sample(self, request: SampleRequest) -> SampledMessage:
        """Return one answer; raise ModelFailed. Waiting for one's turn is not part of the request's time."""
        async with self._turns:
            await self._pause.over()
            try:
                answer = await self.gateway.complete(self._ask(request), self._caller(request))
            except (NoAnswer, BackendError, PortError) as error:
                if isinstance(error, ChainFailed):
                    self._pause.note(error.last)
                raise model_failure(error) from error
        return SampledMessage(answer.completion.message, self._record(request, answer), answer.micro_usd)

    def _ask(self, request: SampleRequest) -> ModelRequest:
        return ModelRequest(
            messages=request.messages,
            max_tokens=request.max_tokens or NO_TOKEN_LIMIT,
            tools=request.tools,
            sampling=request.sampling,
            wants_tokens=True,
            user=str(self.user_id),
        )

    def _caller(self, request: SampleRequest) -> Caller:
        return Caller(
            user_id=self.user_id,
            account=self.account,
            tier=BATCH_TIER,
            source=CallSource.BATCH,
            may_use_cache=False,
            models=(self.name,),
            deadline_s=self.deadline_s if request.timeout_s is None else request.timeout_s,
        )

    def _record(self, request: SampleRequest, answer: Answer) -> CallRecord:
        """What the door would record of it, under the caller's own name for the sample."""
        asked = ChatRequest(
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
        record = record_of(asked, call, answer.completion, self.gateway.catalogue.limits)
        sent = {"reasoning_sent": True} if answer.completion.is_reasoning_sent else {}
        return replace(record, sample_id=request.sample_id, extra={**(record.extra or {}), **sent})


class RetryAfterPause:
    """A vendor that says how long to wait is believed: whoever comes until then waits, instead of being refused too."""

    def __init__(self) -> None:
        self._until = 0.0

    def note(self, error: BackendError | None) -> None:
        if isinstance(error, RateLimited) and error.retry_after_s is not None and not error.is_exhausted:
            self._until = max(self._until, time.monotonic() + min(error.retry_after_s, MAX_RETRY_AFTER_S))

    async def over(self) -> None:
        while (left_s := self._until - time.monotonic()) > 0:  # noqa: ASYNC110  # it may be prolonged meanwhile
            await asyncio.sleep(left_s)


def model_failure(error: Exception) -> ModelFailed:
    """What a failed call means for whoever would ask again."""
    last = error.last if isinstance(error, ChainFailed) else error
    # A wrong key, a bill that is not paid, a switch that a person must release: no other request fares better.
    is_spent = isinstance(last, BudgetSpent | CallsPaused | UnknownPrice | Unauthorized) or (
        isinstance(last, RateLimited) and last.is_exhausted
    )
    is_refused = isinstance(error, ChainFailed) and last is None  # passed over, for instance because it takes no tools
    return ModelFailed(str(error), is_final=is_refused or isinstance(last, PERMANENT_ERRORS), is_spent=is_spent)
