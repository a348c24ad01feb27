"""Compression: a long conversation brought to a token target. The middle is summarised, its ends stay as they are, nothing is lost:
the graph keeps the version before.

Read it in this order: settings and reading (the file), counting (tokens), pieces (what a summariser is), extract (the one that needs
no model), ask (the one that asks one), turns (what belongs together), trim (tool results), measure (the scale), rewrite (the list as it
is to be), plan (what goes), result, engine (one conversation)."""

from hermes.trajectories.compress.ask import ModelSummariser
from hermes.trajectories.compress.counting import Counter, EstimateCounter, load_counter
from hermes.trajectories.compress.engine import compact, compress, live_settings
from hermes.trajectories.compress.extract import Extractive
from hermes.trajectories.compress.pieces import Piece, Summariser, Summary
from hermes.trajectories.compress.reading import read_settings
from hermes.trajectories.compress.result import Compressed, Region
from hermes.trajectories.compress.settings import CompressionSettings

__all__ = [
    "Compressed",
    "CompressionSettings",
    "Counter",
    "EstimateCounter",
    "Extractive",
    "ModelSummariser",
    "Piece",
    "Region",
    "Summariser",
    "Summary",
    "compact",
    "compress",
    "live_settings",
    "load_counter",
    "read_settings",
]
