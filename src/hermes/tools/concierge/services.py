"""The services behind the concierge tools, and how the tools write times."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hermes.ports.concierge import Bookings, Cards, Nutrition, Orders, PriceWatchers, Products, Reminders, Transport, Venues
from hermes.ports.tools import Notebook
from hermes.tools.concierge.offline import EstimatedDeliveries, EstimatedRides, PlainCards


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
