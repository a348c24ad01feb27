"""The errors of trajectories. A class docstring is its default message."""

from __future__ import annotations


class TrajectoryError(Exception):
    """Training data could not be made or read."""


class SourceError(TrajectoryError):
    """An input file, or one line of it, cannot be read; `where` names file and line."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason


class TrajectorySettingsError(TrajectoryError):
    """The settings of an export contradict each other, or the format cannot do what they ask for."""


class SessionError(TrajectoryError):
    """One session cannot be exported; the others can."""


class AnnotationError(SessionError):
    """An annotation that exports read has a value of the wrong type."""
