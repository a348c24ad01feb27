"""What Telegram demands of a message, as its documentation says it; written without a look at how ours are made."""

from collections.abc import Mapping, Sequence
from typing import Any

LETTERING = {"bold", "italic", "underline", "strikethrough", "spoiler"}
MONOSPACED = {"pre", "code"}
QUOTES = {"blockquote", "expandable_blockquote"}
FIELDS = {"pre": {"language"}, "text_link": {"url"}}


def faults(body: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with a text and its entities; none if Telegram takes it as it is."""
    text, entities = body["text"], body.get("entities", [])
    units = text.encode("utf-16-le")
    found = [f"fields {sorted(body)}"] if not body.keys() <= {"text", "entities"} else []
    if not text.strip():
        found.append("blank")
    if len(units) > 2 * 4096:
        found.append("too long")
    if len(entities) > 100:
        found.append("too many entities")
    for entity in entities:
        found += alone(entity, units)
    for place, one in enumerate(entities):
        for other in entities[place + 1 :]:
            found += together(one, other)
    return found


def alone(entity: Mapping[str, Any], units: bytes) -> list[str]:
    kind, start, length = entity["type"], entity["offset"], entity["length"]
    if kind not in LETTERING | MONOSPACED | QUOTES | {"text_link"}:
        return [f"unknown type {kind}"]
    if not entity.keys() <= {"type", "offset", "length"} | FIELDS.get(kind, set()):
        return [f"fields of {entity}"]
    if start < 0 or length <= 0 or 2 * (start + length) > len(units):
        return [f"out of bounds {entity}"]
    try:
        words = units[2 * start : 2 * (start + length)].decode("utf-16-le")
    except UnicodeDecodeError:
        return [f"half a character {entity}"]
    if (words.strip() if kind != "pre" else words.rstrip()) != words or not words:
        return [f"white space at the end of {words!r}"]
    return [f"no address {entity}"] if kind == "text_link" and not entity["url"].startswith(("http://", "https://", "tg://")) else []


def together(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    first, second = sorted([one, other], key=lambda entity: (entity["offset"], -entity["length"]))
    first_end, second_end = first["offset"] + first["length"], second["offset"] + second["length"]
    kinds = (first["type"], second["type"])
    if (first, second) != (one, other):
        return [f"out of order {kinds}"]
    if second["offset"] >= first_end:
        return []
    if second_end > first_end:
        return [f"overlap {kinds}"]
    return [] if may_hold(*kinds) else [f"within each other {kinds}"]


def may_hold(outer: str, inner: str) -> bool:
    if outer == inner or outer in MONOSPACED:
        return False
    if inner in MONOSPACED:
        return outer in QUOTES
    return outer in LETTERING or inner in LETTERING or (outer in QUOTES and inner not in QUOTES)


def spoken(bodies: Sequence[Mapping[str, Any]]) -> str:
    """What the parts say together, without white space."""
    return "".join("".join(body["text"].split()) for body in bodies)
