"""When a conversation is too long for its model, and which summariser compacts it. Values only; step load_history runs the compaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes.trajectories.compress import CompressionSettings, EstimateCounter, ExtractiveSummariser, Summariser, Summary, SummaryRequest
from hermes.trajectories.sampling_model import SamplingModel

IMAGE_TOKENS = 1_600
"""The most tokens that vendors count for an image."""


class ImageTokenCounter(EstimateCounter):
    """An EstimateCounter that counts images too."""

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> int:
        return super().count(messages, tools) + IMAGE_TOKENS * sum(map(count_images, messages))


def count_images(message: Mapping[str, Any]) -> int:
    content = message.get("content")
    return sum(part.get("type") == "image_url" for part in content) if isinstance(content, list) else 0


MIN_GAIN_SHARE = 0.1
"""As a share of the limit. Where a summary would save less, no model is asked: ExtractiveSummariser picks sentences instead."""


@dataclass(frozen=True, slots=True)
class SelectiveSummariser:
    """Asks its summariser only where a summary saves at least `min_gain_tokens`; else an ExtractiveSummariser."""

    summariser: Summariser
    min_gain_tokens: float

    async def summarise(self, piece: SummaryRequest) -> Summary:
        gain = piece.counter.count(piece.messages) - piece.target_tokens
        return await (self.summariser if gain >= self.min_gain_tokens else ExtractiveSummariser()).summarise(piece)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """When a history is too long, and which summariser compacts it."""

    limit_of: Callable[[str], int]
    """The tokens of history that may be shown to the model of a tier."""
    summariser: Callable[[SamplingModel, str], Summariser]
    """Makes the summariser of a tier, given its model. Not every summariser asks the model."""
    settings: CompressionSettings
    counter: EstimateCounter

    def summariser_for(self, model: SamplingModel, tier: str) -> Summariser:
        """The summariser for this turn's conversation."""
        return SelectiveSummariser(self.summariser(model, tier), self.limit_of(tier) * MIN_GAIN_SHARE)

    def fits(self, messages: Sequence[Mapping[str, Any]], tier: str) -> bool:
        """Whether a history is as short as a compaction makes it, so that many more messages fit after it."""
        return self.counter.count(messages) <= self.limit_of(tier) * self.settings.live.target_share

    def is_due(self, messages: Sequence[Mapping[str, Any]], tier: str) -> bool:
        """Whether a history is over its limit, or so close to it that the next answer may go over."""
        return self.counter.count(messages) > self.limit_of(tier) * self.settings.live.trigger_share
