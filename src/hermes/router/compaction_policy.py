"""When a conversation is too long for its model, and who makes it shorter. Values; the step that loads the history does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes.trajectories.compress import CompressionSettings, EstimateCounter, ExtractiveSummariser, Summariser, Summary, SummaryRequest
from hermes.trajectories.sampling_model import SamplingModel

PICTURE_TOKENS = 1_600
"""What vendors count for a picture, at most."""


class ImageTokenCounter(EstimateCounter):
    """Counts as it does, and pictures too."""

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> int:
        return super().count(messages, tools) + PICTURE_TOKENS * sum(map(count_images, messages))


def count_images(message: Mapping[str, Any]) -> int:
    content = message.get("content")
    return sum(part.get("type") == "image_url" for part in content) if isinstance(content, list) else 0


MIN_GAIN_SHARE = 0.1
"""Of the limit. What would save less is not worth a model's time: the words are picked out."""


@dataclass(frozen=True, slots=True)
class SelectiveSummariser:
    """A summariser that is only asked where there is something to be gained."""

    summariser: Summariser
    min_gain_tokens: float

    async def summarise(self, piece: SummaryRequest) -> Summary:
        gain = piece.counter.count(piece.messages) - piece.target_tokens
        return await (self.summariser if gain >= self.min_gain_tokens else ExtractiveSummariser()).summarise(piece)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """When a history is too long, and who makes it shorter."""

    limit_of: Callable[[str], int]
    """The tokens of history that a tier's model may be shown."""
    summariser: Callable[[SamplingModel, str], Summariser]
    """Who summarises for a tier, given a way to its model. Not everybody asks one."""
    settings: CompressionSettings
    counter: EstimateCounter

    def summariser_for(self, model: SamplingModel, tier: str) -> Summariser:
        """Who summarises this turn's conversation."""
        return SelectiveSummariser(self.summariser(model, tier), self.limit_of(tier) * MIN_GAIN_SHARE)

    def fits(self, messages: Sequence[Mapping[str, Any]], tier: str) -> bool:
        """Whether a history is as short as a compaction makes it, so that many more messages fit behind it."""
        return self.counter.count(messages) <= self.limit_of(tier) * self.settings.live.target_share

    def is_due(self, messages: Sequence[Mapping[str, Any]], tier: str) -> bool:
        """Whether a history is over its limit, or so near to it that the next answer may be."""
        return self.counter.count(messages) > self.limit_of(tier) * self.settings.live.trigger_share
