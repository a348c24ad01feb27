"""A small fuzzer: it mutates inputs that were taken or refused in a new way, and notes those that a parser did not expect.

Without knowledge of the branches that an input reached, it takes the outcome for it: the shape of the result, or the words of the refusal
without their numbers and names. An input with a new outcome joins the seeds."""

import json
import random
import re
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from tests.hostile.fuzz_targets import Target
from tests.hostile.inputs import VALUES

SLOW_S = 2.0
MAX_SEEDS = 3_000
MAX_BYTES = 300_000
PIECES = (
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"null",
    b"-1",
    b"1e999",
    b"\\ud800",
    b"\n",
    b"'''",
    b"=",
    b"[[",
    b"9" * 40,
)
VARIABLE = re.compile(r"['\"`].*?['\"`]|\d+|\[.*?\]")


@dataclass(frozen=True)
class Crash:
    """An input that a parser did not expect."""

    target: str
    data: bytes
    what: str


@dataclass
class Findings:
    """What came out of a run."""

    inputs: int = 0
    outcomes: set[str] = field(default_factory=set)
    crashes: dict[str, Crash] = field(default_factory=dict)
    """The first one of each kind."""


def fuzz(target: Target, *, seconds: float = float("inf"), inputs: int | None = None, seed: int = 0) -> Findings:
    """Feed a target for a time, or with a number of inputs."""
    dice, findings, corpus = random.Random(f"{target.name}/{seed}"), Findings(), list(target.seeds())
    until = time.monotonic() + seconds
    waiting = dice.sample(corpus, len(corpus))
    while time.monotonic() < until and (inputs is None or findings.inputs < inputs):
        data = waiting.pop() if waiting else mutate(dice, corpus, is_json=target.is_json)
        findings.inputs += 1
        outcome = feed(target, data, findings)
        if outcome not in findings.outcomes:
            findings.outcomes.add(outcome)
            corpus.append(data)
            if len(corpus) > MAX_SEEDS:
                corpus.pop(dice.randrange(len(corpus)))
    return findings


def feed(target: Target, data: bytes, findings: Findings) -> str:
    """Give a target one input; return its outcome."""
    began = time.monotonic()
    try:
        outcome = f"taken {shape_of(target.parse(data))}"
    except target.refusals as error:
        outcome = f"refused {type(error).__name__} {VARIABLE.sub('_', str(error))[:300]}"
    except Exception as error:  # noqa: BLE001  # a crash is what we look for
        place = traceback.extract_tb(error.__traceback__)[-1]
        outcome = f"crashed {type(error).__name__} at {place.filename.rpartition('hermes/')[2]}:{place.lineno}"
        findings.crashes.setdefault(outcome, Crash(target.name, data, "".join(traceback.format_exception(error))[-3_000:]))
    if (took_s := time.monotonic() - began) > SLOW_S:
        findings.crashes.setdefault("slow", Crash(target.name, data, f"took {took_s:.1f} s"))
    return outcome


def shape_of(value: object, depth: int = 0) -> str:
    """What a result looks like, without its words and numbers."""
    if isinstance(value, list | tuple) and depth < 3:
        return f"[{','.join(sorted({shape_of(each, depth + 1) for each in value}))}]"
    if isinstance(value, dict) and depth < 3:
        own = {VARIABLE.sub("_", str(name))[:80]: shape_of(each, depth + 1) for name, each in list(value.items())[:40]}
        return f"{{{','.join(f'{name}:{shape}' for name, shape in own.items())}}}"
    if is_dataclass(value) and depth < 3:
        own = {each.name: shape_of(getattr(value, each.name), depth + 1) for each in fields(value)}
        return f"{type(value).__name__}({','.join(f'{name}:{shape}' for name, shape in own.items() if shape != 'NoneType')})"
    return type(value).__name__ if value else f"no {type(value).__name__}"


# --- mutations


def mutate(dice: random.Random, corpus: Sequence[bytes], *, is_json: bool) -> bytes:
    data = dice.choice(corpus)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        data = (mutate_json(dice, data) if is_json and dice.random() < 0.75 else None) or mutate_bytes(dice, data, corpus)
    return data[:MAX_BYTES]


def mutate_bytes(dice: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    at = dice.randrange(len(data) + 1)
    end = min(len(data), at + dice.choice((1, 2, 8, 64)))
    match dice.randrange(6):
        case 0:
            return data[:at] + dice.randbytes(end - at) + data[end:]
        case 1:
            return data[:at] + dice.choice(PIECES) + data[at:]
        case 2:
            return data[:at] + data[end:]
        case 3:
            return data[:at] + data[at:end] * dice.choice((2, 10, 500)) + data[end:]
        case 4:
            other = dice.choice(corpus)
            return data[:at] + other[dice.randrange(len(other) + 1) :]
        case _:
            lines = data.splitlines(keepends=True)
            dice.shuffle(lines)
            return b"".join(lines)


def mutate_json(dice: random.Random, data: bytes) -> bytes | None:
    """Change one place of a JSON value, or of one line of JSON lines; None for what is no JSON."""
    lines = data.split(b"\n")
    number = dice.randrange(len(lines))
    try:
        value = json.loads(lines[number])
        places = list(places_in(value))
        changed = change(dice, value, places)
        lines[number] = json.dumps(changed).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return None
    return b"\n".join(lines)


Place = tuple[Any, Any]
"""A container, and the key or index in it."""


def places_in(value: Any, depth: int = 0) -> list[Place]:
    found: list[Place] = []
    if depth > 12:
        return found
    keys: Sequence[Any] = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        found.append((value, key))
        found += places_in(value[key], depth + 1)
    return found


def change(dice: random.Random, value: Any, places: Sequence[Place]) -> Any:
    if not places:
        return dice.choice(VALUES)
    container, key = dice.choice(places)
    other_container, other_key = dice.choice(places)
    acts: list[Callable[[], None]] = [
        lambda: put(container, key, dice.choice(VALUES)),
        lambda: put(container, key, dice.choice(VALUES)),
        lambda: put(container, key, json.loads(json.dumps(other_container[other_key]))),
        lambda: put(container, key, [json.loads(json.dumps(container[key]))] * dice.choice((1, 2, 50))),
        lambda: put(container, key, {str(key): container[key]}),
        lambda: put(container, key, near(dice, container[key])),
        lambda: container.pop(key) and None,
    ]
    dice.choice(acts)()
    return value


def put(container: Any, key: Any, value: Any) -> None:
    container[key] = value


def near(dice: random.Random, value: Any) -> Any:
    """A value like this one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return dice.choice((-value, value + 1, value * 10**6, float(value) if abs(value) < 10**300 else 0, str(value)[:100]))
    if isinstance(value, str):
        at = dice.randrange(len(value) + 1)
        return value[:at] + dice.choice(("", "\0", "\u202e", "</tool_call>", "<think>", "data:,", "\ud83d", value)) + value[at:]
    return value
