"""The structural keys: their names, the values that they may hold, and how a new value changes an old one.

Each key has a type: an hour, a party size, one of a few words, a short name. A value of another type is refused, so no instruction gets
through, in any language (`last_booking` is a line of any text, which is sanitised). Every value is one line of text in one spelling:
`normalize_value("preferred_booking_hour", "7 pm")` is "19"."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from zoneinfo import ZoneInfo

MAX_ITEMS = 10
MAX_NAME_CHARS = 50
MAX_NAME_WORDS = 6


class BadValue(ValueError):
    """The key cannot hold this value. The text names the key, never the value: a user wrote it."""


class Op(StrEnum):
    """What a new value does to the old one."""

    SET = "set"
    ADD = "add"
    REMOVE = "remove"
    FORGET = "forget"


def normalize_value(key: str, value: object) -> str:
    """Return a value in its one spelling. Raises BadValue if the key cannot hold it, and for an unknown key."""
    parse = KEYS.get(key)
    if parse is None:
        raise BadValue(f"there is no key {key[:MAX_NAME_CHARS]!r}")
    text = parse(value)
    if text is None:
        raise BadValue(f"{key} cannot hold this value")
    return text


def fold_case(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def is_equal(one: str, other: str) -> bool:
    return fold_case(one) == fold_case(other)


def merge_values(key: str, old: str | None, new: str, op: Op, is_same: Callable[[str, str], bool] = is_equal) -> str | None:
    """Return what a key holds after a new value; None for nothing.

    Lists grow: a user who is allergic to nuts and now mentions shrimps is allergic to both. The newest items come first, and the oldest
    are dropped if there are too many. Every other key has one value, which a new one replaces; REMOVE and FORGET take a value away.
    FORGET without a value empties the key. `is_same` says whether an item is the one to take away."""
    is_removal = op in (Op.REMOVE, Op.FORGET)
    if op is Op.FORGET and not new:
        return None
    if key not in LIST_KEYS:
        return (None if old is not None and is_same(old, new) else old) if is_removal else new
    before, now = split_items(old or ""), split_items(new)
    if is_removal:
        return ", ".join(item for item in before if not any(is_same(item, new_item) for new_item in now)) or None
    others = [item for item in before if not any(is_equal(item, new_item) for new_item in now)]
    return ", ".join((now if op is Op.SET else now + others)[:MAX_ITEMS]) or None


def split_items(value: str) -> list[str]:
    """The items of a list value, which has commas between them."""
    return [item for item in value.split(", ") if item]


# --- the types of values: each parser returns the one spelling, or None

ValueParser = Callable[[object], str | None]


def whole_number(low: int, high: int) -> ValueParser:
    def parse(value: object) -> str | None:
        found = re.fullmatch(r"\d{1,5}", str(value).strip()) if isinstance(value, int | str) and not isinstance(value, bool) else None
        return str(int(found.group())) if found and low <= int(found.group()) <= high else None

    return parse


def parse_hour(value: object) -> str | None:
    """An hour from 0 to 23; also written as `19:00`, `19h`, `7pm`."""
    found = re.fullmatch(r"(\d{1,2})(?:[:.h](?:\d{2})?)?\s*([ap]\.?m\.?)?", str(value).strip().casefold())
    if found is None or isinstance(value, bool):
        return None
    number, half = int(found[1]), (found[2] or "")[:1]
    if half:
        if not 1 <= number <= 12:
            return None
        number = number % 12 + (12 if half == "p" else 0)
    return str(number) if number <= 23 else None


def one_of(words: Mapping[str, Sequence[str]]) -> ValueParser:
    """One of a few words, each with its synonyms."""
    known = {alias: word for word, aliases in words.items() for alias in (word, *aliases)}

    def parse(value: object) -> str | None:
        return known.get(re.sub(r"[\s_-]+", " ", fold_case(value)).strip()) if isinstance(value, str) else None

    return parse


def parse_name(value: object) -> str | None:
    """A short name of letters and digits: a venue, an area, a dish. No sentence, no markup, no line break."""
    if not isinstance(value, str):
        return None
    text = " ".join(unicodedata.normalize("NFC", value).split()).strip(" .,;")
    is_name = 0 < len(text) <= MAX_NAME_CHARS and len(text.split()) <= MAX_NAME_WORDS and all(map(is_in_names, text))
    return text if is_name and any(character.isalnum() for character in text) else None


def is_in_names(character: str) -> bool:
    return character in " '\u2019&.-/()+!" or unicodedata.category(character)[0] in "LMN"


def parse_names(value: object) -> str | None:
    """Several names: a list, or a line with commas. None if any of them is not a name."""
    listed = value if isinstance(value, list) else re.split(r"[,;、،]", value) if isinstance(value, str) else []
    found = {fold_case(text): text for text in (parse_name(each) for each in listed) if text is not None}
    return ", ".join(found.values()) if len(found) == len(listed) and 0 < len(found) <= MAX_ITEMS else None


def parse_line(value: object) -> str | None:
    """One line of text, of at most 200 characters. Any text passes, so the caller sanitises it like every other value."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return text if 0 < len(text) <= 200 else None


def parse_zone(value: object) -> str | None:
    """A time zone by its IANA name."""
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
LANGUAGE_NAMES: Mapping[str, Sequence[str]] = {
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

STRUCTURAL_KEYS: Mapping[str, ValueParser] = MappingProxyType(
    {
        "diet": one_of(DIETS),
        "favorite_areas": parse_names,
        "interests": parse_names,
        "last_booking": parse_line,
        "typical_party_size": whole_number(1, 50),
        "preferred_booking_hour": parse_hour,
        "preferred_booking_day": one_of(DAYS),
        "favorite_venue": parse_name,
        "favorite_category": parse_name,
        "home_area": parse_name,
        "language": one_of(LANGUAGE_NAMES),
        "timezone": parse_zone,
        "budget_level": one_of(BUDGETS),
        "allergies": parse_names,
        "occasions": parse_names,
        "dislikes": parse_names,
    }
)
FITNESS_KEYS: Mapping[str, ValueParser] = MappingProxyType(
    {
        "calorie_target": whole_number(500, 10_000),
        "dietary_restrictions": parse_names,
        "fitness_goal": one_of(GOALS),
    }
)
KEYS: Mapping[str, ValueParser] = MappingProxyType({**STRUCTURAL_KEYS, **FITNESS_KEYS})
LIST_KEYS = frozenset({"favorite_areas", "interests", "allergies", "occasions", "dislikes", "dietary_restrictions"})
"""Keys whose value is a list that grows."""
SYSTEM_KEYS = frozenset({"last_booking"})
"""Keys that only Hermes itself writes."""
