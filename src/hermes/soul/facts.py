"""The structural keys: what they are called, what they may hold, and what becomes of an old value beside a new one.

A value is typed: an hour, a party size, one of a few words, a short name. What is none of these is refused, so no instruction survives
here, in whatever language. Every value is kept as one line of text in one spelling; `typed("preferred_booking_hour", "7 pm")` is "19"."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from zoneinfo import ZoneInfo

MOST_ITEMS = 10
LONGEST_NAME = 50
MOST_WORDS = 6


class BadValue(ValueError):
    """A value that its key cannot hold. Says which key, never the value: a user wrote it."""


class Op(StrEnum):
    """What a new value does to the old one."""

    SET = "set"
    ADD = "add"
    REMOVE = "remove"
    FORGET = "forget"


def typed(key: str, value: object) -> str:
    """Return a value in its one spelling. Raises BadValue for one that the key cannot hold, and for a key that is none."""
    kind = KEYS.get(key)
    if kind is None:
        raise BadValue(f"there is no key {key[:LONGEST_NAME]!r}")
    text = kind(value)
    if text is None:
        raise BadValue(f"{key} cannot hold this value")
    return text


def merged(key: str, old: str | None, new: str, op: Op) -> str | None:
    """Return what a key holds after a new value; None for nothing.

    Lists grow: who is allergic to nuts and now mentions shrimps is allergic to both. The newest stand first, and the oldest leave when
    there are too many. Everything else has one value, and the new one takes its place; it is taken back by removing it."""
    if key not in LISTS:
        if op is Op.REMOVE:
            return None if old == new else old
        return new
    before, now = items(old or ""), items(new)
    meant = {folded(item) for item in now}
    others = [item for item in before if folded(item) not in meant]
    kept = {Op.SET: now, Op.ADD: now + others, Op.REMOVE: others}[op]
    return ", ".join(kept[:MOST_ITEMS]) or None


def items(value: str) -> list[str]:
    """The items of a list in its one spelling."""
    return [item for item in value.split(", ") if item]


def folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


# --- the kinds of values: each returns the one spelling, or None

Kind = Callable[[object], str | None]


def whole(low: int, high: int) -> Kind:
    def parse(value: object) -> str | None:
        found = re.fullmatch(r"\d{1,5}", str(value).strip()) if isinstance(value, int | str) and not isinstance(value, bool) else None
        return str(int(found.group())) if found and low <= int(found.group()) <= high else None

    return parse


def hour(value: object) -> str | None:
    """From 0 to 23; also as `19:00`, `19h`, `7pm`."""
    found = re.fullmatch(r"(\d{1,2})(?:[:.h](?:\d{2})?)?\s*([ap]\.?m\.?)?", str(value).strip().casefold())
    if found is None or isinstance(value, bool):
        return None
    number, half = int(found[1]), (found[2] or "")[:1]
    if half:
        if not 1 <= number <= 12:
            return None
        number = number % 12 + (12 if half == "p" else 0)
    return str(number) if number <= 23 else None


def choice(words: Mapping[str, Sequence[str]]) -> Kind:
    """One of a few words, each with others that mean it."""
    known = {alias: word for word, aliases in words.items() for alias in (word, *aliases)}

    def parse(value: object) -> str | None:
        return known.get(re.sub(r"[\s_-]+", " ", folded(value)).strip()) if isinstance(value, str) else None

    return parse


def name(value: object) -> str | None:
    """A short name of letters and digits: a venue, an area, a dish. No sentence, no markup, no line break."""
    if not isinstance(value, str):
        return None
    text = " ".join(unicodedata.normalize("NFC", value).split()).strip(" .,;")
    is_name = 0 < len(text) <= LONGEST_NAME and len(text.split()) <= MOST_WORDS and all(map(is_in_names, text))
    return text if is_name and any(character.isalnum() for character in text) else None


def is_in_names(character: str) -> bool:
    return character in " '\u2019&.-/()+!" or unicodedata.category(character)[0] in "LMN"


def names(value: object) -> str | None:
    """Several names: a list, or a line with commas. One that is none spoils them all."""
    listed = value if isinstance(value, list) else re.split(r"[,;、،]", value) if isinstance(value, str) else []
    found = {folded(text): text for text in (name(each) for each in listed) if text is not None}
    return ", ".join(found.values()) if len(found) == len(listed) and 0 < len(found) <= MOST_ITEMS else None


def line(value: object) -> str | None:
    """One line of text, which is sanitised like every other."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return text if 0 < len(text) <= 200 else None


def zone(value: object) -> str | None:
    """A zone by its IANA name."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z]+(?:[/_+-][A-Za-z0-9]+)*", value.strip()):
        return None
    try:
        return ZoneInfo(value.strip()).key
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        return None


DAYS = {
    day: aliases.split()
    for day, aliases in {
        "monday": "mon senin lunes lundi montag lunedì segunda maandag",
        "tuesday": "tue selasa martes mardi dienstag martedì terça dinsdag",
        "wednesday": "wed rabu miércoles mercredi mittwoch mercoledì quarta woensdag",
        "thursday": "thu kamis jueves jeudi donnerstag giovedì quinta donderdag",
        "friday": "fri jumat viernes vendredi freitag venerdì sexta vrijdag",
        "saturday": "sat sabtu sábado samedi samstag sabato zaterdag",
        "sunday": "sun minggu domingo dimanche sonntag domenica zondag",
        "weekend": "weekends fin finde akhirpekan",
        "weekday": "weekdays",
    }.items()
}
DIETS: Mapping[str, Sequence[str]] = {
    "omnivore": ("everything", "no restrictions", "none"),
    "vegan": ("plant based",),
    "vegetarian": ("veggie", "lacto vegetarian", "ovo lacto vegetarian"),
    "pescatarian": ("pescetarian",),
    "flexitarian": (),
    "halal": (),
    "kosher": (),
    "keto": ("ketogenic", "low carb"),
    "paleo": (),
    "gluten free": ("celiac", "coeliac"),
    "lactose free": ("dairy free",),
}
BUDGETS: Mapping[str, Sequence[str]] = {
    "low": ("cheap", "budget", "$"),
    "medium": ("mid", "moderate", "mid range", "$$"),
    "high": ("expensive", "upscale", "$$$"),
    "luxury": ("fine dining", "no limit", "$$$$"),
}
GOALS: Mapping[str, Sequence[str]] = {
    "lose weight": ("weight loss", "cut", "fat loss", "slim down"),
    "gain muscle": ("build muscle", "bulk", "muscle gain"),
    "gain weight": (),
    "maintain weight": ("maintain", "maintenance", "stay fit"),
    "get fit": ("fitness", "endurance", "get in shape"),
    "eat healthier": ("health", "be healthy", "general health"),
}
TONGUES: Mapping[str, Sequence[str]] = {
    "en": ("english",),
    "id": ("indonesian", "bahasa", "bahasa indonesia"),
    "es": ("spanish",),
    "fr": ("french",),
    "de": ("german",),
    "it": ("italian",),
    "pt": ("portuguese",),
    "nl": ("dutch",),
    "ru": ("russian",),
    "zh": ("chinese", "mandarin"),
    "ja": ("japanese",),
    "ko": ("korean",),
    "ar": ("arabic",),
    "hi": ("hindi",),
    "th": ("thai",),
    "tr": ("turkish",),
}

STRUCTURAL: Mapping[str, Kind] = MappingProxyType(
    {
        "diet": choice(DIETS),
        "favorite_areas": names,
        "interests": names,
        "last_booking": line,
        "typical_party_size": whole(1, 50),
        "preferred_booking_hour": hour,
        "preferred_booking_day": choice(DAYS),
        "favorite_venue": name,
        "favorite_category": name,
        "home_area": name,
        "language": choice(TONGUES),
        "timezone": zone,
        "budget_level": choice(BUDGETS),
        "allergies": names,
        "occasions": names,
        "dislikes": names,
    }
)
FITNESS: Mapping[str, Kind] = MappingProxyType(
    {
        "calorie_target": whole(500, 10_000),
        "dietary_restrictions": names,
        "fitness_goal": choice(GOALS),
    }
)
KEYS: Mapping[str, Kind] = MappingProxyType({**STRUCTURAL, **FITNESS})
LISTS = frozenset({"favorite_areas", "interests", "allergies", "occasions", "dislikes", "dietary_restrictions"})
"""Keys whose values add up."""
UNASKED = frozenset({"last_booking"})
"""Keys that only Hermes itself writes."""
