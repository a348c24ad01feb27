"""A tool that finds places by the user's words, area, opening hours and price."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated

from hermes.packs.concierge.hours import parse_hours
from hermes.packs.concierge.ports import FoundVenue, GeoPoint, Venue, VenueQuery
from hermes.packs.concierge.services import Concierge, zone_named
from hermes.packs.concierge.words import AREA_WORDS, CATEGORY_WORDS, FILLER_WORDS, TAG_WORDS
from hermes.tools.parameters import Between
from hermes.tools.registry import ToolContext, ToolEffect, ToolProblem, ToolReach, tool
from hermes.tools.vocabulary import Lexicon, fold

NEARBY_KM = 6.0
"""How far beyond an area a search goes when the area itself has little."""
MIN_FOUND = 2
COORDINATES = re.compile(r"^\s*(-?\d{1,2}(?:\.\d+)?)\s*[,; ]\s*(-?\d{1,3}(?:\.\d+)?)\s*$")
WORD = re.compile(r"\w{2,}")
SIMILAR: Mapping[str, tuple[str, ...]] = {"bar": ("bar", "beach_club"), "club": ("club", "beach_club"), "beach_club": ("beach_club",)}
"""Categories that also fit a request: most sunset bars of Bali call themselves beach clubs."""


@tool(ToolEffect.READS, ToolReach.ROOM)
async def venue_search(
    concierge: Concierge,
    context: ToolContext,
    *,
    query: Annotated[str, "What the user wants, in their own words and language."],
    area: Annotated[str | None, "Area or city, if the user named one."] = None,
    near: Annotated[str | None, "A place name or 'latitude,longitude' to be close to."] = None,
    open_now: Annotated[bool, "Only what is open at this moment."] = False,
    max_price: Annotated[int | None, "1 cheap to 4 dear.", Between(1, 4)] = None,
    limit: Annotated[int, "How many.", Between(1, 10)] = 5,
) -> str:
    """Find bars, restaurants, cafes, beach clubs, spas, hotels and sights, with opening hours, prices and distance."""
    areas = await concierge.venues.areas(context.tx)
    wishes = parse_query(query, areas)
    if area:
        wishes = replace(wishes, area=parse_query(area, areas).area or fold(area))
    if near:
        wishes = replace(wishes, near=await locate(concierge, context, near), area=wishes.area if area else None)
    wishes = replace(wishes, max_price_level=max_price)
    found = await search_with_nearby(concierge, context, wishes, areas)
    if open_now:
        found = [each for each in found if is_open(each.venue, context.user.now) is not False]
    shown = fitting_venues(found, wishes)[:limit]
    if not shown:
        known = ", ".join(sorted(name.title() for name in areas)) or "none yet"
        return f"No place fits. Areas with places: {known}. Suggest another area or fewer wishes."
    return "\n".join(venue_line(each, context.user.now) for each in shown)


def parse_query(query: str, areas: Mapping[str, GeoPoint]) -> VenueQuery:
    """Read a request in any of the languages: categories, tags, the area, and the remaining plain words.

    "find me a sunset bar in Canggu" is the categories bar and beach club, the tag sunset, the area canggu, and no further word."""
    folded = fold(query)
    named = [(area, Lexicon([area])) for area in sorted(areas, key=len, reverse=True)] + list(AREA_WORDS.items())
    area = next((name for name, lexicon in named if lexicon.is_in(folded)), None)
    rest = next((lexicon.without(folded) for name, lexicon in named if name == area and lexicon.is_in(folded)), folded)
    categories = [category for category, lexicon in CATEGORY_WORDS.items() if lexicon.is_in(rest)]
    tags = tuple(tag for tag, lexicon in TAG_WORDS.items() if lexicon.is_in(rest))
    # The words of a tag stay: "lobster" gives the tag seafood, and a place whose text says lobster should come first.
    for lexicon in (*CATEGORY_WORDS.values(), FILLER_WORDS):
        rest = lexicon.without(rest)
    words = tuple(dict.fromkeys(word for word in WORD.findall(rest) if not word.isdigit()))[:8]
    wider = dict.fromkeys(each for category in categories for each in SIMILAR.get(category, (category,)))
    return VenueQuery(words=words, categories=tuple(wider), tags=tags, area=area)


async def search_with_nearby(
    concierge: Concierge, context: ToolContext, wishes: VenueQuery, areas: Mapping[str, GeoPoint]
) -> Sequence[FoundVenue]:
    """Search, and also around the area if the area itself has fewer than MIN_FOUND places."""
    found = await concierge.venues.search(context.tx, wishes)
    middle = areas.get(wishes.area or "")
    if len(found) >= MIN_FOUND or wishes.near is not None or middle is None:
        return found
    around = replace(wishes, area=None, near=middle, within_km=NEARBY_KM)
    known = {each.venue.id for each in found}
    return [*found, *(each for each in await concierge.venues.search(context.tx, around) if each.venue.id not in known)]


def fitting_venues(found: Sequence[FoundVenue], wishes: VenueQuery) -> Sequence[FoundVenue]:
    """Leave out places that match none of the tags and words, if at least one place matches."""
    fitting = [each for each in found if each.score > 0]
    return fitting if fitting and (wishes.tags or wishes.words) else found


async def locate(concierge: Concierge, context: ToolContext, text: str) -> GeoPoint:
    """Return where a place is: coordinates, a venue, a landmark or an area. Raises ToolProblem if it is unknown."""
    given = COORDINATES.match(text)
    if given:
        latitude, longitude = float(given[1]), float(given[2])
        if abs(latitude) <= 90 and abs(longitude) <= 180:
            return GeoPoint(latitude, longitude)
    areas = await concierge.venues.areas(context.tx)
    folded = fold(text)
    if folded in areas:
        return areas[folded]
    if folded in LANDMARKS:
        return LANDMARKS[folded]
    for venue in await concierge.venues.find_by_name(context.tx, text, limit=1):
        return venue.at
    for name, lexicon in [*((name, Lexicon([name])) for name in (*LANDMARKS, *areas)), *AREA_WORDS.items()]:
        if lexicon.is_in(folded) and (name in LANDMARKS or name in areas):
            return LANDMARKS.get(name) or areas[name]
    raise ToolProblem(f"{text[:60]!r} is not a place that is known here; ask the user for an area, a venue or 'latitude,longitude'")


LANDMARKS: Mapping[str, GeoPoint] = {
    "ngurah rai airport": GeoPoint(-8.7482, 115.1675),
    "bali airport": GeoPoint(-8.7482, 115.1675),
    "denpasar airport": GeoPoint(-8.7482, 115.1675),
    "dps": GeoPoint(-8.7482, 115.1675),
    "soekarno hatta airport": GeoPoint(-6.1256, 106.6559),
    "jakarta airport": GeoPoint(-6.1256, 106.6559),
    "cgk": GeoPoint(-6.1256, 106.6559),
    "tanah lot": GeoPoint(-8.6212, 115.0868),
    "kuta": GeoPoint(-8.7180, 115.1690),
    "sanur": GeoPoint(-8.6930, 115.2630),
    "denpasar": GeoPoint(-8.6560, 115.2160),
    "nusa dua": GeoPoint(-8.8000, 115.2300),
    "jimbaran": GeoPoint(-8.7900, 115.1600),
    "monas": GeoPoint(-6.1754, 106.8272),
    "kota tua": GeoPoint(-6.1352, 106.8133),
}
"""Start points and destinations that are not venues."""


def is_open(venue: Venue, now: datetime) -> bool | None:
    """Whether a place is open; None if its hours are unknown."""
    hours = parse_hours(venue.hours)
    return None if hours is None else hours.is_open(now.astimezone(zone_named(venue.timezone)))


def venue_line(found: FoundVenue, now: datetime) -> str:
    """Return a place on one line, with its name and id first: a booking uses the id."""
    venue = found.venue
    hours = parse_hours(venue.hours)
    until = hours.open_until(now.astimezone(zone_named(venue.timezone))) if hours else None
    state = "" if hours is None else f"open now until {until}" if until else f"closed now ({venue.hours})"
    parts = (
        f"{venue.name} [{venue.id}]: {venue.category.replace('_', ' ')} in {venue.area}, {venue.city}",
        "$" * (venue.price_level or 0),
        state,
        f"{found.km:.1f} km away" if found.km is not None else "",
        venue.about,
        f"tags: {', '.join(tag.replace('_', ' ') for tag in venue.tags[:6])}" if venue.tags else "",
    )
    return "- " + "; ".join(part for part in parts if part)
