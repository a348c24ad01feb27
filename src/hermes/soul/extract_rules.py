"""What a user says of themselves, read without a model; see `statements`."""

from hermes.soul.statements.found import Found
from hermes.soul.statements.reading import read_statements
from hermes.soul.statements.same import same_item

__all__ = ["Found", "read_statements", "same_item"]
