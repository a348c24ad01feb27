"""A check of the settings that the commands which run Hermes make first."""

from __future__ import annotations

from hermes.app.catalogue import refuse_no_model
from hermes.cli.output import complain, fail
from hermes.config import Settings
from hermes.ports.errors import StartRefused


def require_model(settings: Settings) -> None:
    """If production has no model, say so in one line and exit, before a port is opened or a store is started."""
    try:
        refuse_no_model(settings)
    except StartRefused as error:
        *others, last = str(error).splitlines()
        for fault in others:
            complain(fault)
        fail(last)
