"""Put together what makes long conversations shorter: how long is too long for each tier, and who summarises."""

from __future__ import annotations

from dataclasses import replace

from hermes.app.background import can_read
from hermes.config import HistorySettings
from hermes.gateway.catalogue import ModelCatalogue
from hermes.router.compaction_policy import CompactionPolicy, ImageTokenCounter
from hermes.trajectories.compress import CompressionSettings, ExtractiveSummariser, ModelSummariser, Summariser
from hermes.trajectories.sampling_model import SamplingModel

SUMMARY_TIMEOUT_S = 20.0
"""Somebody waits for their answer: a model that takes longer over a summary is not waited for."""


def compaction_policy_from(history: HistorySettings, catalogue: ModelCatalogue) -> CompactionPolicy:
    """What is done with a history that is too long. A tier whose first model only plays from a script summarises without any."""
    usual = CompressionSettings()
    settings = replace(
        usual,
        summarization=replace(usual.summarization, max_retries=1, timeout=SUMMARY_TIMEOUT_S, max_prompt_tokens=history.max_tokens),
        processing=replace(usual.processing, per_trajectory_timeout=2 * SUMMARY_TIMEOUT_S),
    )

    def limit_of(tier: str) -> int:
        known = catalogue.tiers.get(tier)
        first = catalogue.models[known.chain[0]] if known else None
        if first is None or first.capabilities.context is None:
            return history.max_tokens
        return max(1, min(history.max_tokens, (first.capabilities.context - first.max_tokens) // 2))

    def summariser(model: SamplingModel, tier: str) -> Summariser:
        return ModelSummariser(model, settings) if history.asks_models and can_read(catalogue, tier) else ExtractiveSummariser()

    return CompactionPolicy(limit_of=limit_of, summariser=summariser, settings=settings, counter=ImageTokenCounter())
