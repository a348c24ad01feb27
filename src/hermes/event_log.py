"""The log of modules that short commands load: structlog's, but loaded and configured only with the first line that is written.

    log = get_logger(__name__)
    log.warning("store_died", stores=["valkey"])

A command that only reads rows writes none, and structlog takes longer to load than such a command works."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import Any


class LateLogger:
    """A logger of structlog that is made when it is used."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        FirstLine.configure()
        return getattr(importlib.import_module("structlog").get_logger(self._name), method)


class FirstLine(logging.Handler):
    """Takes the first line of a library, has the log configured, and hands the line over to it."""

    _waiting: Callable[[], None] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        FirstLine.configure()
        logging.getLogger(record.name).handle(record)

    @classmethod
    def wait_with(cls, configure: Callable[[], None]) -> None:
        """Call `configure`, which replaces the handlers of the root logger, when the first line is written. The last call counts."""
        cls._waiting = configure
        logging.getLogger().handlers[:] = [cls(logging.WARNING)]

    @classmethod
    def configure(cls) -> None:
        """Configure the log now, if that waits."""
        configure, cls._waiting = cls._waiting, None
        if configure is not None:
            configure()


def get_logger(name: str) -> Any:
    return LateLogger(name)
