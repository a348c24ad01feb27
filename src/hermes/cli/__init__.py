"""The command `hermes`. Works without its extra just far enough to say which extra it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable

app: Callable[[], None] | None = None
missing: str | None = None
try:
    from hermes.cli.commands import app
except ModuleNotFoundError as error:
    missing = error.name
    if missing is None or missing.split(".")[0] == "hermes":
        raise


def main() -> None:
    """Run the command line; exit code 2 for bad input."""
    if app is None:
        # print: there is no console without the extra
        print(f"hermes: the command line needs {missing}; install it: pip install 'hermes-graph[cli]'", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    app()
