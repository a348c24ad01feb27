"""The gate: how often a message keeps the tools that it needs, how often small talk goes without, and what that saves.

Reads rows of `text`, `lang`, `intent` and `family`. They are cut into two random halves: words were tuned on the first only. Exits with 1
if a bar is missed on either half."""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hermes.packs.concierge import PACK, TOOLS
from hermes.soul.fact_keys import KEYS, SYSTEM_KEYS, use_pack_keys
from hermes.tools.gate import Gate
from hermes.tools.memory import forget_memory, memory_tools, recall_memory, save_preference
from hermes.tools.registry import Tool

ALL_TOOLS = (*TOOLS, save_preference, recall_memory, forget_memory)
GATE = Gate(
    [PACK.gate] if PACK.gate else [], frozenset(recipe.name for recipe in ALL_TOOLS), frozenset(recipe.name for recipe in ALL_TOOLS[-3:])
)
SEED = 6
CHARACTERS_PER_TOKEN = 4
FOUNDING_SAVING = 2_100
OTHER_TOKENS = 2_400
"""The prompt behind the tools, for the money: system prompt and history."""
USD_PER_TOKEN_IN, CACHE_READ, CACHE_WRITE = 3e-6, 0.1, 1.25
KEEPS, GOES_WITHOUT = 0.995, 0.90

NEEDS: Mapping[str, frozenset[str]] = {
    "venue_search": frozenset({"venue_search"}),
    "venue_booking": frozenset({"venue_search", "create_booking", "check_booking", "cancel_booking", "get_user_bookings"}),
    "food_nutrition": frozenset({"calorie_scan", "get_nutrition_summary"}),
}
"""By family; for a booking all of its tools, although each row needs one or two."""

Row = Mapping[str, Any]


def main() -> int:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, required=True, help="intents.jsonl")
    options.add_argument("--misses", action="store_true", help="print the rows of the first half that miss")
    chosen = options.parse_args()
    rows = [json.loads(line) for line in chosen.data.read_text(encoding="utf-8").splitlines()]
    random.Random(SEED).shuffle(rows)
    middle = len(rows) // 2
    halves = {"tuned": rows[:middle], "unseen": rows[middle:]}
    print_schemas()
    met = [print_half(name, half) for name, half in halves.items()]
    print_choices(rows)
    print_money(rows)
    print_speed(rows)
    if chosen.misses:
        print_misses(halves["tuned"])
    return 0 if all(met) else 1


def print_schemas() -> None:
    print("| set | tools | tokens of its schemas |\n|---|---|---|")
    for name in GATE.subsets:
        print(f"| {name} | {len(GATE.subsets[name])} | {set_tokens(name):,} |")
    print(f"\nSmall talk is spared {set_tokens('full'):,} tokens; the founding document says about {FOUNDING_SAVING:,}.\n")


@cache
def bound_tools() -> list[Tool]:
    """The tools as a Hermes with the concierge binds them: `save_preference` names the structural keys. None of them is run here."""
    use_pack_keys(PACK.fact_keys)
    services: Any = None
    return [*(recipe.of(services) for recipe in TOOLS), *memory_tools(services, [key for key in KEYS if key not in SYSTEM_KEYS])]


@cache
def set_tokens(name: str) -> int:
    """Tokens of a set as a vendor is sent it, at four characters each."""
    schemas = [tool.schema for tool in bound_tools() if tool.name in GATE.subsets[name]]
    return round(len(json.dumps(schemas, separators=(",", ":"), ensure_ascii=False)) / CHARACTERS_PER_TOKEN) if schemas else 0


def print_half(name: str, rows: Sequence[Row]) -> bool:
    kept: dict[str, list[bool]] = defaultdict(list)
    families: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        if row["family"] in NEEDS:
            kept[row["lang"]].append(keeps(row))
            families[row["family"]].append(keeps(row))
    spared = [choose(row) == "none" for row in rows if row["family"] == "smalltalk"]
    print(f"**{name} half**, {len(rows)} rows\n\n| language | rows that need tools | kept |\n|---|---|---|")
    for language in sorted(kept):
        print(f"| {language} | {len(kept[language])} | {share(kept[language]):.1%} |")
    print("\n" + "; ".join(f"{family} {share(found):.1%} of {len(found)}" for family, found in sorted(families.items())))
    print(f"small talk without tools: {share(spared):.1%} of {len(spared)}\n")
    return all(share(found) >= KEEPS for found in kept.values()) and share(spared) >= GOES_WITHOUT


def print_choices(rows: Sequence[Row]) -> None:
    families = sorted({row["family"] for row in rows})
    print("| family | " + " | ".join(GATE.subsets) + " | mean tokens of schemas |\n|---|" + "---|" * (len(GATE.subsets) + 1))
    for family in families:
        chosen = [choose(row) for row in rows if row["family"] == family]
        counts = " | ".join(str(chosen.count(name)) for name in GATE.subsets)
        print(f"| {family} | {counts} | {sum(map(set_tokens, chosen)) / len(chosen):,.0f} |")
    print()


def print_money(rows: Sequence[Row]) -> None:
    """Sessions of ten messages drawn from the rows, each within the life of the cache, or none: what the prompt's prefix costs."""
    gate, draw = GATE, random.Random(SEED)
    groups = {
        "all rows": [row["text"] for row in rows],
        "venues, bookings, small talk": [row["text"] for row in rows if row["family"] in {"smalltalk", "venue_search", "venue_booking"}],
        "small talk only": [row["text"] for row in rows if row["family"] == "smalltalk"],
    }
    print("| sessions of ten messages | all tools always | gated per message | gated, sticky | sticky saves |\n|---|---|---|---|---|")
    for name, texts in groups.items():
        group = [[draw.choice(texts) for _ in range(10)] for _ in range(400)]
        for is_cached in (True, False):
            always = cost((["full"] * len(session) for session in group), is_cached=is_cached)
            fresh = cost(([pick(gate, text, None) for text in session] for session in group), is_cached=is_cached)
            sticky = cost((walk(gate, session, is_cached=is_cached) for session in group), is_cached=is_cached)
            cache = "warm cache" if is_cached else "no cache (below the floor)"
            print(f"| {name}, {cache} | ${always:.4f} | ${fresh:.4f} | ${sticky:.4f} | {1 - sticky / always:+.0%} |")
    print()


def walk(gate: Gate, session: Sequence[str], *, is_cached: bool) -> list[str]:
    """The sets that a session is sent, each told what was sent before."""
    chosen: list[str] = []
    for text in session:
        chosen.append(pick(gate, text, chosen[-1] if chosen and is_cached else None))
    return chosen


def cost(sessions: Iterable[Sequence[str]], *, is_cached: bool) -> float:
    """Dollars for the prefixes of one session on average: a set that was sent before is read from the cache, another one written to it."""
    total, count = 0.0, 0
    for session in sessions:
        count += 1
        seen: set[str] = set()
        for name in session:
            tokens = set_tokens(name) + OTHER_TOKENS
            factor = 1.0 if not is_cached else CACHE_READ if name in seen else CACHE_WRITE
            total += tokens * USD_PER_TOKEN_IN * factor
            seen.add(name)
    return total / count


def print_speed(rows: Sequence[Row]) -> None:
    times = []
    for row in rows:
        started = time.perf_counter()
        choose(row)
        times.append(time.perf_counter() - started)
    times.sort()
    print(f"one choice: p50 {times[len(times) // 2] * 1e3:.2f} ms, p99 {times[int(len(times) * 0.99)] * 1e3:.2f} ms")


def print_misses(rows: Sequence[Row]) -> None:
    for row in rows:
        if row["family"] in NEEDS and not keeps(row):
            print("LOST", row["lang"], row["family"], choose(row), row["text"])
        if row["family"] == "smalltalk" and choose(row) != "none":
            print("SENT", row["lang"], choose(row), row["text"])


def keeps(row: Row) -> bool:
    return GATE.subsets[choose(row)] >= NEEDS[row["family"]]


def choose(row: Row) -> str:
    return GATE.choose(row["text"], language=row["lang"], warm=None, has_tool_history=False)


def pick(gate: Gate, text: str, warm: str | None) -> str:
    return gate.choose(text, language="en", warm=warm, has_tool_history=False)


def share(found: Sequence[bool]) -> float:
    return sum(found) / len(found) if found else 1.0


if __name__ == "__main__":
    raise SystemExit(main())
