"""Breakers of models in Redis: one small value per model of a backend. The rules are in `hermes.gateway.model_breaker`.

A model whose last call was answered has no key, so a call reads its whole chain once and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TypeVar

import structlog
from redis.asyncio import Redis

from hermes.gateway import model_breaker as rules
from hermes.gateway.model_breaker import DEFAULT_MODEL_LIMITS, WELL, ModelBreaker, ModelBreakerLimits
from hermes.ports.models import ModelAddress, ModelCondition, ModelFailure
from hermes.ports.runtime import Clock
from hermes.stores.redis import REDIS_ERRORS
from hermes.stores.redis.counters import ScriptBatch
from hermes.stores.redis.value_swap import TooContended, ValueSwap

log = structlog.get_logger()

T = TypeVar("T")


class RedisModelBreakers:
    """The port ModelBreakers."""

    def __init__(
        self, redis: Redis, clock: Clock, limits: ModelBreakerLimits = DEFAULT_MODEL_LIMITS, *, batch: ScriptBatch | None = None
    ) -> None:
        """With the `batch` of the budgets, the breakers are read in the same round trip as a call's reservation."""
        self._redis, self._clock, self._limits, self._batch = redis, clock, limits, batch or ScriptBatch(redis)
        self._values = ValueSwap(redis, decode_model_breaker, encode_model_breaker, limits.keep_s)

    async def find_unwell(self, models: Sequence[ModelAddress]) -> Mapping[ModelAddress, ModelCondition]:
        try:
            stored = await self._batch.read("MGET", *(model_breaker_key(model) for model in models))
        except REDIS_ERRORS:
            return {}
        now = self._now
        found = ((model, rules.condition_of(decode_model_breaker(value), now)) for model, value in zip(models, stored, strict=True))
        return {model: condition for model, condition in found if condition is not None}

    async def read(self, models: Sequence[ModelAddress]) -> Mapping[ModelAddress, ModelBreaker]:
        """Return the state of each model, for operators; without the store none is known."""
        try:
            stored = await self._redis.mget([model_breaker_key(model) for model in models]) if models else []
        except REDIS_ERRORS:
            return {}
        return {model: decode_model_breaker(value) for model, value in zip(models, stored, strict=True)}

    async def claim_probe(self, model: ModelAddress) -> bool:
        claimed = await self._change(model, lambda breaker: rules.claim_probe(breaker, self._now, self._limits))
        return claimed is not False  # without the store every model may be asked

    async def record_success(self, model: ModelAddress) -> bool:
        try:
            return decode_model_breaker(await self._redis.getdel(model_breaker_key(model))).open_until is not None
        except REDIS_ERRORS:
            return False

    async def record_failure(self, model: ModelAddress, failure: ModelFailure) -> ModelCondition | None:
        return await self._change(model, lambda breaker: rules.record_failure(breaker, failure, self._now, self._limits))

    async def _change(self, model: ModelAddress, change: Callable[[ModelBreaker], tuple[ModelBreaker, T]]) -> T | None:
        try:
            return await self._values.change(model_breaker_key(model), change)
        except REDIS_ERRORS:
            return None
        except TooContended:
            log.warning("model_breaker_contended", backend=model.backend, model=model.model)
            return None

    @property
    def _now(self) -> float:
        return self._clock.now().timestamp()


def model_breaker_key(model: ModelAddress) -> str:
    return f"hermes:model_breaker:{model.backend}:{model.model}"


def decode_model_breaker(stored: bytes | str | None) -> ModelBreaker:
    """The state that was stored; a closed breaker if there is none, or if it cannot be read."""
    if not stored:
        return WELL
    try:
        fields = json.loads(stored)
        return ModelBreaker(**{**fields, "failed_at": tuple(fields["failed_at"])})
    except (ValueError, KeyError, TypeError):
        return WELL


def encode_model_breaker(breaker: ModelBreaker) -> str:
    return "" if breaker == WELL else json.dumps(asdict(breaker))
