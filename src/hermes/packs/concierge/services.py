"""The services behind the concierge's tools: the stores, and rides, deliveries and cards without a connected provider.

Without a provider, quotes are computed from the distance, and marked as estimates. The same trip gets the same quote. An order is recorded
as not taken, and the user is told so."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from hashlib import sha256
from xml.sax.saxutils import escape
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hermes.packs.concierge.ports import (
    Bookings,
    Card,
    Cards,
    DrawnCard,
    GeoPoint,
    Nutrition,
    Orders,
    PlacedOrder,
    PriceWatchers,
    Products,
    Quote,
    Reminders,
    Transport,
    Trip,
    Venues,
)
from hermes.ports.tools import Notebook

EARTH_KM = 6_371.0
ROAD_FACTOR = 1.35
"""How much longer a road is than the straight line, on an island with few roads."""


def distance_km(start: GeoPoint, end: GeoPoint) -> float:
    """Return the length of the straight line between two points on the globe."""
    here, there = math.radians(start.latitude), math.radians(end.latitude)
    east = math.radians(end.longitude - start.longitude)
    chord = math.sin((there - here) / 2) ** 2 + math.cos(here) * math.cos(there) * math.sin(east / 2) ** 2
    return 2 * EARTH_KM * math.asin(math.sqrt(min(1.0, chord)))


@dataclass(frozen=True, slots=True)
class Fare:
    """The price of one kind of ride: the base price, the price per kilometre, and the lowest price."""

    base: float
    per_km: float
    min_price: float
    km_per_hour: float

    def quote(self, service: str, provider: str, km: float, *, wait_minutes: int) -> Quote:
        price = max(self.min_price, self.base + self.per_km * km)
        minutes = wait_minutes + math.ceil(60 * km / self.km_per_hour)
        rounded = float(math.ceil(price / 1_000) * 1_000)
        return Quote(provider=provider, service=service, price=rounded, currency="IDR", minutes=minutes, km=round(km, 1), is_estimate=True)


RIDES: Mapping[str, Fare] = {"bike": Fare(4_000, 2_500, 12_000, 28), "car": Fare(9_000, 5_500, 25_000, 24)}
DELIVERIES: Mapping[str, Fare] = {"courier": Fare(8_000, 2_800, 15_000, 26)}


@dataclass(frozen=True, slots=True)
class EstimatedTransport:
    """Transport with computed quotes. No driver ever comes."""

    provider: str
    fares: Mapping[str, Fare]
    wait_minutes: int

    async def quotes(self, trip: Trip, *, items: str = "") -> Sequence[Quote]:  # noqa: ARG002  # a real provider asks what it carries
        km = distance_km(trip.start, trip.end) * ROAD_FACTOR
        each = (fare.quote(service, self.provider, km, wait_minutes=self.wait_minutes) for service, fare in self.fares.items())
        return sorted(each, key=lambda quote: quote.price)

    async def order(self, trip: Trip, quote: Quote, *, items: str = "", key: str) -> PlacedOrder:  # noqa: ARG002  # as above
        return PlacedOrder(reference=sha256(key.encode()).hexdigest()[:10], is_taken=False)


@dataclass(frozen=True, slots=True)
class EstimatedRides(EstimatedTransport):
    """Rides by motorbike and by car, at the usual fares in Indonesia."""

    provider: str = "estimate"
    fares: Mapping[str, Fare] = field(default_factory=lambda: RIDES)
    wait_minutes: int = 6


@dataclass(frozen=True, slots=True)
class EstimatedDeliveries(EstimatedTransport):
    """Deliveries by motorbike."""

    provider: str = "estimate"
    fares: Mapping[str, Fare] = field(default_factory=lambda: DELIVERIES)
    wait_minutes: int = 20


WIDTH = 34
COLOURS = ("#0b7285", "#a61e4d", "#5f3dc4", "#2b8a3e", "#d9480f", "#364fc7")


@dataclass(frozen=True, slots=True)
class PlainCards:
    """Cards as text in a frame, and as a small SVG image. The occasion decides the colour."""

    name: str = "plain"

    async def draw(self, card: Card, *, key: str) -> DrawnCard:  # noqa: ARG002  # the same card always gives the same drawing
        lines = [card.title, "", *textwrap.wrap(card.message, WIDTH - 4), *(["", f"— {card.sender}"] if card.sender else [])]
        frame = "─" * (WIDTH - 2)
        text = "\n".join([f"┌{frame}┐", *(f"  {line}".rstrip() for line in lines), f"└{frame}┘"])
        colour = COLOURS[sha256(card.occasion.casefold().encode()).digest()[0] % len(COLOURS)]
        spans = "".join(f'<tspan x="40" dy="1.5em">{escape(line) or "&#160;"}</tspan>' for line in lines)
        height = 80 + 36 * len(lines)
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="{height}" viewBox="0 0 640 {height}">'
            f'<rect width="640" height="{height}" rx="24" fill="{colour}"/>'
            f'<text y="24" font-family="Georgia, serif" font-size="24" fill="#fff">{spans}</text></svg>'
        )
        return DrawnCard(text, svg=svg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Concierge:
    """The services behind the tools. Rides, deliveries and cards are computed here until a provider is connected."""

    venues: Venues
    bookings: Bookings
    reminders: Reminders
    products: Products
    watchers: PriceWatchers
    nutrition: Nutrition
    orders: Orders
    notebook: Notebook
    rides: Transport = field(default_factory=EstimatedRides)
    deliveries: Transport = field(default_factory=EstimatedDeliveries)
    cards: Cards = field(default_factory=PlainCards)


def zone_named(name: str) -> tzinfo:
    """Return the time zone of this name; UTC if the name is unknown."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def format_time(at: datetime) -> str:
    """Return a time as people write it: `Sat 31 Jan 2026, 19:30`."""
    return f"{at:%a} {at.day} {at:%b %Y, %H:%M}"
