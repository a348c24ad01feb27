"""`hermes health`: a probe for containers and scripts. It asks one process of this machine, and opens no store."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated

import typer

from hermes.cli.commands import app
from hermes.cli.output import CANNOT_RUN, complain, fail
from hermes.terminal import one_line

MAX_AGE_S = 15.0
"""How old a beat may be. More than `work.stalled_after_s`: other workers take a worker's jobs before its container is replaced."""


@app.command()
def health(
    *,
    beat_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file of `hermes worker --beat-file FILE`, or of `hermes serve`.", show_default=False),
    ] = None,
    max_age_s: Annotated[float, typer.Option(metavar="SECONDS", min=1.0, help="How old the last beat may be.")] = MAX_AGE_S,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The address of /health or /ready of a web process, such as http://127.0.0.1:8080/ready.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Exit with 0 if a process of Hermes on this machine is well, with 1 if not: a probe.

    For a worker in a container:

        hermes worker --beat-file /tmp/hermes.beat

        HEALTHCHECK CMD hermes health --beat-file /tmp/hermes.beat

    The worker touches the file from its event loop, also while PostgreSQL is away. A worker that is blocked, stopped or silent does not."""
    if (beat_file is None) == (url is None):
        fail("give either --beat-file or --url")
    reason = check_file(beat_file, max_age_s) if beat_file is not None else check_url(str(url))
    if reason:
        complain(reason)
        raise typer.Exit(CANNOT_RUN)


def check_file(beat_file: Path, max_age_s: float) -> str:
    """Return what is wrong with the process that touches this file; "" if nothing is."""
    try:
        age_s = time.time() - beat_file.stat().st_mtime
    except OSError as error:
        return f"there is no beat in {beat_file} ({error.strerror}): the process has not started, or it has ended"
    return "" if age_s <= max_age_s else f"the last beat is {age_s:.0f} s old: the process is blocked, stopped or silent"


def check_url(url: str) -> str:
    """Return what is wrong with the web process at this address; "" if nothing is."""
    if not url.startswith(("http://", "https://")):
        fail(f"{url} is no address; expected for instance http://127.0.0.1:8080/ready")
    try:
        with urllib.request.urlopen(url, timeout=5.0) as answer:  # noqa: S310  # the scheme was checked
            json.load(answer)
    except urllib.error.HTTPError as error:
        return f"{url} answered {error.code}: {one_line(error.read(500).decode(errors='replace'))}"
    except (OSError, ValueError) as error:
        return f"{url} does not answer: {error}"
    return ""
