"""Compression brings a long conversation to a token target: the middle is summarised, both ends stay as they are.

Nothing is lost: the graph keeps the version before. One conversation, in reading order:

settings         what a run does to each trajectory; read from YAML
token_counter    tokens of a text or of a whole conversation
turns            which messages stay together
token_scale      what messages take in tokens, tool results cut or not
summariser       what a summariser is asked and returns; the one that needs no model
model_summary    the summariser that asks a model
plan             choose what is cut and what is summarised
compaction       compact one conversation

Files with many conversations:

row_change       what compression changed in a list of messages
sharegpt_rows    read and write ShareGPT rows
rows             read and write rows of any shape: ShareGPT, OpenAI, message graphs
chunks           read the input chunk by chunk
metrics          the numbers of a run
worker           compress the rows of a chunk
output           the files of a run
run              begin, resume, write and finish a run
model_queue      ask a model for many rows at once, and pay for each answer once
analysis         `--dry-run`: what a run would do"""

from hermes.trajectories.compress.compaction import CompactionResult, Region, compact_to_target, compact_when_full, live_settings
from hermes.trajectories.compress.model_summary import ModelSummariser
from hermes.trajectories.compress.settings import CompressionSettings, read_settings
from hermes.trajectories.compress.summariser import ExtractiveSummariser, Summariser, Summary, SummaryRequest
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
