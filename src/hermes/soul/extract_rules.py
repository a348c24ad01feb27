"""What a user says of themselves, read without a model; see `statements`."""

from hermes.soul.statements.items import same_item
from hermes.soul.statements.reading import Found, read_statements

__all__ = ["Found", "read_statements", "same_item"]
