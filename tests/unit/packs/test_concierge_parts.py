# ruff: noqa: RUF001  # people write in other scripts
"""The parts of the concierge that need no store: hours, distances, wishes in many languages, files of places, cards."""

import json
from collections.abc import Mapping
from datetime import datetime

import pytest

from hermes.packs.concierge.data_files import BadTable, read_venues, sample_foods, sample_products, sample_venues
from hermes.packs.concierge.hours import parse_hours
from hermes.packs.concierge.ports import Card, GeoPoint, Trip, Venue
from hermes.packs.concierge.services import EstimatedDeliveries, EstimatedRides, PlainCards, distance_km
from hermes.packs.concierge.venues import parse_query
from hermes.packs.concierge.words import CATEGORIES, TAGS
from hermes.tools.vocabulary import LANGUAGES, Lexicon, fold

CANGGU, UBUD = GeoPoint(-8.65, 115.13), GeoPoint(-8.51, 115.26)
AREAS: Mapping[str, GeoPoint] = {"canggu": CANGGU, "ubud": UBUD, "bali": CANGGU}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)  # local time of the place


def test_hours_of_every_day_and_beyond_midnight() -> None:
    hours = parse_hours("Mo-Fr 11:00-15:00,18:00-23:00; Sa,Su 09:00-01:00; We off")
    assert hours is not None
    assert hours.open_until(at("2026-03-06T12:00")) == "15:00"  # a Friday
    assert hours.open_until(at("2026-03-06T16:00")) is None
    assert hours.open_until(at("2026-03-07T23:30")) == "01:00"
    assert hours.open_until(at("2026-03-08T00:30")) == "01:00"  # still Saturday's evening
    assert hours.open_until(at("2026-03-09T00:59")) == "01:00"  # still Sunday's evening
    assert not hours.is_open(at("2026-03-09T01:00"))
    assert not hours.is_open(at("2026-03-04T12:00"))


@pytest.mark.parametrize("text", ["24/7", "00:00-24:00", "Mo-Su 00:00–00:00", "Sa-Fr 00:00-24:00"])
def test_always_open(text: str) -> None:
    hours = parse_hours(text)
    assert hours is not None
    assert all(hours.is_open(at(f"2026-03-0{day}T{time}")) for day in range(1, 8) for time in ("00:00", "03:00", "23:59"))


@pytest.mark.parametrize("text", ["", "by appointment", "Mo-Fr sunrise-sunset", "Jan-Mar 10:00-12:00", "PH off", "Mo 25"])
def test_hours_that_are_not_understood_claim_nothing(text: str) -> None:
    assert parse_hours(text) is None


FOUNDING = {
    "en": "find me a sunset bar in Canggu",
    "id": "carikan bar dengan matahari terbenam di Canggu",
    "es": "busca un bar para ver la puesta de sol en Canggu",
    "fr": "trouve-moi un bar avec coucher de soleil à Canggu",
    "de": "finde mir eine Bar mit Sonnenuntergang in Canggu",
    "it": "trovami un bar al tramonto a Canggu",
    "pt": "encontre um bar com pôr do sol em Canggu",
    "nl": "zoek een bar met zonsondergang in Canggu",
    "ru": "найди бар с закатом в Чангу",
    "zh": "在仓古找一家看日落的酒吧",
    "ja": "チャングーで夕日が見えるバーを探して",
    "ko": "짱구에서 노을 보이는 술집 찾아줘",
    "ar": "ابحث عن بار في تشانغو لمشاهدة غروب الشمس",
    "hi": "चांगू में सूर्यास्त वाला बार ढूंढो",
    "th": "หาบาร์ดูพระอาทิตย์ตกในชางกู",
    "tr": "Canggu'da gün batımı için bir bar bul",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_founding_wish_is_understood_in_every_language(language: str) -> None:
    wanted = parse_query(FOUNDING[language], AREAS)
    assert (wanted.area, wanted.tags, wanted.categories) == ("canggu", ("sunset",), ("bar", "beach_club"))


def test_what_is_no_category_is_looked_for_as_words() -> None:
    wanted = parse_query("Find me a quiet café with Kintamani beans in Ubud", AREAS)
    assert (wanted.categories, wanted.tags, wanted.area, wanted.words) == (("cafe",), ("quiet",), "ubud", ("quiet", "kintamani", "beans"))


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_category_has_words_in_every_language(category: str) -> None:
    assert set(CATEGORIES[category]) == set(LANGUAGES)
    assert set(TAGS["sunset"]) == set(LANGUAGES)


def test_words_are_found_whole_begun_and_glued() -> None:
    lexicon = Lexicon(["bar", "restoran*", "beach club", "酒吧", "बार"])
    found = ["a Bar!", "restorandayım", "the BEACH-CLUB", "找酒吧吗", "एक बार दो"]
    missed = ["barber", "restaurant", "beach, club", "酒 吧", "बारिश", ""]
    assert [lexicon.is_in(fold(text)) for text in (*found, *missed)] == [True] * 5 + [False] * 6
    assert lexicon.without(fold("one bar, restorandayım, beach club")) == "one , ,"


def test_folding_makes_one_of_what_people_mix_up() -> None:
    assert fold("  İSTANBUL’da  Café\u200b ") == fold("istanbul'da CAFE")
    assert fold("مقهى القهوة") == fold("مقهي القهوه")


async def test_the_same_trip_costs_the_same_and_is_said_to_be_an_estimate() -> None:
    trip = Trip(origin="Canggu", destination="Ubud", start=CANGGU, end=UBUD)
    assert round(distance_km(CANGGU, UBUD), 1) == 21.1
    bike, car = await EstimatedRides().quotes(trip)
    assert (bike.service, bike.price, bike.minutes, bike.km, bike.is_estimate) == ("bike", 76_000.0, 68, 28.5, True)
    assert (car.service, car.price, car.currency) == ("car", 166_000.0, "IDR")
    assert await EstimatedRides().quotes(trip) == [bike, car]
    [courier] = await EstimatedDeliveries().quotes(trip, items="cake")
    assert (courier.price, courier.minutes) == (88_000.0, 86)
    first, again = await EstimatedRides().order(trip, bike, key="a"), await EstimatedRides().order(trip, bike, key="a")
    assert first == again
    assert not first.is_taken


async def test_a_card_is_text_in_a_frame_and_a_picture_that_holds_no_markup_of_its_writer() -> None:
    drawn = await PlainCards().draw(
        Card(occasion="birthday", title="Happy <b>day</b>", message="All the best & more", sender="Ada"), key="a"
    )
    frame = "─" * 32
    assert drawn.text == f"┌{frame}┐\n  Happy <b>day</b>\n\n  All the best & more\n\n  — Ada\n└{frame}┘"
    assert drawn.svg.startswith("<svg")
    assert "<b>" not in drawn.svg
    assert "&lt;b&gt;" in drawn.svg


def test_the_sample_set_is_whole() -> None:
    venues, products, foods = sample_venues(), sample_products(), sample_foods()
    assert (len(venues), len(products), len(foods)) == (62, 60, 152)
    assert {venue.city for venue in venues} == {"Bali", "Jakarta"}
    assert {venue.area for venue in venues} >= {"Canggu", "Ubud", "Seminyak", "Uluwatu"}
    assert all(venue.category in CATEGORIES and set(venue.tags) <= {*TAGS, *CATEGORIES} for venue in venues)
    assert all(parse_hours(venue.hours) and venue.price_level and venue.about for venue in venues)
    assert all(food.serving_g > 0 and food.kcal <= 900 for food in foods)
    # What is in it makes its calories, within what tables differ by; alcohol is the rest.
    odd = [food.name for food in foods if abs(4 * food.protein_g + 4 * food.carbs_g + 9 * food.fat_g - food.kcal) > 15 + 0.25 * food.kcal]
    assert odd == ["Beer", "Red wine"]


def test_a_file_of_places_is_read_by_its_columns() -> None:
    [venue] = read_venues(
        "\ufeffName,latitude,longitude,category,area,tags\nLe Café,-8.65,115.13,Coffee shop,Canggu,Work;Sun set\n", is_geojson=False
    )
    assert venue == Venue(
        id="canggu-le-cafe",
        name="Le Café",
        category="cafe",
        area="Canggu",
        city="Canggu",
        at=GeoPoint(-8.65, 115.13),
        timezone="Asia/Makassar",
        tags=("work", "sun_set"),
    )


def test_geojson_is_read_with_the_names_of_openstreetmap() -> None:
    properties = {
        "name": "Warung Ibu",
        "amenity": "restaurant",
        "opening_hours": "Mo-Su 08:00-21:00",
        "addr:city": "Bali",
        "cuisine": "indonesian;vegan",
    }
    square = [[[115.0, -8.0], [115.2, -8.0], [115.2, -8.2], [115.0, -8.2]]]
    features = [
        {"type": "Feature", "id": "node/1", "properties": properties, "geometry": {"type": "Polygon", "coordinates": square}},
        {"type": "Feature", "properties": {"amenity": "bench"}, "geometry": {"type": "Point", "coordinates": [115, -8]}},
    ]
    [venue] = read_venues(json.dumps({"type": "FeatureCollection", "features": features}), is_geojson=True)
    assert (venue.id, venue.category, venue.hours, venue.city, venue.tags) == (
        "node-1",
        "restaurant",
        "Mo-Su 08:00-21:00",
        "Bali",
        ("indonesian", "vegan"),
    )
    assert (round(venue.at.latitude, 6), round(venue.at.longitude, 6)) == (-8.1, 115.1)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("name,latitude\na,1\n", "line 2: there is no longitude"),
        ("name,latitude,longitude\na,1,2\nb,north,2\n", "line 3: latitude must be a number from -90 to 90, not 'north'"),
        ("name,latitude,longitude\na,91,2\n", "line 2: latitude must be a number from -90 to 90, not '91'"),
        ("name,latitude,longitude\n,1,2\n", "line 2: there is no name"),
        ("name,latitude,longitude\na,1\n", "line 2: 3 columns are expected; is a quote or a comma missing?"),
        ("name,latitude,longitude,price_level\na,1,2,9\n", "line 2: price_level must be a number from 1 to 4, not '9'"),
    ],
)
def test_a_row_that_makes_no_sense_is_said_with_its_line(text: str, fault: str) -> None:
    with pytest.raises(BadTable) as error:
        read_venues(text, is_geojson=False)
    assert str(error.value) == fault


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"features": [{"properties": {"name": "x"}}]}', '{"features": [3]}'])
def test_what_is_no_geojson_is_refused(text: str) -> None:
    with pytest.raises(BadTable):
        read_venues(text, is_geojson=True)
