"""Tools that book tables and treatments when the user has agreed, and look up, cancel and rate bookings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any, Literal

from hermes.packs.concierge.hours import parse_hours
from hermes.packs.concierge.ports import Booking, BookingState, Venue
from hermes.packs.concierge.services import Concierge, format_time, zone_named
from hermes.ports.errors import NotFound
from hermes.tools.parameters import AtMost, Between
from hermes.tools.registry import Offer, ToolContext, ToolEffect, ToolProblem, ToolReach, tool

MAX_AHEAD = timedelta(days=366)
MIN_HABIT_TIMES = 3
"""How many bookings must share a value before it counts as a habit."""
MAX_HABIT_BOOKINGS = 10
"""How many of the latest bookings habits are read from."""
Code = Annotated[str, "The booking's code.", AtMost(12)]


@tool(ToolEffect.SPENDS, ToolReach.PERSON)
async def create_booking(
    concierge: Concierge,
    context: ToolContext,
    *,
    venue: Annotated[str, "Name or [id] from venue_search."],
    day: Annotated[date, "YYYY-MM-DD."],
    at: Annotated[time, "HH:MM, local time of the venue."],
    party_size: Annotated[int, "How many people.", Between(1, 50)],
    name: Annotated[str, "Booked in this name.", AtMost(60)] = "",
    note: Annotated[str, "Wishes for the venue.", AtMost(200)] = "",
) -> Offer:
    """Book a table or a treatment. It only makes an offer, which the user approves with a button."""
    place = await find_venue(concierge, context, venue)
    when = datetime.combine(day, at.replace(tzinfo=None), zone_named(place.timezone))
    now = context.user.now
    if when <= now:
        raise ToolProblem(f"{format_time(when)} is in the past; it is {format_time(now.astimezone(when.tzinfo))} there now")
    if when - now > MAX_AHEAD:
        raise ToolProblem("bookings are taken for up to one year ahead")
    hours = parse_hours(place.hours)
    if hours is not None and not hours.is_open(when):
        raise ToolProblem(f"{place.name} is closed at {format_time(when)}; its hours: {place.hours}")
    text = f"Offer: {place.name} in {place.area}, {format_time(when)}, {people_phrase(party_size)}"
    text += (f", name {name}" if name else "") + (f", note: {note}" if note else "")
    return Offer(text, {"venue": place.id, "at": when.isoformat(), "party_size": party_size, "name": name, "note": note})


@create_booking.confirmed
async def _book(concierge: Concierge, context: ToolContext, terms: Mapping[str, Any]) -> str:
    place = await find_venue(concierge, context, terms["venue"])
    at = datetime.fromisoformat(terms["at"]).astimezone(zone_named(place.timezone))
    if at <= context.user.now:
        raise ToolProblem("the time of this offer has passed; offer another one")
    booking = await concierge.bookings.add(
        context.tx, context.user.user_id, place, at, terms["party_size"], name=terms["name"], note=terms["note"]
    )
    await record_habits(concierge, context)
    call = f" Phone of the venue: {place.phone}." if place.phone else ""
    return f"Booking requested: {booking_line(booking)}. The venue has not confirmed yet.{call}"


@tool(ToolEffect.READS, ToolReach.PERSON)
async def check_booking(concierge: Concierge, context: ToolContext, *, code: Code) -> str:
    """Say how a booking stands."""
    return booking_line(await find_booking(concierge, context, code))


@tool(ToolEffect.SPENDS, ToolReach.PERSON)
async def cancel_booking(concierge: Concierge, context: ToolContext, *, code: Code) -> Offer:
    """Cancel a booking. It only makes an offer, which the user approves with a button."""
    booking = await find_cancellable(concierge, context, code)
    return Offer(f"Offer: cancel {booking_line(booking)}", {"code": booking.code})


@cancel_booking.confirmed
async def _cancel(concierge: Concierge, context: ToolContext, terms: Mapping[str, Any]) -> str:
    booking = await find_cancellable(concierge, context, terms["code"])
    cancelled = await concierge.bookings.settle(context.tx, context.user.user_id, booking.code, BookingState.CANCELLED)
    await record_habits(concierge, context)
    return f"Cancelled: {booking_line(cancelled)}"


async def find_cancellable(concierge: Concierge, context: ToolContext, code: str) -> Booking:
    """Return a booking that can still be cancelled. Raises ToolProblem for any other."""
    booking = await find_booking(concierge, context, code)
    if booking.state is BookingState.CANCELLED:
        raise ToolProblem(f"nothing is left to cancel; it was cancelled before: {booking_line(booking)}")
    if booking.at <= context.user.now:
        raise ToolProblem(f"{format_time(booking.at)} has passed, so there is nothing to cancel")
    return booking


@tool(ToolEffect.READS, ToolReach.PERSON)
async def get_user_bookings(
    concierge: Concierge, context: ToolContext, *, which: Annotated[Literal["upcoming", "all"], "Which ones."] = "upcoming"
) -> str:
    """List the user's bookings with their codes."""
    since = context.user.now if which == "upcoming" else None
    found = await concierge.bookings.of(context.tx, context.user.user_id, since=since)
    bookings = [booking for booking in found if since is None or booking.state is not BookingState.CANCELLED]
    return "\n".join(f"- {booking_line(booking)}" for booking in bookings) or f"The user has no {'upcoming ' if since else ''}bookings."


@tool(ToolEffect.WRITES, ToolReach.PERSON)
async def rate_booking(
    concierge: Concierge,
    context: ToolContext,
    *,
    code: Code,
    rating: Annotated[int, "1 bad to 5 great.", Between(1, 5)],
    comment: Annotated[str, "What the user said about it.", AtMost(200)] = "",
) -> str:
    """Keep how the user liked a visit."""
    booking = await find_booking(concierge, context, code)
    if booking.at > context.user.now:
        raise ToolProblem(f"this booking is for {format_time(booking.at)}, which is still to come")
    rated = await concierge.bookings.rate(context.tx, context.user.user_id, booking.code, rating, comment)
    return f"Rated {rating}/5: {rated.venue.name}."


async def find_venue(concierge: Concierge, context: ToolContext, name: str) -> Venue:
    """Return the venue with this name or id. Raises ToolProblem if none or several fit."""
    key = name.strip(" []")
    found = await concierge.venues.find_by_name(context.tx, key)
    exact = [venue for venue in found if key.casefold() in {venue.id.casefold(), venue.name.casefold()}]
    if len(exact) == 1 or len(found) == 1:
        return (exact or list(found))[0]
    if not found:
        raise ToolProblem(f"there is no venue {key[:60]!r}; look it up with venue_search first")
    raise ToolProblem(f"several venues fit: {', '.join(f'{venue.name} [{venue.id}]' for venue in found)}; use an [id]")


async def find_booking(concierge: Concierge, context: ToolContext, code: str) -> Booking:
    try:
        return await concierge.bookings.get(context.tx, context.user.user_id, code.strip(" []").upper())
    except NotFound:
        raise ToolProblem(f"the user has no booking {code[:12]!r}; get_user_bookings lists them") from None


async def record_habits(concierge: Concierge, context: ToolContext) -> None:
    """Record the user's booking habits, in the transaction that changed a booking."""
    bookings = await concierge.bookings.of(context.tx, context.user.user_id, limit=MAX_HABIT_BOOKINGS)
    await concierge.notebook.observe(context.tx, context.user, habits_in(bookings))


def habits_in(bookings: Sequence[Booking]) -> dict[str, str]:
    """Return facts about the user from their bookings: the latest one that is not cancelled, and what most bookings have in common."""
    standing = [booking for booking in bookings if booking.state is not BookingState.CANCELLED]
    facts = {"last_booking": summary(last)} if (last := next(iter([*standing, *bookings]), None)) else {}
    for key, value_of in HABITS.items():
        [(value, times)] = Counter(map(value_of, standing)).most_common(1) or [("", 0)]
        if times >= MIN_HABIT_TIMES and 2 * times > len(standing):
            facts[key] = value
    return facts


HABITS: Mapping[str, Callable[[Booking], str]] = {
    "typical_party_size": lambda booking: str(booking.party_size),
    "preferred_booking_hour": lambda booking: str(booking.at.hour),
    "preferred_booking_day": lambda booking: f"{booking.at:%A}".lower(),
    "favorite_venue": lambda booking: booking.venue.name,
    "favorite_category": lambda booking: booking.venue.category,
}


def summary(booking: Booking) -> str:
    """Return a booking as Hermes remembers it: without its code and without the user's own words."""
    where = f"{booking.venue.name} in {booking.venue.area}"
    state = ", cancelled" if booking.state is BookingState.CANCELLED else ""
    return f"{where}, {format_time(booking.at)}, {people_phrase(booking.party_size)}{state}"


def people_phrase(count: int) -> str:
    return f"{count} people" if count > 1 else "1 person"


def booking_line(booking: Booking) -> str:
    """Return a booking on one line, its code first."""
    rated = f", rated {booking.rating}/5" if booking.rating else ""
    note = f", note: {booking.note}" if booking.note else ""
    where = f"{booking.venue.name} in {booking.venue.area}"
    return f"{booking.code}: {where}, {format_time(booking.at)}, {people_phrase(booking.party_size)}, {booking.state}{rated}{note}"
