"""The board of the models, built from a whole Hermes."""

from __future__ import annotations

from hermes.app.console_access import access_from
from hermes.app.model_list import list_models
from hermes.app.root import Hermes
from hermes.console.models import ModelBoard


def model_board_from(hermes: Hermes) -> ModelBoard:
    return ModelBoard(
        access_from(hermes.settings, hermes.database),
        hermes.planner,
        lambda: list_models(hermes.settings, hermes.database, hermes.redis),
        hermes.fleet.check,
    )
