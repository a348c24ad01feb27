"""Compression: a long conversation brought to a token target. The middle is summarised, its ends stay as they are, nothing is lost:
the graph keeps the version before.

Read it in this order: settings and reading (the file), counting (tokens), pieces (what a summariser is), extract (the one that needs
no model), ask (the one that asks one), turns (what belongs together), trim (tool results), measure (the scale), rewrite (the list as it
is to be), plan (what goes), result, engine (one conversation)."""

from hermes.trajectories.compress.compaction import compact_to_target, compact_when_full, live_settings
from hermes.trajectories.compress.extractive_summary import ExtractiveSummariser
from hermes.trajectories.compress.model_summary import ModelSummariser
from hermes.trajectories.compress.result import CompactionResult, Region
from hermes.trajectories.compress.settings import CompressionSettings
from hermes.trajectories.compress.settings_file import read_settings
from hermes.trajectories.compress.summariser import Summariser, Summary, SummaryRequest
from hermes.trajectories.compress.token_counter import EstimateCounter, TokenCounter, load_counter

__all__ = [
    "CompactionResult",
    "CompressionSettings",
    "EstimateCounter",
    "ExtractiveSummariser",
    "ModelSummariser",
    "Region",
    "Summariser",
    "Summary",
    "SummaryRequest",
    "TokenCounter",
    "compact_to_target",
    "compact_when_full",
    "live_settings",
    "load_counter",
    "read_settings",
]
