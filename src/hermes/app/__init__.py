"""The composition root: the one room that knows which adapter stands behind which port."""

from hermes.app.adapters import Adapters
from hermes.app.doctor import Health, HealthFinding, examine
from hermes.app.root import Hermes, open_hermes
from hermes.app.router import open_no_tools
from hermes.app.stores import home_of, open_stores
from hermes.ports.errors import StartRefused
from hermes.stores.seal import new_master_key

__all__ = [
    "Adapters",
    "Health",
    "HealthFinding",
    "Hermes",
    "StartRefused",
    "examine",
    "home_of",
    "new_master_key",
    "open_hermes",
    "open_no_tools",
    "open_stores",
]
