"""The structural memory keys of the concierge: how users eat and go out, and their fitness context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hermes.soul.fact_keys import NAME_LIST_FORM, FactKey, one_of, parse_hour, parse_line, parse_name, parse_names, whole_number

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
FITNESS_HEADING = "Their fitness context:"

FACT_KEYS: Sequence[FactKey] = (
    FactKey(
        name="diet",
        parse=one_of(DIETS),
        form=f"one of {', '.join(DIETS)}",
        holds_names=True,
        is_identity=True,
        group="food",
        gap="Whether they follow a diet.",
        gap_rank=1,
    ),
    FactKey(
        name="favorite_areas",
        parse=parse_names,
        form=NAME_LIST_FORM,
        is_list=True,
        holds_names=True,
        gap="Which areas they like to go out in.",
        gap_rank=5,
    ),
    FactKey(name="last_booking", parse=parse_line, is_system=True),
    FactKey(
        name="typical_party_size",
        parse=whole_number(1, 50),
        form="a number from 1 to 50",
        gap="How many they usually are.",
        gap_rank=8,
    ),
    FactKey(
        name="preferred_booking_hour",
        parse=parse_hour,
        form="an hour from 0 to 23",
        gap="At what time they like to eat.",
        gap_rank=10,
    ),
    FactKey(
        name="preferred_booking_day",
        parse=one_of(DAYS),
        form=f"one of {', '.join(DAYS)}",
        gap="Which day they like to go out on.",
        gap_rank=9,
    ),
    FactKey(name="favorite_venue", parse=parse_name, holds_names=True, gap="Which place they like best.", gap_rank=14),
    FactKey(name="favorite_category", parse=parse_name, holds_names=True, gap="What kind of place they like best.", gap_rank=6),
    FactKey(
        name="budget_level",
        parse=one_of(BUDGETS),
        form=f"one of {', '.join(BUDGETS)}",
        gap="How much they like to spend.",
        gap_rank=7,
    ),
    # Hermes does not ask about fitness until the user brings it up.
    FactKey(name="calorie_target", parse=whole_number(500, 10_000), form="a number from 500 to 10000", heading=FITNESS_HEADING),
    FactKey(
        name="dietary_restrictions",
        parse=parse_names,
        form=NAME_LIST_FORM,
        is_list=True,
        holds_names=True,
        group="food",
        heading=FITNESS_HEADING,
    ),
    FactKey(name="fitness_goal", parse=one_of(GOALS), form=f"one of {', '.join(GOALS)}", heading=FITNESS_HEADING),
)
