"""What every group of the console's routes gets."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.app.console import Console
from hermes.web.console.pages import ConsolePages
from hermes.web.console.visits import Visits


@dataclass(frozen=True, slots=True)
class ConsoleWeb:
    """What a group of routes gets: the console's services, the renderer, and how to find the operator of a request."""

    console: Console
    pages: ConsolePages
    visits: Visits
