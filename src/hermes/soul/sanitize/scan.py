"""Tell whether a text is an attack, for stored values, tool results and captions alike; and clean a value that is to be stored.

Pure, and linear in the text. The marks that chat templates put between messages are found by punctuation, which the other attack families
ignore."""

# ruff: noqa: RUF001  # a colon is a colon in full width too

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from hermes.graphemes import grapheme_ends
from hermes.soul.sanitize.clauses import AttackFamily, find_rule, find_rule_squeezed
from hermes.soul.sanitize.lexicon import UNSPACED, spaced_lexicon, unspaced_patterns
from hermes.soul.sanitize.views import fold, views

ANY_LANGUAGE = "*"


@dataclass(frozen=True, slots=True)
class AttackFinding:
    """An attack: its family, its language (`*` for none in particular), and the reading of the text in which it was found."""

    family: AttackFamily
    language: str
    where: str
    """`text` if it is there as written, `hidden` if it had to be decoded or joined first."""


def scan(text: str) -> AttackFinding | None:
    """The first attack found in a text; None if there is none."""
    if has_marker(text):
        return AttackFinding(AttackFamily.ROLE_MARKER, ANY_LANGUAGE, "text")
    written = fold(text)
    for view in views(text):
        where = "text" if view == written else "hidden"
        if where == "hidden" and has_marker(view):
            return AttackFinding(AttackFamily.ROLE_MARKER, ANY_LANGUAGE, where)
        if _JAILBREAK.search(view):
            return AttackFinding(AttackFamily.JAILBREAK, ANY_LANGUAGE, where)
        if (found := find_rule(view)) is not None:
            return AttackFinding(found[0].family, found[1], where)
        if (found := find_rule_squeezed(view)) is not None:
            return AttackFinding(found[0].family, found[1], "hidden")
    return None


def load_word_lists() -> None:
    """Read the word lists now, so that the first message does not wait for them."""
    spaced_lexicon()
    for language in UNSPACED:
        unspaced_patterns(language)


# Inside a word too: else an attacker writes "ignore prevjailbreakious instructions", and cutting the word out completes the attack.
_JAILBREAK = re.compile("jail ?break|jailbr[oa]k|(?<![a-z])do anything now(?![a-z])")


MAX_VALUE_CHARS, MAX_KEY_CHARS = 200, 50
"""Characters as a reader counts them."""
MAX_CLUSTER_CODE_POINTS = 32
"""The most code points of one character. A longer pile of marks counts as several, so that a limit in characters bounds bytes too."""
MAX_CODE_POINTS = MAX_VALUE_CHARS * MAX_CLUSTER_CODE_POINTS
"""The most code points that can be stored. Later ones are not scanned: they are cut off, and reach no prompt."""


def sanitize_memory_value(value: str, *, kind: Literal["value", "key"] = "value") -> str | None:
    """The value as it may be stored; None if it is an attack and must be dropped.

    Keeps the writer's characters: removes only control characters, tags, bidirectional embeddings and overrides, and halves of
    surrogate pairs; white space becomes single spaces. At most 200 characters, 50 for a key, never a part of a character.
    Idempotent, and the result is never an attack: it is scanned before it is cut, and again if cutting changed it."""
    value = value[:MAX_CODE_POINTS]
    if scan(value) is not None:
        return None
    limit = MAX_VALUE_CHARS if kind == "value" else MAX_KEY_CHARS
    stored = truncate(clean(value), limit).rstrip()
    return stored if stored == value or scan(stored) is None else None


def truncate(text: str, limit: int) -> str:
    """The first `limit` characters as a reader counts them; never a part of a character."""
    if len(text) <= limit:
        return text  # a character is at least one code point
    start = 0
    for end in grapheme_ends(text):
        counted = -(-(end - start) // MAX_CLUSTER_CODE_POINTS)
        if counted > limit:
            return text[: start + limit * MAX_CLUSTER_CODE_POINTS]
        limit, start = limit - counted, end
    return text


def clean(text: str) -> str:
    """The text on one line, without characters that control a screen or that a reader cannot see."""
    return " ".join(_UNWANTED.sub(lambda found: found[1] or "", text).split())


# The flag of a region is a black flag followed by tags: those tags belong to the emoji, all others are hidden text.
_UNWANTED = re.compile(
    "(\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f)"
    "|[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u202a-\u202e\ud800-\udfff\U000e0000-\U000e007f]"
)


# --- marks of chat templates


def has_marker(text: str) -> bool:
    """Whether a text holds a mark that only a chat template, or an imitation of one, contains."""
    if _SUSPECT.search(text) is None:
        return False
    lines = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).splitlines()
    # Runs of white space become one character: a pattern that may skip any amount takes quadratic time.
    plain = "\n".join(" ".join(line.split()) for line in lines)
    plain = _EMPTY_LINES.sub("\n", plain)
    return any(pattern.search(plain) for pattern in (_TEMPLATE, _TURN, _HEADING, _PRINT))


_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_EMPTY_LINES = re.compile(r"\n+")
_SUSPECT = re.compile(r"[<\[{#=\-*:：(＜［]")
_TEMPLATE = re.compile(
    r"<\|[a-z_ ]{2,24}\|>|<\|?(?:im_start|im_end|endoftext|eot_id|start_header_id|begin_of_text)\|?>|<</?sys>>"
    r"|\[/?(?:inst|sys|system|assistant|system_prompt|system message|admin)\]"
    r"|</?(?:system|assistant|sys|system[_-]prompt|prompt|instructions?|admin|developer|important|information|human)(?:\s[^<>]{0,60})?>"
    r"|<(?:start|end)_of_turn>|\{\{?#?system\b",
    re.IGNORECASE,
)
_SYSTEM = (
    r"system|sistem|sistema|système|systeem|система|系统|系統|システム|시스템|ระบบ|सिस्टम|النظام|نظام|developer|root|human|"
    r"sysadmin|system (?:prompt|message|note|instruction|update|alert|admin|command)s?|"
    r"admin(?:istrator)? (?:message|note|command|instruction)s?"
)
_TURN = re.compile(
    rf"(?:^|[\n.!?;\"'\]}})>])\s*(?:[#*_>\[\-]{{1,4}}\s*)?(?:{_SYSTEM})\s*[\]*_]{{0,3}}\s*[:：]\s*\S"
    r"|\n\s*(?:assistant|ai|user|model|bot)\s*[:：]\s*\S",
    re.IGNORECASE,
)
_HEADING = re.compile(
    r"#{2,6}\s*(?:new\s+|system\s+|updated\s+)?(?:instruction|system|task|prompt|directive)s?\b"
    r"|(?:[-=*#<\[_]{2,8}|[<\[(])\s*(?:begin|end|start|stop)\b[^\n]{0,24}\b"
    r"(?:prompt|instruction|context|system|input|conversation|document|task|user)s?\b"
    r"|\b(?:new|updated|revised|important|secret|hidden)\s+(?:system\s+)?(?:instruction|directive|prompt|command|objective)s?\s*[:：]",
    re.IGNORECASE,
)
_PRINT = re.compile(
    r"(?:console\.log|print|echo|cat|return|log|dump)\s*[( ]\s*[\"'$]?\s*(?:system[_ ]?prompt|system[_ ]?message|initial[_ ]?prompt)",
    re.IGNORECASE,
)
