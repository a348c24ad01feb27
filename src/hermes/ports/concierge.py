"""What the concierge's tools need: places, bookings, things to be reminded of, goods and their prices, food, and what others do for us.

Everything of a user that is not a number or a date is sealed with their key. A `code` is how a user and a model name a thing: short,
without letters that look alike, unique for the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from hermes.ports.transactions import Transaction


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
    """In the notation of OpenStreetMap's `opening_hours`; empty where nobody knows."""
    price_level: int | None = None
    """1 is cheap, 4 is dear."""
    tags: tuple[str, ...] = ()
    about: str = ""
    address: str = ""
    phone: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VenueQuery:
    """What a search looks for. Words and tags add up; categories, area, distance and price must hold."""

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
    """A place that a search found: how well it fits, and how far it is where that was asked."""

    venue: Venue
    score: float
    km: float | None


class Venues(Protocol):
    """Places. The same for all users; not sealed."""

    async def put(self, tx: Transaction, venues: Sequence[Venue]) -> int:
        """Add places, or bring those with the same id up to date; return how many are new."""
        ...

    async def search(self, tx: Transaction, query: VenueQuery) -> Sequence[FoundVenue]:
        """Return what fits, the best first."""
        ...

    async def find_by_name(self, tx: Transaction, name: str, *, limit: int = 5) -> Sequence[Venue]:
        """Return the places with this id or name, or with one much like it, the most alike first."""
        ...

    async def areas(self, tx: Transaction) -> Mapping[str, GeoPoint]:
        """Return the areas and cities that have places, in lower case, each with the middle of its places."""
        ...

    async def list(self, tx: Transaction, *, area: str | None = None, limit: int = 100) -> Sequence[Venue]:
        """Return places by city, area and name."""
        ...

    async def count(self, tx: Transaction) -> int:
        """How many there are."""
        ...


class BookingState(StrEnum):
    """How far a booking is."""

    REQUESTED = "requested"
    """Noted here; the venue has not answered yet."""
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
        """Note a booking as requested."""
        ...

    async def get(self, tx: Transaction, user_id: UUID, code: str) -> Booking:
        """Return a booking of this user; raise NotThere."""
        ...

    async def of(self, tx: Transaction, user_id: UUID, *, since: datetime | None = None, limit: int = 10) -> Sequence[Booking]:
        """Return a user's bookings: from `since` on, the next one first; without it, the latest one first."""
        ...

    async def settle(self, tx: Transaction, user_id: UUID, code: str, state: BookingState) -> Booking:
        """Change the state of a booking and return it; raise NotThere. Repeating it changes nothing."""
        ...

    async def rate(self, tx: Transaction, user_id: UUID, code: str, rating: int, comment: str) -> Booking:
        """Note how it was, in place of an earlier word; raise NotThere."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reminder:
    """Something to say to a user at a time."""

    code: str
    user_id: UUID
    turn_id: UUID
    """The turn that asked for it, and so the conversation to say it in."""
    at: datetime
    text: str


class Reminders(Protocol):
    """What users want to be reminded of. Fails closed."""

    async def add(self, tx: Transaction, user_id: UUID, turn_id: UUID, at: datetime, text: str) -> Reminder:
        """Note a reminder."""
        ...

    async def take_due(self, tx: Transaction, now: datetime, *, limit: int = 100) -> Sequence[Reminder]:
        """Return reminders whose time has come, each once, to whoever commits first. Those of users who were deleted are dropped."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Something that is sold somewhere."""

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
        """Add products, or bring those with the same id up to date, prices included; return how many are new."""
        ...

    async def search(
        self, tx: Transaction, words: Sequence[str], *, max_price: float | None = None, currency: str | None = None, limit: int = 20
    ) -> Sequence[FoundProduct]:
        """Return what fits some of the words, the best first."""
        ...

    async def count(self, tx: Transaction) -> int:
        """How many there are."""
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
        """Wait for a price, in place of an earlier target for the same product."""
        ...

    async def take_due(self, tx: Transaction, *, limit: int = 100) -> Sequence[PriceWatcher]:
        """Return watchers whose product has come down to their price, each once, to whoever commits first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Food:
    """A food, with what 100 g of it hold."""

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
    """One usual portion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MealItem:
    """A portion as it was eaten."""

    food: str
    grams: float
    kcal: float
    protein_g: float
    fat_g: float
    carbs_g: float
    fibre_g: float
    at: datetime


class Nutrition(Protocol):
    """The food table, which is everybody's, and what users ate, which is sealed."""

    async def put(self, tx: Transaction, foods: Sequence[Food]) -> int:
        """Add foods, or bring those with the same id up to date; return how many are new."""
        ...

    async def find(self, tx: Transaction, name: str) -> Food | None:
        """Return the food of this name, or the one most like it; None where nothing is like it."""
        ...

    async def log(self, tx: Transaction, user_id: UUID, portions: Sequence[MealItem]) -> None:
        """Note what a user ate."""
        ...

    async def meal_items(self, tx: Transaction, user_id: UUID, since: datetime, until: datetime) -> Sequence[MealItem]:
        """Return what a user ate from `since` until before `until`, in that order."""
        ...

    async def count(self, tx: Transaction) -> int:
        """How many foods there are."""
        ...


class OrderKind(StrEnum):
    """What others do for a user."""

    RIDE = "ride"
    DELIVERY = "delivery"
    CARD = "card"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Something that was ordered from somebody else."""

    code: str
    kind: OrderKind
    provider: str
    reference: str
    """What the provider calls it."""
    price: float
    currency: str
    details: Mapping[str, Any] = field(default_factory=dict)


class Orders(Protocol):
    """What was ordered from others. Fails closed."""

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
        """Note an order."""
        ...

    async def get(self, tx: Transaction, user_id: UUID, code: str) -> Order:
        """Return an order of this user; raise NotThere."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """From here to there."""

    origin: str
    destination: str
    start: GeoPoint
    end: GeoPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """What something would cost and how long it would take."""

    provider: str
    service: str
    """`bike`, `car`, `courier`, …"""
    price: float
    currency: str
    minutes: int
    km: float
    is_estimate: bool
    """Computed here; nobody has promised it."""


@dataclass(frozen=True, slots=True)
class PlacedOrder:
    """An order in the hands of a provider."""

    reference: str
    is_taken: bool
    """Somebody will come. False: it is only noted, because nobody is connected who could."""


class Transport(Protocol):
    """Rides, or deliveries. Raises whatever it likes; the tool call answers for that."""

    async def quotes(self, trip: Trip, *, items: str = "") -> Sequence[Quote]:
        """Say what it would cost, the cheapest first."""
        ...

    async def order(self, trip: Trip, quote: Quote, *, items: str = "", key: str) -> PlacedOrder:
        """Order it. The same key again is the same order: a call that was cut off is repeated with it."""
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
    """A card as it was drawn: where its picture is, or the picture itself, and the same as plain text."""

    text: str
    svg: str = ""
    url: str = ""


class Cards(Protocol):
    """Draws cards. Raises whatever it likes; the tool call answers for that."""

    @property
    def name(self) -> str:
        """Who draws."""
        ...

    async def draw(self, card: Card, *, key: str) -> DrawnCard:
        """Draw a card. The same key again is the same card."""
        ...
