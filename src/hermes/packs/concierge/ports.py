"""What the concierge's tools need: places, bookings, reminders, products and their prices, food, and orders at providers.

Everything of a user that is not a number or a date is sealed with their key. A `code` is the name by which a user and a model refer to a
thing: short, without letters that look alike, unique for the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from hermes.ports.runtime import Transaction


@dataclass(frozen=True, slots=True)
class GeoPoint:
    """A place on the map, in degrees."""

    latitude: float
    longitude: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Venue:
    """A place to go to."""

    id: str
    """A slug, the same at every import: `canggu-driftwood-deck`."""
    name: str
    category: str
    """One word of the vocabulary: bar, restaurant, cafe, …"""
    area: str
    city: str
    at: GeoPoint
    timezone: str
    hours: str = ""
    """In the notation of OpenStreetMap's `opening_hours`; empty if unknown."""
    price_level: int | None = None
    """1 is cheap, 4 is expensive."""
    tags: tuple[str, ...] = ()
    about: str = ""
    address: str = ""
    phone: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VenueQuery:
    """What a search looks for. Words and tags add to the score; categories, area, distance and price must hold."""

    words: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    area: str | None = None
    near: GeoPoint | None = None
    within_km: float | None = None
    max_price_level: int | None = None
    limit: int = 40


@dataclass(frozen=True, slots=True)
class FoundVenue:
    """A place that a search found: how well it fits, and how far it is if the search had a `near`."""

    venue: Venue
    score: float
    km: float | None


class Venues(Protocol):
    """Places. The same for all users; not sealed."""

    async def put(self, tx: Transaction, venues: Sequence[Venue]) -> int:
        """Add places, or update those with the same id; return how many are new."""
        ...

    async def search(self, tx: Transaction, query: VenueQuery) -> Sequence[FoundVenue]:
        """Return the places that fit, the best first."""
        ...

    async def find_by_name(self, tx: Transaction, name: str, *, limit: int = 5) -> Sequence[Venue]:
        """Return the places with this id or name, or with a similar one, the most similar first."""
        ...

    async def areas(self, tx: Transaction) -> Mapping[str, GeoPoint]:
        """Return the areas and cities that have places, in lower case, each with the centre of its places."""
        ...

    async def list(self, tx: Transaction, *, area: str | None = None, limit: int = 100) -> Sequence[Venue]:
        """Return places by city, area and name."""
        ...

    async def count(self, tx: Transaction) -> int:
        """How many places there are."""
        ...


class BookingState(StrEnum):
    """How far a booking is."""

    REQUESTED = "requested"
    """Stored here; the venue has not answered yet."""
    CONFIRMED = "confirmed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """A table, a treatment, a place at the pool."""

    code: str
    venue: Venue
    at: datetime
    """In the venue's zone."""
    party_size: int
    state: BookingState
    name: str = ""
    note: str = ""
    rating: int | None = None
    comment: str = ""


class Bookings(Protocol):
    """What users booked. Fails closed."""

    async def add(
        self, tx: Transaction, user_id: UUID, venue: Venue, at: datetime, party_size: int, *, name: str = "", note: str = ""
    ) -> Booking:
        """Store a booking as requested."""
        ...

    async def get(self, tx: Transaction, user_id: UUID, code: str) -> Booking:
        """Return a booking of this user; raise NotFound."""
        ...

    async def of(self, tx: Transaction, user_id: UUID, *, since: datetime | None = None, limit: int = 10) -> Sequence[Booking]:
        """Return a user's bookings: from `since` on, the next one first; without it, the latest one first."""
        ...

    async def settle(self, tx: Transaction, user_id: UUID, code: str, state: BookingState) -> Booking:
        """Change the state of a booking and return it; raise NotFound. Repeating it changes nothing."""
        ...

    async def rate(self, tx: Transaction, user_id: UUID, code: str, rating: int, comment: str) -> Booking:
        """Store the user's rating, in place of an earlier one; raise NotFound."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reminder:
    """A text to send to a user at a given time."""

    code: str
    user_id: UUID
    turn_id: UUID
    """The turn in which the user asked for it; the reminder goes into its conversation."""
    at: datetime
    text: str


class Reminders(Protocol):
    """The reminders of users. Fails closed."""

    async def add(self, tx: Transaction, user_id: UUID, turn_id: UUID, at: datetime, text: str) -> Reminder:
        """Store a reminder."""
        ...

    async def take_due(self, tx: Transaction, now: datetime, *, limit: int = 100) -> Sequence[Reminder]:
        """Return reminders that are due, each once: to the first transaction that commits. Those of deleted users are dropped."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product of a shop."""

    id: str
    name: str
    brand: str
    category: str
    price: float
    currency: str
    shop: str
    tags: tuple[str, ...] = ()
    """What it is like: matte, linen, leather, waterproof; the more two products share, the more one is a dupe of the other."""
    url: str = ""


@dataclass(frozen=True, slots=True)
class FoundProduct:
    """A product that a search found, and how well it fits."""

    product: Product
    score: float


class Products(Protocol):
    """The catalogue, with prices. The same for all users; not sealed."""

    async def put(self, tx: Transaction, products: Sequence[Product]) -> int:
        """Add products, or update those with the same id, prices included; return how many are new."""
        ...

    async def search(
        self, tx: Transaction, words: Sequence[str], *, max_price: float | None = None, currency: str | None = None, limit: int = 20
    ) -> Sequence[FoundProduct]:
        """Return the products that fit some of the words, the best first."""
        ...

    async def count(self, tx: Transaction) -> int:
        """How many products there are."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceWatcher:
    """A product whose price a user waits for."""

    code: str
    user_id: UUID
    turn_id: UUID
    product: Product
    target: float


class PriceWatchers(Protocol):
    """Prices that users wait for. Fails closed."""

    async def add(self, tx: Transaction, user_id: UUID, turn_id: UUID, product_id: str, target: float) -> PriceWatcher:
        """Store a target price, in place of an earlier target for the same product."""
        ...

    async def take_due(self, tx: Transaction, *, limit: int = 100) -> Sequence[PriceWatcher]:
        """Return watchers whose product now costs the target price or less, each once: to the first transaction that commits."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Food:
    """A food, with the values of 100 g."""

    id: str
    name: str
    also: tuple[str, ...] = ()
    """Other names, in any language."""
    kcal: float
    protein_g: float
    fat_g: float
    carbs_g: float
    fibre_g: float
    serving_g: float
    """One normal portion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MealItem:
    """A portion that a user ate."""

    food: str
    grams: float
    kcal: float
    protein_g: float
    fat_g: float
    carbs_g: float
    fibre_g: float
    at: datetime


class Nutrition(Protocol):
    """The food table, which all users share, and what each user ate, which is sealed."""

    async def put(self, tx: Transaction, foods: Sequence[Food]) -> int:
        """Add foods, or update those with the same id; return how many are new."""
        ...

    async def find(self, tx: Transaction, name: str) -> Food | None:
        """Return the food of this name, or the most similar one; None if none is similar."""
        ...

    async def log(self, tx: Transaction, user_id: UUID, portions: Sequence[MealItem]) -> None:
        """Store what a user ate."""
        ...

    async def meal_items(self, tx: Transaction, user_id: UUID, since: datetime, until: datetime) -> Sequence[MealItem]:
        """Return what a user ate from `since` until before `until`, in that order."""
        ...

    async def count(self, tx: Transaction) -> int:
        """How many foods there are."""
        ...


class OrderKind(StrEnum):
    """What a provider does for a user."""

    RIDE = "ride"
    DELIVERY = "delivery"
    CARD = "card"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order at a provider."""

    code: str
    kind: OrderKind
    provider: str
    reference: str
    """The provider's id of the order."""
    price: float
    currency: str
    details: Mapping[str, Any] = field(default_factory=dict)


class Orders(Protocol):
    """Orders at providers. Fails closed."""

    async def add(
        self,
        tx: Transaction,
        user_id: UUID,
        kind: OrderKind,
        *,
        provider: str,
        reference: str,
        price: float = 0.0,
        currency: str = "",
        details: Mapping[str, Any],
    ) -> Order:
        """Store an order."""
        ...

    async def get(self, tx: Transaction, user_id: UUID, code: str) -> Order:
        """Return an order of this user; raise NotFound."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """A ride or a delivery from one place to another."""

    origin: str
    destination: str
    start: GeoPoint
    end: GeoPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """The price of a trip, and how long it would take."""

    provider: str
    service: str
    """`bike`, `car`, `courier`, …"""
    price: float
    currency: str
    minutes: int
    km: float
    is_estimate: bool
    """Hermes computed it; no provider has confirmed it."""


@dataclass(frozen=True, slots=True)
class PlacedOrder:
    """An order as the provider received it."""

    reference: str
    is_taken: bool
    """The provider will carry it out. False: it is only stored, because no provider is connected."""


class Transport(Protocol):
    """Rides, or deliveries. May raise any error; the tool call handles it."""

    async def quotes(self, trip: Trip, *, items: str = "") -> Sequence[Quote]:
        """Return what the trip would cost, the cheapest first."""
        ...

    async def order(self, trip: Trip, quote: Quote, *, items: str = "", key: str) -> PlacedOrder:
        """Order it. The same key means the same order, so that a call that was cut off can be repeated."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card to send: an invitation, a greeting."""

    occasion: str
    title: str
    message: str
    sender: str = ""


@dataclass(frozen=True, slots=True)
class DrawnCard:
    """A drawn card: the URL of its picture or the picture itself, and the card as plain text."""

    text: str
    svg: str = ""
    url: str = ""


class Cards(Protocol):
    """Draws cards. May raise any error; the tool call handles it."""

    @property
    def name(self) -> str:
        """The name of the provider that draws."""
        ...

    async def draw(self, card: Card, *, key: str) -> DrawnCard:
        """Draw a card. The same key means the same card."""
        ...
