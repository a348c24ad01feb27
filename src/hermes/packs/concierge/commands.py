"""`hermes venues`: import places for the concierge from files, or load the sample data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from hermes.packs import PackConsole, PackServices
from hermes.packs.concierge.catalogue import PostgresProducts, PostgresVenues
from hermes.packs.concierge.data_files import BadTable, SampleCounts, batches, load_samples, read_sample, read_venues
from hermes.packs.concierge.ports import Venue
from hermes.packs.concierge.records import PostgresNutrition

MAX_FILE_BYTES = 200_000_000

Json = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
Config = Annotated[
    Path | None, typer.Option("--config", help="Read the settings from this file instead of ./hermes.toml.", show_default=False)
]


def venues_commands(console: PackConsole) -> typer.Typer:
    """Return the commands of `hermes venues`."""
    venues = typer.Typer(
        no_args_is_help=True,
        help="Places: import, list, sample.\n\n"
        "    hermes venues sample                  the places, products and foods that come with Hermes\n"
        "    hermes venues import places.csv       columns: name, latitude, longitude, … (all: sample --print)\n"
        "    hermes venues import bali.geojson     for instance an extract of OpenStreetMap",
    )

    @venues.command("import")
    def import_(
        file: Annotated[
            Path, typer.Argument(metavar="FILE.csv|FILE.geojson", help="The file of places. A place whose id is known is updated.")
        ],
        *,
        is_json: Json = False,
        config: Config = None,
    ) -> None:
        """Import places from a file: all of them, or none if one is not valid."""
        found = places_in(file, console)

        async def put(services: PackServices) -> int:
            pieces = list(batches(found))
            new = 0
            async with services.transactions.begin() as tx:
                for piece in track(pieces, "importing", console=Console(stderr=True), disable=len(pieces) < 2 or is_json):
                    new += await PostgresVenues().put(tx, piece)
            return new

        new = console.run(config, put)
        if is_json:
            console.print_json({"read": len(found), "new": new, "updated": len(found) - new})
            return
        typer.echo(f"{len(found)} places: {new} new, {len(found) - new} updated.")

    @venues.command("list")
    def list_(
        area: Annotated[str | None, typer.Argument(help="An area or a city.", show_default="everywhere")] = None,
        *,
        limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many places to show.")] = 100,
        is_json: Json = False,
        config: Config = None,
    ) -> None:
        """List places by city, area and name."""

        async def read(services: PackServices) -> Sequence[Venue]:
            async with services.transactions.begin() as tx:
                return await PostgresVenues().list(tx, area=area, limit=limit)

        found = console.run(config, read)
        print_venues(found, console, is_json=is_json)

    @venues.command()
    def sample(
        *,
        is_print: Annotated[
            bool, typer.Option("--print", help="Print the sample places as CSV instead, as a template for your own file.")
        ] = False,
        is_json: Json = False,
        config: Config = None,
    ) -> None:
        """Load the sample data: invented places in Bali and Jakarta, products with prices, foods with nutrients. You may repeat it."""
        if is_print:
            typer.echo(read_sample("venues.csv"), nl=False)
            return

        async def fill(services: PackServices) -> SampleCounts:
            nutrition = PostgresNutrition(services.keyring)
            return await load_samples(services.transactions, PostgresVenues(), PostgresProducts(), nutrition)

        new = console.run(config, fill)
        if is_json:
            console.print_json(asdict(new))
            return
        typer.echo(f"New: {new.venues} places, {new.products} products, {new.foods} foods. Try it: hermes venues list Canggu")

    return venues


def places_in(file: Path, console: PackConsole) -> list[Venue]:
    """Read the places of a file. A bad file ends the command."""
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            console.fail(f"{file} is larger than {MAX_FILE_BYTES // 1_000_000} MB; cut it into pieces")
        return read_venues(file.read_text(encoding="utf-8-sig"), is_geojson=file.suffix.casefold() in {".geojson", ".json"})
    except OSError as error:
        console.fail(f"cannot read {file}: {error.strerror}")
    except UnicodeDecodeError:
        console.fail(f"{file} is not UTF-8 text")
    except BadTable as error:
        console.fail(f"{file}: {error}")


def print_venues(venues: Sequence[Venue], console: PackConsole, *, is_json: bool) -> None:
    if is_json:
        console.print_json([asdict(venue) for venue in venues])
        return
    if not venues:
        typer.echo("There are no places here; import some: hermes venues import FILE, or hermes venues sample")
        return
    rows = [(v.name, v.category, v.area, v.city, "$" * (v.price_level or 0), v.hours, ", ".join(v.tags), v.id) for v in venues]
    console.print_table(("name", "category", "area", "city", "price", "hours", "tags", "id"), rows)
