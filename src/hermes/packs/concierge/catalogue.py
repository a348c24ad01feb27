"""Venues, products and foods on PostgreSQL. Words are compared without case and accents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hermes.packs.concierge.ports import FoundProduct, FoundVenue, GeoPoint, Product, Venue, VenueQuery
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.queries import load_queries
from hermes.tools.vocabulary import fold

SQL = load_queries("catalogue.sql", __package__)
KM_PER_DEGREE = 111.0
WORD_PATTERN = re.compile(r"\w{2,}")


class PostgresVenues:
    """The port Venues."""

    async def put(self, tx: Transaction, venues: Sequence[Venue]) -> int:
        return await put_rows(tx, "put_venue", [venue_row(venue) for venue in venues])

    async def search(self, tx: Transaction, query: VenueQuery) -> Sequence[FoundVenue]:
        near, within = query.near, query.within_km
        row = {
            "words": [fold(word) for word in query.words],
            "tags": list(query.tags),
            "categories": list(query.categories),
            "area": fold(query.area) if query.area else None,
            "latitude": near.latitude if near else None,
            "longitude": near.longitude if near else None,
            "within_km": within if near else None,
            "within_deg": within / KM_PER_DEGREE if near and within else None,
            "max_price_level": query.max_price_level,
            "limit": query.limit,
        }
        return [FoundVenue(as_venue(found[:-2]), float(found[-2]), found[-1]) for found in await fetch_rows(tx, "search_venues", row)]

    async def find_by_name(self, tx: Transaction, name: str, *, limit: int = 5) -> Sequence[Venue]:
        folded = fold(name)
        if not folded:
            return []
        row = {"id": folded.replace(" ", "-"), "name": folded, "limit": limit}
        return [as_venue(found) for found in await fetch_rows(tx, "venues_named", row)]

    async def areas(self, tx: Transaction) -> Mapping[str, GeoPoint]:
        return {key: GeoPoint(latitude, longitude) for key, latitude, longitude in await fetch_rows(tx, "areas", {})}

    async def list(self, tx: Transaction, *, area: str | None = None, limit: int = 100) -> Sequence[Venue]:
        return [as_venue(row) for row in await fetch_rows(tx, "list_venues", {"area": fold(area) if area else None, "limit": limit})]

    async def count(self, tx: Transaction) -> int:
        return await count_rows(tx, "count_venues")


class PostgresProducts:
    """The port Products."""

    async def put(self, tx: Transaction, products: Sequence[Product]) -> int:
        return await put_rows(tx, "put_product", [product_row(product) for product in products])

    async def search(
        self, tx: Transaction, words: Sequence[str], *, max_price: float | None = None, currency: str | None = None, limit: int = 20
    ) -> Sequence[FoundProduct]:
        row = {"words": [fold(word) for word in words], "max_price": max_price, "currency": currency, "limit": limit}
        return [FoundProduct(as_product(found[:-1]), float(found[-1])) for found in await fetch_rows(tx, "search_products", row)]

    async def count(self, tx: Transaction) -> int:
        return await count_rows(tx, "count_products")


async def fetch_rows(tx: Transaction, query: str, values: dict[str, Any]) -> list[Any]:
    return await (await connection_of(tx).execute(SQL[query], values)).fetchall()


async def put_rows(tx: Transaction, query: str, values: list[dict[str, Any]]) -> int:
    """Put rows in one pipeline, one after the other; return how many are new."""
    if not values:
        return 0
    cursor = connection_of(tx).cursor()
    await cursor.executemany(SQL[query], values, returning=True)
    new: int = 0
    while True:
        new += sum(bool(is_new) for [is_new] in await cursor.fetchall())
        if not cursor.nextset():
            return new


async def count_rows(tx: Transaction, query: str) -> int:
    [[count]] = await fetch_rows(tx, query, {})
    return int(count)


def venue_row(venue: Venue) -> dict[str, Any]:
    words = (venue.name, venue.category, venue.area, venue.city, *venue.tags, venue.about, venue.address)
    keys = {"area_key": fold(venue.area), "city_key": fold(venue.city), "name_key": fold(venue.name)}
    plain = {name: value for name, value in asdict(venue).items() if name != "at"}
    place = {"latitude": venue.at.latitude, "longitude": venue.at.longitude}
    return {**plain, **place, **keys, "tags": list(venue.tags), "words": fold(" ".join(words).replace("_", " "))}


def as_venue(row: Sequence[Any]) -> Venue:
    """Read a row of the venue columns, in the order in which every query here selects them."""
    venue_id, name, category, area, city, latitude, longitude, timezone, hours, price_level, tags, *texts = row
    about, address, phone, url = texts
    return Venue(
        id=venue_id,
        name=name,
        category=category,
        area=area,
        city=city,
        at=GeoPoint(latitude, longitude),
        timezone=timezone,
        hours=hours,
        price_level=price_level,
        tags=tuple(tags),
        about=about,
        address=address,
        phone=phone,
        url=url,
    )


def product_row(product: Product) -> dict[str, Any]:
    words = (product.name, product.brand, product.category, product.shop, *product.tags)
    return {**asdict(product), "tags": list(product.tags), "words": fold(" ".join(words))}


def as_product(row: Sequence[Any]) -> Product:
    """Read a row of the product columns, in the order in which every query here selects them."""
    product_id, name, brand, category, price, currency, shop, tags, url = row
    return Product(
        id=product_id,
        name=name,
        brand=brand,
        category=category,
        price=float(price),
        currency=currency,
        shop=shop,
        tags=tuple(tags),
        url=url,
    )
