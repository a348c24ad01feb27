"""The metrics of a whole run: those of hermes-agent's compressor, under its names, and some more.

Totals can be added: of chunks, of processes, and of a run before and after an interruption."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from hermes.trajectories.compress.compaction import CompactionResult
from hermes.trajectories.compress.summariser import MODEL


@dataclass(slots=True)
class Totals:
    """Sums over trajectories."""

    trajectories: int = 0
    compressed: int = 0
    skipped_under_target: int = 0
    still_over_limit: int = 0
    failed: int = 0
    """Written as they were, because neither a model nor the extractive summariser could compress them."""
    rejected: int = 0
    """Could not be read; kept in a separate file."""
    left_out: int = 0
    """Not in the sample (`processing.sample_percent`)."""
    fallbacks: int = 0
    """Summarised, at least in part, without the model that the settings name."""
    off_policy: int = 0
    """Rows with answers that were sampled in another context than they have now."""
    trimmed_results: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    turns_before: int = 0
    turns_after: int = 0
    tokens_saved: int = 0
    turns_removed: int = 0
    ratios: float = 0.0
    """Sum of the compression ratios of the compressed trajectories."""
    api_calls: int = 0
    api_errors: int = 0
    estimated: int = 0
    """Trajectories whose tokens were estimated instead of counted."""

    def add(self, one: CompactionResult, *, has_model: bool = False) -> None:
        """Add one trajectory; `has_model`: the settings name a model for its summary."""
        self.trajectories += 1
        self.compressed += one.was_compressed
        self.skipped_under_target += one.skipped_under_target
        self.still_over_limit += one.still_over_limit
        self.fallbacks += has_model and bool(one.summary) and one.summary != MODEL
        self.trimmed_results += one.trimmed_results
        self.tokens_before += one.original_tokens
        self.tokens_after += one.compressed_tokens
        self.turns_before += one.original_turns
        self.turns_after += one.compressed_turns
        self.api_calls += one.summarization_api_calls
        self.api_errors += one.summarization_errors
        self.estimated += one.tokens_estimated
        if one.was_compressed:
            self.tokens_saved += one.tokens_saved
            self.turns_removed += one.turns_removed
            self.ratios += one.compression_ratio

    def skip(self, tokens: int, turns: int, *, is_estimate: bool) -> None:
        """Add a trajectory that is short enough. Most are, so this needs no CompactionResult."""
        self.trajectories += 1
        self.skipped_under_target += 1
        self.tokens_before += tokens
        self.tokens_after += tokens
        self.turns_before += turns
        self.turns_after += turns
        self.estimated += is_estimate

    def merge(self, other: Totals) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def metrics_of(totals: Totals, *, micro_usd: int, start: str, seconds: float) -> dict[str, Any]:
    """Return the contents of the metrics file. `seconds` is the working time: the pause before a resumed run does not count."""
    compressed = max(totals.compressed, 1)
    return {
        "summary": {
            "total_trajectories": totals.trajectories,
            "trajectories_compressed": totals.compressed,
            "trajectories_skipped_under_target": totals.skipped_under_target,
            "trajectories_still_over_limit": totals.still_over_limit,
            "trajectories_failed": totals.failed,
            "trajectories_rejected": totals.rejected,
            "trajectories_not_sampled": totals.left_out,
            "trajectories_off_policy": totals.off_policy,
            "compression_rate": round(totals.compressed / max(totals.trajectories, 1), 4),
        },
        "tokens": {
            "total_before": totals.tokens_before,
            "total_after": totals.tokens_after,
            "total_saved": totals.tokens_saved,
            "overall_compression_ratio": round(totals.tokens_after / max(totals.tokens_before, 1), 4),
            "estimated": totals.estimated > 0,
        },
        "turns": {"total_before": totals.turns_before, "total_after": totals.turns_after, "total_removed": totals.turns_removed},
        "averages": {
            "avg_compression_ratio": round(totals.ratios / compressed, 4) if totals.compressed else 1.0,
            "avg_tokens_saved_per_compressed": round(totals.tokens_saved / compressed, 1),
            "avg_turns_removed_per_compressed": round(totals.turns_removed / compressed, 2),
        },
        "summarization": {
            "total_api_calls": totals.api_calls,
            "total_errors": totals.api_errors,
            "success_rate": round(1 - totals.api_errors / max(totals.api_calls, 1), 4),
            "fallbacks": totals.fallbacks,
            "trimmed_results": totals.trimmed_results,
            "cost_usd": micro_usd / 1_000_000,
        },
        "processing": {
            "start_time": start,
            "end_time": datetime.now(UTC).isoformat(timespec="seconds"),
            "duration_seconds": round(seconds, 2),
        },
    }
