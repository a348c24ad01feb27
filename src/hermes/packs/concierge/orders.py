"""Tools for what a provider does: rides and deliveries, which are ordered only after the user agrees to the price, and cards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from hermes.packs.concierge.ports import Card, GeoPoint, OrderKind, PlacedOrder, Quote, Trip
from hermes.packs.concierge.products import money
from hermes.packs.concierge.services import Concierge, distance_km
from hermes.packs.concierge.venues import locate
from hermes.tools.parameters import AtMost
from hermes.tools.registry import Offer, ToolContext, ToolEffect, ToolProblem, ToolReach, tool

MAX_TRIP_KM = 150.0
From = Annotated[str, "Area, venue, address or 'latitude,longitude'.", AtMost(120)]
To = Annotated[str, "Likewise.", AtMost(120)]
Items = Annotated[str, "What is carried.", AtMost(200)]


@tool(ToolEffect.SPENDS, ToolReach.PERSON)
async def get_ride(
    concierge: Concierge,
    context: ToolContext,
    *,
    pickup: From,
    dropoff: To,
    service: Annotated[Literal["bike", "car"] | None, "Which kind, if the user said so."] = None,
) -> Offer:
    """Say what a ride costs and how long it takes, and offer it. The user approves the offer with a button."""
    trip = await trip_of(concierge, context, pickup, dropoff)
    quotes = [quote for quote in await concierge.rides.quotes(trip) if service is None or quote.service == service]
    if not quotes:
        raise ToolProblem("no ride of that kind is to be had; try another service")
    options = "; ".join(quote_text(quote) for quote in quotes)
    chosen = quotes[0]
    text = (
        f"Ride from {pickup} to {dropoff}, {chosen.km:.1f} km by road: {options}.{estimate_hint(chosen)} "
        f"The offer is for the {chosen.service}."
    )
    return Offer(text, {"trip": trip_terms(trip), "quote": asdict(chosen)})


@get_ride.confirmed
async def _ride(concierge: Concierge, context: ToolContext, terms: Mapping[str, Any]) -> str:
    trip, quote = agreed_terms(terms)
    placed = await concierge.rides.order(trip, quote, key=context.key)
    return await save_order(concierge, context, OrderKind.RIDE, trip=trip, quote=quote, placed=placed)


@tool(ToolEffect.READS, ToolReach.ROOM)
async def get_delivery_quote(concierge: Concierge, context: ToolContext, *, pickup: From, dropoff: To, items: Items = "") -> str:
    """Say what it costs to have something delivered. Orders nothing."""
    trip = await trip_of(concierge, context, pickup, dropoff)
    quotes = await concierge.deliveries.quotes(trip, items=items)
    if not quotes:
        return "No company delivers there at the moment."
    return f"Delivery from {pickup} to {dropoff}, {quotes[0].km:.1f} km: {'; '.join(map(quote_text, quotes))}.{estimate_hint(quotes[0])}"


@tool(ToolEffect.SPENDS, ToolReach.PERSON)
async def book_delivery(concierge: Concierge, context: ToolContext, *, pickup: From, dropoff: To, items: Items) -> Offer:
    """Have something fetched and delivered. It only makes an offer, which the user approves with a button."""
    trip = await trip_of(concierge, context, pickup, dropoff)
    quotes = await concierge.deliveries.quotes(trip, items=items)
    if not quotes:
        raise ToolProblem("no company delivers there at the moment")
    text = f"Offer: {items}, from {pickup} to {dropoff}, {quote_text(quotes[0])}.{estimate_hint(quotes[0])}"
    return Offer(text, {"trip": trip_terms(trip), "quote": asdict(quotes[0]), "items": items})


@book_delivery.confirmed
async def _deliver(concierge: Concierge, context: ToolContext, terms: Mapping[str, Any]) -> str:
    trip, quote = agreed_terms(terms)
    placed = await concierge.deliveries.order(trip, quote, items=terms["items"], key=context.key)
    return await save_order(concierge, context, OrderKind.DELIVERY, trip=trip, quote=quote, placed=placed, items=terms["items"])


@tool(ToolEffect.WRITES, ToolReach.PERSON)
async def generate_card(
    concierge: Concierge,
    context: ToolContext,
    *,
    title: Annotated[str, "Its headline.", AtMost(60)],
    message: Annotated[str, "What it says.", AtMost(300)],
    occasion: Annotated[str, "Birthday, wedding, thanks, ...", AtMost(40)] = "",
    sender: Annotated[str, "Who signs it.", AtMost(60)] = "",
) -> str:
    """Make a card that the user can send on: an invitation, a greeting, thanks."""
    drawn = await concierge.cards.draw(Card(occasion=occasion, title=title, message=message, sender=sender), key=context.key)
    details = {"title": title, "text": drawn.text, "svg": drawn.svg, "url": drawn.url}
    order = await concierge.orders.add(
        context.tx, context.user.user_id, OrderKind.CARD, provider=concierge.cards.name, reference="", details=details
    )
    return f"Card {order.code}: {drawn.url}" if drawn.url else f"Card {order.code}, as text to send on:\n{drawn.text}"


async def trip_of(concierge: Concierge, context: ToolContext, pickup: str, dropoff: str) -> Trip:
    start, end = await locate(concierge, context, pickup), await locate(concierge, context, dropoff)
    km = distance_km(start, end)
    if km > MAX_TRIP_KM:
        raise ToolProblem(f"that is {km:.0f} km, farther than any driver goes; check both places with the user")
    return Trip(origin=pickup, destination=dropoff, start=start, end=end)


async def save_order(
    concierge: Concierge, context: ToolContext, kind: OrderKind, *, trip: Trip, quote: Quote, placed: PlacedOrder, items: str = ""
) -> str:
    """Store an order. Return a text that says honestly whether a driver will come."""
    order = await concierge.orders.add(
        context.tx,
        context.user.user_id,
        kind,
        provider=quote.provider,
        reference=placed.reference,
        price=quote.price,
        currency=quote.currency,
        details={"from": trip.origin, "to": trip.destination, "items": items, "service": quote.service, "is_taken": placed.is_taken},
    )
    what = f"{order.code}: {kind} from {trip.origin} to {trip.destination}, {quote_text(quote)}"
    if placed.is_taken:
        return f"Ordered {what}, reference {placed.reference}."
    return f"Noted as a request {what}. No driver is on the way: no {kind} company is connected here, so tell the user to arrange it."


def trip_terms(trip: Trip) -> dict[str, Any]:
    return asdict(trip)


def agreed_terms(terms: Mapping[str, Any]) -> tuple[Trip, Quote]:
    """Return the trip and its price as they were offered."""
    trip = terms["trip"]
    start, end = GeoPoint(**trip["start"]), GeoPoint(**trip["end"])
    return Trip(origin=trip["origin"], destination=trip["destination"], start=start, end=end), Quote(**terms["quote"])


def quote_text(quote: Quote) -> str:
    return f"{quote.service} {money(quote.price, quote.currency)}, about {quote.minutes} min"


def estimate_hint(quote: Quote) -> str:
    return " These are estimates from the distance, not a provider's prices." if quote.is_estimate else ""
