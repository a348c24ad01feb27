"""Read without a model what a user says about themselves; see `statements`."""

from hermes.soul.statements.reader import read_statements
from hermes.soul.statements.same_item import same_item
from hermes.soul.statements.statement import Statement

__all__ = ["Statement", "read_statements", "same_item"]
