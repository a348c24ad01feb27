"""`hermes weather`: says that it rains somewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hermes.packs import PackConsole, PackServices
from hermes.stores.postgres.database import connection_of


def weather_commands(console: PackConsole) -> typer.Typer:
    weather = typer.Typer(no_args_is_help=True, help="The weather.")

    @weather.callback()
    def choose() -> None:
        """The weather."""

    @weather.command()
    def rain(town: str, config: Annotated[Path | None, typer.Option("--config")] = None) -> None:
        """Say that it rains in a town."""

        async def mark(services: PackServices) -> int:
            async with services.transactions.begin() as tx:
                return (await connection_of(tx).execute("update weather_watches set rains = true where town = %s", [town])).rowcount

        if not town.isalpha():
            console.fail(f"{town} is no town")
        typer.echo(f"{console.run(config, mark)} users want to know.")

    return weather
