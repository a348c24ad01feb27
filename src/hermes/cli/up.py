"""The command `up`: everything in one process tree. supervisor.py is what it does.

A module of its own, so that the parent does not load the web and the worker that its children load."""

from __future__ import annotations

import typer

from hermes.cli.commands import app
from hermes.cli.listeners import CAN_INHERIT, open_web_listeners
from hermes.cli.model_check import require_model
from hermes.cli.options import Config
from hermes.cli.runtime import run, settings_from, start_log
from hermes.cli.supervisor import supervise


@app.command()
def up(*, config: Config = None) -> None:
    """Run everything: stores, web and workers, in one process tree. Ctrl-C stops it; no acknowledged message is lost.

    Without any setting, Hermes starts PostgreSQL and Valkey in HERMES_HOME, and serves the chat page at `web.port` of the settings (8080
    if they name none). `hermes setup` makes the settings."""
    settings = settings_from(config)
    require_model(settings)
    start_log(settings)
    listeners = open_web_listeners(settings) if CAN_INHERIT else None
    code = run(supervise(settings, config, listeners))
    if code:
        raise typer.Exit(code)
