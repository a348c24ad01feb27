"""The structural keys: their names, the values that they may hold, and how a new value changes an old one.

Each key has a type: a number, an hour, one of a few words, a short name. A value of another type is refused, so no instruction gets
through, in any language (only a system key may be a line of any text, which is sanitised). Every value is one line of text in one spelling:
`normalize_value("language", "Bahasa Indonesia")` is "id".

The keys of a process are the keys here and those of its packs, which `use_pack_keys` sets when Hermes opens. They are one table for the
whole process, because they decide what each stored fact means, also for code that is handed nothing but a fact."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    known = KEYS.get(key)
    if known is None:
        raise BadValue(f"there is no key {key[:MAX_NAME_CHARS]!r}")
    text = known.parse(value)
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


DEFAULT_HEADING = "What you know about the user:"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactKey:
    """A structural key: its type, and how Hermes speaks of it."""

    name: str
    parse: ValueParser
    form: str = "a short name"
    """The form of its values, for a model that gave another one."""
    is_list: bool = False
    """Its value is a list that grows."""
    is_system: bool = False
    """Only Hermes itself writes it."""
    holds_names: bool = False
    """Its values are names. A free fact with the name is about it; one with a 2 or a Friday need not be about a number or a day."""
    is_identity: bool = False
    """A change makes free facts that name the old value untrue: a user who eats fish now is no longer "vegan since 2019"."""
    group: str = ""
    """Keys of one group may note the same thing: "no peanuts" is a restriction and an allergy."""
    heading: str = DEFAULT_HEADING
    """The line above it in a prompt."""
    gap: str = ""
    """What is not known if the key has no value: `Which area they live in.` Empty: Hermes does not ask for it."""
    gap_rank: int = 0
    """The gaps with the smallest rank are the most useful ones."""


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

NAME_LIST_FORM = "short names with commas between them"

CORE_KEYS: Sequence[FactKey] = (
    FactKey(
        name="allergies",
        parse=parse_names,
        form=NAME_LIST_FORM,
        is_list=True,
        holds_names=True,
        group="food",
        gap="Whether they are allergic to anything.",
        gap_rank=2,
    ),
    FactKey(name="home_area", parse=parse_name, holds_names=True, gap="Which area they live in.", gap_rank=3),
    FactKey(name="timezone", parse=parse_zone, form="an IANA name such as Asia/Makassar", gap="Which time zone they are in.", gap_rank=4),
    FactKey(
        name="interests",
        parse=parse_names,
        form=NAME_LIST_FORM,
        is_list=True,
        holds_names=True,
        gap="What they are interested in.",
        gap_rank=11,
    ),
    FactKey(
        name="dislikes", parse=parse_names, form=NAME_LIST_FORM, is_list=True, holds_names=True, gap="What they do not like.", gap_rank=12
    ),
    FactKey(
        name="occasions",
        parse=parse_names,
        form=NAME_LIST_FORM,
        is_list=True,
        holds_names=True,
        gap="Which occasions they celebrate.",
        gap_rank=13,
    ),
    FactKey(
        name="language",
        parse=one_of(LANGUAGE_NAMES),
        form=f"one of {', '.join(LANGUAGE_NAMES)}",
        gap="Which language they prefer.",
        gap_rank=15,
    ),
)


# --- the keys of this process

_keys: dict[str, FactKey] = {key.name: key for key in CORE_KEYS}
KEYS: Mapping[str, FactKey] = MappingProxyType(_keys)


def use_pack_keys(keys: Iterable[FactKey]) -> None:
    """Make these keys known besides those of Hermes itself, in place of the pack keys before."""
    known = {key.name: key for key in (*CORE_KEYS, *keys)}
    _keys.clear()
    _keys.update(known)


class KeysWith(Collection[str]):
    """The names of the known keys for which something holds."""

    def __init__(self, holds: Callable[[FactKey], object]) -> None:
        self._holds = holds

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in KEYS and bool(self._holds(KEYS[name]))

    def __iter__(self) -> Iterator[str]:
        return (name for name, key in KEYS.items() if self._holds(key))

    def __len__(self) -> int:
        return sum(1 for _ in self)


LIST_KEYS = KeysWith(lambda key: key.is_list)
SYSTEM_KEYS = KeysWith(lambda key: key.is_system)
NAME_KEYS = KeysWith(lambda key: key.holds_names)
IDENTITY_KEYS = KeysWith(lambda key: key.is_identity)


def are_related(one: str | None, other: str | None) -> bool:
    """Whether two keys may note the same thing."""
    first, second = (KEYS[name].group if name is not None and name in KEYS else "" for name in (one, other))
    return first != "" and first == second


def keys_by_heading() -> Mapping[str, Sequence[str]]:
    """Return the keys in the order of a prompt, under their headings."""
    headings = dict.fromkeys(key.heading for key in KEYS.values())
    return {heading: [name for name, key in KEYS.items() if key.heading == heading] for heading in headings}


def gap_texts() -> Mapping[str, str]:
    """Return what is worth asking a user, by key, the most useful first."""
    return {key.name: key.gap for key in sorted(KEYS.values(), key=lambda key: key.gap_rank) if key.gap}
