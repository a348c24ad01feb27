"""Put together what makes long conversations shorter: how long is too long for each tier, and who summarises."""

from __future__ import annotations

from dataclasses import replace

from hermes.app.afterwards import SPEECHLESS
from hermes.config import HistorySettings
from hermes.gateway.catalogue import Catalogue, Model
from hermes.router.compaction import Compaction, SeeingCounter
from hermes.trajectories.compress import CompressionSettings, Extractive, ModelSummariser, Summariser
from hermes.trajectories.model import Model as Asked

SUMMARY_S = 20.0
"""Somebody waits for their answer: a model that takes longer over a summary is not waited for."""


def compaction_from(history: HistorySettings, catalogue: Catalogue) -> Compaction:
    """What is done with a history that is too long. A tier whose first model only plays from a script summarises without any."""
    usual = CompressionSettings()
    settings = replace(
        usual,
        summarization=replace(usual.summarization, max_retries=1, timeout=SUMMARY_S, max_prompt_tokens=history.max_tokens),
        processing=replace(usual.processing, per_trajectory_timeout=2 * SUMMARY_S),
    )

    def first_of(tier: str) -> Model | None:
        known = catalogue.tiers.get(tier)
        return catalogue.models[known.chain[0]] if known else None

    def limit_of(tier: str) -> int:
        first = first_of(tier)
        if first is None or first.capabilities.context is None:
            return history.max_tokens
        return max(1, min(history.max_tokens, (first.capabilities.context - first.max_tokens) // 2))

    def summariser(asked: Asked, tier: str) -> Summariser:
        first = first_of(tier)
        can_write = history.asks_models and first is not None and first.backend not in SPEECHLESS
        return ModelSummariser(asked, settings) if can_write else Extractive()

    return Compaction(limit_of=limit_of, summariser=summariser, settings=settings, counter=SeeingCounter())
