"""The composition root: the one room that knows which adapter stands behind which port."""

from hermes.app.doctor import Finding, Health, examine
from hermes.app.home import StartRefused, home_of
from hermes.app.parts import Parts
from hermes.app.root import Hermes, open_hermes, stores
from hermes.stores.seal import new_master_key

__all__ = ["Finding", "Health", "Hermes", "Parts", "StartRefused", "examine", "home_of", "new_master_key", "open_hermes", "stores"]
