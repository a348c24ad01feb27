"""`hermes migrate`: bring the database to this version's schema, before its processes start."""

from __future__ import annotations

from typing import Annotated

import typer

from hermes.cli.commands import app, lazy_parts
from hermes.cli.options import Config, Json
from hermes.cli.output import CANNOT_RUN, print_result
from hermes.cli.runtime import quiet_settings, run
from hermes.console.amounts import count_phrase


@app.command()
def migrate(
    *,
    is_check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with code 1 if a migration of this version has not run.")
    ] = False,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Bring the database to this version's schema. Every start does it too; do it first in a rolling upgrade.

    Processes of the version before go on working beside it. You may run it again at any time: it does nothing twice."""
    settings = quiet_settings(config)
    stores = lazy_parts().load_app("stores")
    if is_check:
        waiting: list[str] = run(stores.find_pending_migrations(settings))
        says = f"{count_phrase(len(waiting), 'migration')} to run: {', '.join(waiting)}" if waiting else "The schema is up to date."
        print_result({"pending": waiting}, says, is_json=is_json)
        if waiting:
            raise typer.Exit(CANNOT_RUN)
        return
    done: list[str] = run(stores.migrate_database(settings))
    says = f"Ran {count_phrase(len(done), 'migration')}: {', '.join(done)}" if done else "The schema is up to date; nothing to do."
    print_result({"ran": done}, says, is_json=is_json)
