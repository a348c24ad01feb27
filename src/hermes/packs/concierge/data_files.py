"""Read places, products and foods from files: CSV, and GeoJSON for places. A bad row is reported with its line, and nothing is imported.

A file of places has at least name, latitude and longitude; `hermes venues sample --print` shows every column. GeoJSON is a
FeatureCollection whose properties have the same names, or those of OpenStreetMap (`amenity`, `opening_hours`, `addr:street`, …)."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeVar

from hermes.packs.concierge.hours import parse_hours
from hermes.packs.concierge.ports import Food, GeoPoint, Nutrition, Product, Products, Venue, Venues
from hermes.packs.concierge.words import CATEGORIES, CATEGORY_WORDS
from hermes.ports.runtime import Transactions
from hermes.tools.parameters import clean_text
from hermes.tools.vocabulary import fold

T = TypeVar("T")
Row = Mapping[str, str]

BATCH_ROWS = 500
MAX_TEXT_CHARS = 300
NOT_SLUG = re.compile(r"[^a-z0-9]+")


class BadTable(Exception):
    """A file does not have the expected format; the message names the line."""


def read_venues(text: str, *, is_geojson: bool) -> list[Venue]:
    """Read places from the text of a file. Raises BadTable. Of places with the same id, the last one counts."""
    rows = geojson_rows(text) if is_geojson else csv_rows(text)
    return list({venue.id: venue for venue in parse_rows(rows, venue_of)}.values())


def sample_venues() -> list[Venue]:
    """Return the sample places."""
    return read_venues(read_sample("venues.csv"), is_geojson=False)


def sample_products() -> list[Product]:
    """Return the sample products."""
    return list(parse_rows(csv_rows(read_sample("products.csv")), product_of))


def sample_foods() -> list[Food]:
    """Return the sample foods."""
    return list(parse_rows(csv_rows(read_sample("foods.csv")), food_of))


def read_sample(name: str) -> str:
    """Return the text of a file of the sample data."""
    return (resources.files(__package__) / "sample" / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """How many rows of the sample data were new."""

    venues: int
    products: int
    foods: int


async def load_samples(
    transactions: Transactions, venues: Venues, products: Products, nutrition: Nutrition, *, only_if_empty: bool = False
) -> SampleCounts:
    """Put the sample data into the tables. With `only_if_empty`, a table that has rows is left alone. May be repeated."""
    async with transactions.begin() as tx:
        needs_rows = [not only_if_empty or not await table.count(tx) for table in (venues, products, nutrition)]
        return SampleCounts(
            await venues.put(tx, sample_venues()) if needs_rows[0] else 0,
            await products.put(tx, sample_products()) if needs_rows[1] else 0,
            await nutrition.put(tx, sample_foods()) if needs_rows[2] else 0,
        )


def parse_rows(rows: Iterable[tuple[int, Row]], make: Callable[[Row], T]) -> Iterator[T]:
    for line, row in rows:
        try:
            yield make(row)
        except (KeyError, ValueError) as error:
            reason = f"there is no {error.args[0]}" if isinstance(error, KeyError) else str(error)
            raise BadTable(f"line {line}: {reason}") from None


def csv_rows(text: str) -> Iterator[tuple[int, Row]]:
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")), strict=True)
    try:
        for row in reader:
            # A missing quote makes cells without a column, or columns without a cell.
            if None in row or None in row.values():
                raise BadTable(
                    f"line {reader.line_num}: {len(reader.fieldnames or ())} columns are expected; is a quote or a comma missing?"
                )
            yield reader.line_num, {name.strip().casefold(): clean_text(value) for name, value in row.items()}
    except csv.Error as error:
        raise BadTable(f"line {reader.line_num}: {error}") from None


def geojson_rows(text: str) -> Iterator[tuple[int, Row]]:
    """Yield the features of a collection, counted from 1."""
    try:
        document = json.loads(text)
        features = document["features"]
    except (ValueError, KeyError, TypeError):
        raise BadTable("this is not a GeoJSON FeatureCollection") from None
    for number, feature in enumerate(features, 1):
        try:
            properties, geometry = feature.get("properties") or {}, feature["geometry"]
            longitude, latitude = centre_of(geometry["coordinates"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise BadTable(f"feature {number}: it has no point") from None
        row = {str(name).casefold(): clean_text(join_values(value)) for name, value in properties.items() if value is not None}
        row = {**{ours: row[theirs] for theirs, ours in OPENSTREETMAP.items() if row.get(theirs)}, **row}
        if row.get("name"):  # a map also has benches and bins, which have no name
            row.setdefault("id", clean_text(str(feature.get("id", ""))))
            yield number, {**row, "latitude": str(latitude), "longitude": str(longitude)}


OPENSTREETMAP: Mapping[str, str] = {
    "tourism": "category",
    "leisure": "category",
    "shop": "category",
    "amenity": "category",
    "opening_hours": "hours",
    "addr:street": "address",
    "addr:suburb": "area",
    "addr:city": "city",
    "contact:phone": "phone",
    "website": "url",
    "description": "about",
    "cuisine": "tags",
    "@id": "id",
}


def join_values(value: Any) -> str:
    return ";".join(map(str, value)) if isinstance(value, list) else str(value)


def centre_of(coordinates: Any) -> tuple[float, float]:
    """Return the point; for any other shape, the centre of its corners."""
    if isinstance(coordinates[0], int | float):
        return float(coordinates[0]), float(coordinates[1])
    points = [centre_of(part) for part in coordinates]
    return sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)


def venue_of(row: Row) -> Venue:
    name = required_value(row, "name")
    area, city = row.get("area") or row.get("city", ""), row.get("city") or row.get("area", "")
    at = GeoPoint(number_in(row, "latitude", -90, 90), number_in(row, "longitude", -180, 180))
    level = row.get("price_level", "")
    hours = row.get("hours", "")
    return Venue(
        id=slug(row.get("id") or f"{area} {name}"),
        name=name[:120],
        category=category_of(row.get("category", "")),
        area=area[:80],
        city=city[:80],
        at=at,
        timezone=row.get("timezone") or zone_at(at),
        hours=hours if parse_hours(hours) is not None else "",
        price_level=int(number_in(row, "price_level", 1, 4)) if level else None,
        tags=tuple(dict.fromkeys(tag_of(tag) for tag in re.split(r"[;,|]", row.get("tags", "")) if tag.strip()))[:20],
        about=row.get("about", "")[:MAX_TEXT_CHARS],
        address=row.get("address", "")[:200],
        phone=row.get("phone", "")[:40],
        url=row.get("url", "")[:300],
    )


def product_of(row: Row) -> Product:
    return Product(
        id=slug(required_value(row, "id")),
        name=required_value(row, "name"),
        brand=row.get("brand", ""),
        category=required_value(row, "category"),
        price=number_in(row, "price", 0, 1e12),
        currency=required_value(row, "currency").upper(),
        shop=row.get("shop", ""),
        tags=tuple(tag.strip() for tag in row.get("tags", "").split(";") if tag.strip()),
        url=row.get("url", ""),
    )


def food_of(row: Row) -> Food:
    amounts = {name: number_in(row, name, 0, 1_000) for name in ("kcal", "protein_g", "fat_g", "carbs_g", "fibre_g", "serving_g")}
    also = tuple(name.strip() for name in row.get("also", "").split(";") if name.strip())
    return Food(id=slug(required_value(row, "id")), name=required_value(row, "name"), also=also, **amounts)


def required_value(row: Row, name: str) -> str:
    if not row.get(name):
        raise KeyError(name)
    return row[name]


def number_in(row: Row, name: str, low: float, high: float) -> float:
    text = required_value(row, name)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:  # also true for NaN
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}, not {text[:40]!r}")
    return value


def slug(text: str) -> str:
    """Return an id that people can say and type. A text without Latin letters or digits keeps its own letters."""
    folded = fold(text)
    plain = NOT_SLUG.sub("-", folded).strip("-")
    return (plain or re.sub(r"\W+", "-", folded).strip("-"))[:80]


def category_of(text: str) -> str:
    """Return the category of the vocabulary for a file's word; the file's own word if the vocabulary has none."""
    folded = fold(text.replace("_", " "))
    plain = folded.replace(" ", "_")
    if plain in CATEGORIES:
        return plain
    return next((category for category, lexicon in CATEGORY_WORDS.items() if lexicon.is_in(folded)), plain[:40] or "place")


def tag_of(text: str) -> str:
    return fold(text).replace(" ", "_")[:40]


def zone_at(at: GeoPoint) -> str:
    """Return a time zone for a place without one: in Indonesia by longitude, elsewhere the nearest whole hour by longitude."""
    if -11 <= at.latitude <= 6 and 95 <= at.longitude <= 141:
        return "Asia/Jakarta" if at.longitude < 114.4 else "Asia/Makassar" if at.longitude < 127 else "Asia/Jayapura"
    hours = round(at.longitude / 15)
    return f"Etc/GMT{-hours:+d}" if hours else "Etc/GMT"


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split items into batches of BATCH_ROWS."""
    return (items[start : start + BATCH_ROWS] for start in range(0, len(items), BATCH_ROWS))
