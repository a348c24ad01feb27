"""Compression brings a long conversation to a token target: the middle is summarised, both ends stay as they are.

Nothing is lost: the graph keeps the version before. One conversation, in reading order:

settings            what a run does to each trajectory
settings_file       the settings, read from YAML
token_counter       tokens of a text or of a whole conversation
summariser          what a summariser is asked and returns
extractive_summary  the summariser that needs no model
model_summary       the summariser that asks a model
timeout             time limits that can be paused
turns               which messages stay together
trim                shorten long tool results
token_scale         how many tokens a message takes, cut or not
rewrite             the message list after compaction
plan                choose what is cut and what is summarised
result              the numbers of one trajectory
compaction          compact one conversation

Files with many conversations:

rows                read and write rows: message graphs, OpenAI, ShareGPT
chunks              read the input chunk by chunk
worker              compress the rows of a chunk
metrics             the numbers of a run
checkpoint          how far a run came, and each summary that it paid for
output              the files of a run
run                 open, resume, write and finish a run
paid_summaries      pay for each model answer once, within a budget
model_queue         ask the model for many rows at once
analysis            `--dry-run`: what a run would do
files               compress files"""

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
