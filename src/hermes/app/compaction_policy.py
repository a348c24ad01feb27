"""Build the policy that compacts long histories: the longest history of each tier, and what summarises it."""

from __future__ import annotations

from dataclasses import replace

from hermes.app.background import can_read
from hermes.config import HistorySettings
from hermes.gateway.catalogue import ModelCatalogue
from hermes.router.compaction_policy import CompactionPolicy, ImageTokenCounter
from hermes.trajectories.compress import CompressionSettings, ExtractiveSummariser, ModelSummariser, Summariser
from hermes.trajectories.sampling_model import SamplingModel

SUMMARY_TIMEOUT_S = 20.0
"""A user waits for the answer meanwhile, so a model that takes longer for a summary is given up."""


def compaction_policy_from(history: HistorySettings, catalogue: ModelCatalogue) -> CompactionPolicy:
    """Return the policy. In a tier whose first model cannot write summaries (`can_read`), histories are compacted without a model."""
    default = CompressionSettings()
    settings = replace(
        default,
        summarization=replace(default.summarization, max_retries=1, timeout=SUMMARY_TIMEOUT_S, max_prompt_tokens=history.max_tokens),
        processing=replace(default.processing, per_trajectory_timeout=2 * SUMMARY_TIMEOUT_S),
    )

    def limit_of(tier: str) -> int:
        found = catalogue.tiers.get(tier)
        first = catalogue.models[found.chain[0]] if found else None
        if first is None or first.capabilities.context is None:
            return history.max_tokens
        return max(1, min(history.max_tokens, (first.capabilities.context - first.max_tokens) // 2))

    def summariser(model: SamplingModel, tier: str) -> Summariser:
        return ModelSummariser(model, settings) if history.asks_models and can_read(catalogue, tier) else ExtractiveSummariser()

    return CompactionPolicy(limit_of=limit_of, summariser=summariser, settings=settings, counter=ImageTokenCounter())
