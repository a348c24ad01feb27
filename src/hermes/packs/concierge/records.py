"""Bookings, reminders, price watchers, meals and orders of users on PostgreSQL. Their texts are sealed with the user's key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import structlog

from hermes.packs.concierge.catalogue import WORD_PATTERN, as_product, as_venue, count_rows, put_rows
from hermes.packs.concierge.catalogue import fetch_rows as fetch_catalogue_rows
from hermes.packs.concierge.ports import Booking, BookingState, Food, MealItem, Order, OrderKind, PriceWatcher, Reminder, Venue
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.offers import add_with_new_code
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import SealBroken
from hermes.tools.vocabulary import fold

log = structlog.get_logger()

SQL = load_queries("records.sql", __package__)


class SealedStore:
    """Base class of these adapters: seals and opens the texts of one user's record, under the record's own label."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def _seal(self, tx: Transaction, user_id: UUID, label: str, words: Mapping[str, Any]) -> bytes:
        return (await self._keyring.of(tx, user_id)).seal(label, json.dumps(dict(words)).encode())

    async def _open(self, tx: Transaction, user_id: UUID, label: str, sealed: bytes) -> dict[str, Any]:
        words: dict[str, Any] = json.loads((await self._keyring.of(tx, user_id)).open(label, sealed))
        return words

    async def _add(self, tx: Transaction, query: str, row: dict[str, Any], words: Mapping[str, Any], *, column: str, kind: str) -> str:
        """Add a row under a new code, with its texts sealed for that code."""

        async def add(code: str) -> bool:
            sealed = await self._seal(tx, row["user_id"], f"{kind}/{code}", words)
            return bool(await fetch_rows(tx, query, {**row, "code": code, column: sealed}))

        return await add_with_new_code(add)


class PostgresBookings(SealedStore):
    """The port Bookings."""

    async def add(
        self, tx: Transaction, user_id: UUID, venue: Venue, at: datetime, party_size: int, *, name: str = "", note: str = ""
    ) -> Booking:
        row = {"user_id": user_id, "venue_id": venue.id, "at": at, "party_size": party_size}
        code = await self._add(tx, "add_booking", row, {"name": name, "note": note, "comment": ""}, column="words", kind="bookings")
        return await self.get(tx, user_id, code)

    async def get(self, tx: Transaction, user_id: UUID, code: str) -> Booking:
        found = await fetch_rows(tx, "get_booking", {"user_id": user_id, "code": code})
        if not found:
            raise NotFound(f"there is no booking {code}")
        return await self._booking(tx, user_id, found[0])

    async def of(self, tx: Transaction, user_id: UUID, *, since: datetime | None = None, limit: int = 10) -> Sequence[Booking]:
        query = "last_bookings" if since is None else "next_bookings"
        found = await fetch_rows(tx, query, {"user_id": user_id, "since": since, "limit": limit})
        return [await self._booking(tx, user_id, row) for row in found]

    async def settle(self, tx: Transaction, user_id: UUID, code: str, state: BookingState) -> Booking:
        await self.get(tx, user_id, code)
        await connection_of(tx).execute(SQL["settle_booking"], {"user_id": user_id, "code": code, "state": state})
        return await self.get(tx, user_id, code)

    async def rate(self, tx: Transaction, user_id: UUID, code: str, rating: int, comment: str) -> Booking:
        booking = await self.get(tx, user_id, code)
        words = {"name": booking.name, "note": booking.note, "comment": comment}
        sealed = await self._seal(tx, user_id, f"bookings/{code}", words)
        await connection_of(tx).execute(SQL["rate_booking"], {"user_id": user_id, "code": code, "rating": rating, "words": sealed})
        return await self.get(tx, user_id, code)

    async def _booking(self, tx: Transaction, user_id: UUID, row: Sequence[Any]) -> Booking:
        code, at, party_size, state, rating, sealed, *venue_columns = row
        venue = as_venue(venue_columns)
        words = await self._open(tx, user_id, f"bookings/{code}", sealed)
        local = at.astimezone(ZoneInfo(venue.timezone))
        return Booking(code=code, venue=venue, at=local, party_size=party_size, state=BookingState(state), rating=rating, **words)


class PostgresReminders(SealedStore):
    """The port Reminders."""

    async def add(self, tx: Transaction, user_id: UUID, turn_id: UUID, at: datetime, text: str) -> Reminder:
        row = {"user_id": user_id, "turn_id": turn_id, "at": at}
        code = await self._add(tx, "add_reminder", row, {"text": text}, column="words", kind="reminders")
        return Reminder(code=code, user_id=user_id, turn_id=turn_id, at=at, text=text)

    async def take_due(self, tx: Transaction, now: datetime, *, limit: int = 100) -> Sequence[Reminder]:
        due = []
        for user_id, code, turn_id, at, sealed in await fetch_rows(tx, "due_reminders", {"now": now, "limit": limit}):
            try:
                words = await self._open(tx, user_id, f"reminders/{code}", sealed)
            except UserErased:
                continue
            except SealBroken:
                # A reminder that cannot be opened must not keep the others from being sent.
                log.warning("reminder_unreadable", code=code)
                continue
            due.append(Reminder(code=code, user_id=user_id, turn_id=turn_id, at=at, text=words["text"]))
        return sorted(due, key=lambda reminder: (reminder.at, reminder.code))


class PostgresPriceWatchers:
    """The port PriceWatchers. They hold no text of the user, so nothing is sealed."""

    async def add(self, tx: Transaction, user_id: UUID, turn_id: UUID, product_id: str, target: float) -> PriceWatcher:
        row = {"user_id": user_id, "turn_id": turn_id, "product_id": product_id, "target": target}
        found = await fetch_rows(tx, "product", row)
        if not found:
            raise NotFound(f"there is no product {product_id}")
        await connection_of(tx).execute(SQL["end_watcher"], row)

        async def add(code: str) -> bool:
            return bool(await fetch_rows(tx, "add_watcher", {**row, "code": code}))

        code = await add_with_new_code(add)
        return PriceWatcher(code=code, user_id=user_id, turn_id=turn_id, product=as_product(found[0]), target=target)

    async def take_due(self, tx: Transaction, *, limit: int = 100) -> Sequence[PriceWatcher]:
        return [
            PriceWatcher(user_id=user_id, code=code, turn_id=turn_id, target=float(target), product=as_product(product))
            for user_id, code, turn_id, target, *product in await fetch_rows(tx, "due_watchers", {"limit": limit})
        ]


class PostgresNutrition(SealedStore):
    """The port Nutrition."""

    async def put(self, tx: Transaction, foods: Sequence[Food]) -> int:
        return await put_rows(tx, "put_food", [food_row(food) for food in foods])

    async def find(self, tx: Transaction, name: str) -> Food | None:
        folded = fold(name)
        found = await fetch_catalogue_rows(tx, "food_named", {"names": [folded, singular(folded)]})
        if not found:
            words = [singular(word) for word in WORD_PATTERN.findall(folded)]
            padded = f" {' '.join(words)} "
            found = await fetch_catalogue_rows(tx, "food_like", {"padded": padded, "words": words, "count": len(words)})
        return as_food(found[0]) if found else None

    async def log(self, tx: Transaction, user_id: UUID, portions: Sequence[MealItem]) -> None:
        for portion in portions:
            plain = {**asdict(portion), "at": portion.at.isoformat()}
            sealed = await self._seal(tx, user_id, "meals", plain)
            await connection_of(tx).execute(SQL["log_meal"], {"user_id": user_id, "at": portion.at, "eaten": sealed})

    async def meal_items(self, tx: Transaction, user_id: UUID, since: datetime, until: datetime) -> Sequence[MealItem]:
        found = await fetch_rows(tx, "meals", {"user_id": user_id, "since": since, "until": until})
        opened = [await self._open(tx, user_id, "meals", sealed) for [sealed] in found]
        return [MealItem(**{**plain, "at": datetime.fromisoformat(plain["at"])}) for plain in opened]

    async def count(self, tx: Transaction) -> int:
        return await count_rows(tx, "count_foods")


class PostgresOrders(SealedStore):
    """The port Orders."""

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
        row = {"user_id": user_id, "kind": kind, "provider": provider, "reference": reference, "price": price, "currency": currency}
        code = await self._add(tx, "add_order", row, details, column="details", kind="orders")
        return await self.get(tx, user_id, code)

    async def get(self, tx: Transaction, user_id: UUID, code: str) -> Order:
        found = await fetch_rows(tx, "get_order", {"user_id": user_id, "code": code})
        if not found:
            raise NotFound(f"there is no order {code}")
        code, kind, provider, reference, price, currency, sealed = found[0]
        details = await self._open(tx, user_id, f"orders/{code}", sealed)
        return Order(
            code=code, kind=OrderKind(kind), provider=provider, reference=reference, price=float(price), currency=currency, details=details
        )


async def fetch_rows(tx: Transaction, query: str, values: dict[str, Any]) -> list[Any]:
    return await (await connection_of(tx).execute(SQL[query], values)).fetchall()


def singular(word: str) -> str:
    """A word without its English plural ending: models name foods in English. Good enough for a search."""
    for ending, instead in (("ies", "y"), ("oes", "o"), ("s", "")):
        if len(word) > 3 and word.endswith(ending) and not word.endswith("ss"):
            return word.removesuffix(ending) + instead
    return word


def food_row(food: Food) -> dict[str, Any]:
    names = list(dict.fromkeys([fold(food.name), *map(fold, food.also)]))
    names += [each for each in map(singular, names) if each not in names]
    words = [singular(word) for word in WORD_PATTERN.findall(" ".join(names))]
    return {**asdict(food), "also": list(food.also), "names": names, "words": " ".join(words)}


def as_food(row: Sequence[Any]) -> Food:
    """Read a row of the food columns, in the order in which every query here selects them."""
    food_id, name, also, *numbers = row
    columns = ("kcal", "protein_g", "fat_g", "carbs_g", "fibre_g", "serving_g")
    return Food(id=food_id, name=name, also=tuple(also), **{column: float(number) for column, number in zip(columns, numbers, strict=True)})
