"""The numbers of one compressed trajectory. A field that hermes-agent's metrics have too has the same name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

SUMMARY_REASON = "a summary stands for turns that the later answers were sampled with"
TRIM_REASON = "tool results are shorter than the later answers were sampled with"


@dataclass(frozen=True, slots=True)
class Region:
    """The turns [start_idx, end_idx), counted before compression, in which something was summarised or cut."""

    start_idx: int = -1
    end_idx: int = -1
    turns_count: int = 0
    """How many of them were summarised."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The numbers of one trajectory."""

    original_tokens: int = 0
    compressed_tokens: int = 0
    tokens_saved: int = 0
    compression_ratio: float = 1.0
    """Compressed tokens divided by original tokens; 1.0 if nothing was done."""
    original_turns: int = 0
    compressed_turns: int = 0
    turns_removed: int = 0
    compression_region: Region = Region()
    was_compressed: bool = False
    still_over_limit: bool = False
    skipped_under_target: bool = False
    summarization_api_calls: int = 0
    summarization_errors: int = 0
    over_limit_reason: str = ""
    """Why it is still too long; empty if it is not."""
    trimmed_results: int = 0
    """How many tool results were cut."""
    summary: str = ""
    """What wrote the summary: `model`, `extractive`, `extractive (model failed: …)`; empty if there is none."""
    micro_usd: int = 0
    tokens_estimated: bool = False
    """Whether tokens were estimated instead of counted."""
    first_off_policy: int | None = None
    """Index of the first changed message, in the list as it is now: answers after it were sampled in another context. None: no change."""

    @property
    def off_policy_reason(self) -> str:
        """Why rows of the compressed list are off-policy; empty if they are not."""
        if not self.was_compressed:
            return ""
        reasons = [SUMMARY_REASON] if self.summary else []
        return "; ".join([*reasons, *([TRIM_REASON] if self.trimmed_results else [])])

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics as JSON values."""
        values: Mapping[str, Any] = asdict(self)
        return {**values, "compression_ratio": round(self.compression_ratio, 4), "off_policy_reason": self.off_policy_reason}
