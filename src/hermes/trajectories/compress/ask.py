"""minimal for now"""
from __future__ import annotations
from hermes.trajectories.compress.extract import Extractive
from hermes.trajectories.compress.pieces import Piece, Summariser, Summary
from hermes.trajectories.compress.settings import CompressionSettings
from hermes.trajectories.model import Model


class ModelSummariser:
    """Asks a model for the summary; what fails is summarised by the fallback."""

    def __init__(self, model: Model, settings: CompressionSettings, fallback: Summariser | None = None) -> None:
        self._model, self._settings, self._fallback = model, settings, fallback or Extractive()

    async def summarise(self, piece: Piece) -> Summary:
        return await self._fallback.summarise(piece)
