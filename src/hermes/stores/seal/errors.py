"""Errors of sealing. The docstring of a class is its default message; no message holds a key or a plaintext.

SealError
├── SealBroken          these bytes are not the bytes that were sealed under this label
├── DataKeyMissing      the user's data key is gone, or this generation of it
├── MasterKeyMissing    the master key that wrapped a data key is not configured
└── MasterKeyInvalid    no master key is configured, or one is malformed
"""

from __future__ import annotations


class SealError(Exception):
    """Sealed contents cannot be opened."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class SealBroken(SealError):
    """The sealed contents were changed, cut short, moved from another place, or sealed by a later version of Hermes."""


class DataKeyMissing(SealError):
    """The user's data key was deleted, so everything that it sealed is gone."""

    def __init__(self, generation: int | None = None) -> None:
        super().__init__(None if generation is None else f"generation {generation} of the user's data key is not held")
        self.generation = generation

    def __reduce__(self) -> tuple[type[DataKeyMissing], tuple[int | None]]:
        return type(self), (self.generation,)


class MasterKeyMissing(SealError):
    """The master key that wrapped this data key is not configured; list it after the current one."""

    def __init__(self, master: str) -> None:
        super().__init__(f"master key {master} is not configured, and data keys are wrapped by it; list it after the current one")
        self.master = master

    def __reduce__(self) -> tuple[type[MasterKeyMissing], tuple[str]]:
        return type(self), (self.master,)


class MasterKeyInvalid(SealError):
    """A master key is 43 or 44 characters of URL-safe base64; make one with: hermes keys new-master"""
