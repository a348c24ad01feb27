"""The error for a call that a platform refuses. Each platform writes it in its own shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class PlatformRefusal(Exception):
    """The platform refuses a call."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: int | None = None,
        subcode: int | None = None,
        retry_after: int | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.subcode = status, message, code, subcode
        self.retry_after, self.parameters = retry_after, dict(parameters or {})


def is_integer(value: object) -> bool:
    """Whether a value is a whole number. True and False are not, although Python's bool is an int."""
    return isinstance(value, int) and not isinstance(value, bool)
