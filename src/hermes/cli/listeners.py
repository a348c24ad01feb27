"""The sockets on which the web listens, opened before anything else starts: a taken port is the most likely fault, and the operator sees
it at once.

`hermes serve` opens them itself. `hermes up` opens them once, and every web process that it starts accepts connections from them: while one
of those processes is replaced, no client is refused."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass

import structlog

from hermes.cli.output import fail
from hermes.config import Settings

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WebListeners:
    """The socket of the web, and that of the operator's pages if they have a port of their own."""

    web: socket.socket
    operator: socket.socket | None = None

    @property
    def fds(self) -> tuple[int, ...]:
        """What a child process inherits."""
        return (self.web.fileno(), *([self.operator.fileno()] if self.operator is not None else []))

    def close(self) -> None:
        self.web.close()
        if self.operator is not None:
            self.operator.close()


CAN_INHERIT = sys.platform != "win32"
"""Whether a child process can take over an open socket by its number."""


def open_web_listeners(settings: Settings, metrics_host: str | None = None, metrics_port: int | None = None) -> WebListeners:
    """Open the sockets of the settings, or end the command with one line. The address of the operator's pages may be another one."""
    web = settings.web
    listener = listen(web.host, web.port, "choose another port with HERMES_WEB_PORT")
    return WebListeners(
        listener, open_metrics_listener(metrics_host or web.metrics_host, web.metrics_port if metrics_port is None else metrics_port)
    )


def inherit_web_listeners(fds: str) -> WebListeners:
    """Take over the sockets that `hermes up` opened: their numbers, with a comma between them."""
    sockets = [socket.socket(fileno=int(fd)) for fd in fds.split(",")]
    for each in sockets:
        each.set_inheritable(False)  # its signature; a store that this process starts would keep the port when all have ended
    return WebListeners(sockets[0], sockets[1] if len(sockets) > 1 else None)


def open_metrics_listener(host: str, port: int | None) -> socket.socket | None:
    """Open the port of the operator's pages, if there is one."""
    return None if port is None else listen(host, port, "choose another one with --metrics-port or HERMES_WEB_METRICS_PORT")


def note_metrics_port(listener: socket.socket | None) -> None:
    """Log where the operator's pages are: with port 0 only the log says it."""
    if listener is not None:
        host, port = listener.getsockname()[:2]
        log.info("metrics_ready", host=host, port=port)


def listen(host: str, port: int, advice: str) -> socket.socket:
    """Open a port, or end the command with one line that says what to do."""
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048)
    except OSError as error:
        fail(f"cannot listen on {host}:{port}: {os_error_text(error)}; {advice}")
    listener.setblocking(False)  # noqa: FBT003  # its signature
    return listener


def os_error_text(error: OSError) -> str:
    """Return the system's text for an error; the error's own `strerror` is longer here than a person needs."""
    return os.strerror(error.errno) if error.errno else str(error)
