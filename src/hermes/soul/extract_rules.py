"""What a user says of themselves, read without a model; see `statements`."""

from hermes.soul.statements.reader import read_statements
from hermes.soul.statements.same_item import same_item
from hermes.soul.statements.statement import Statement

__all__ = ["Statement", "read_statements", "same_item"]
