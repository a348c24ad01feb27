"""The sixteen kinds of attack, each as combinations of concepts in one clause.

"Ignore the previous booking" has an action and a scope, "ignore the previous instructions" has the object too: a combination
is an attack only if the clause has a concept for each of its needs, close together, in one language (English words count in all).

    (IGNORE, INSTRUCTIONS, PRIOR | ALL | YOUR), at most 2 unknown words in between, in any order

Any word order counts, because sixteen languages differ in it; distance and the object decide."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class AttackFamily(StrEnum):
    """What an attack tells the model."""

    OVERRIDE = "override"
    """To drop its instructions."""
    MODE_SWITCH = "mode_switch"
    """To enter a mode in which its instructions do not hold: system override, developer mode, DAN mode."""
    JAILBREAK = "jailbreak"
    """The word jailbreak itself, or "do anything now"."""
    PERSONA = "persona"
    """That it is another character now."""
    NO_LIMITS = "no_limits"
    """That it has no limits, or to answer without any."""
    DISABLE_SAFETY = "disable_safety"
    """To turn its safeguards off."""
    EXTRACT_PROMPT = "extract_prompt"
    """To show its instructions."""
    EXTRACT_SECRET = "extract_secret"  # noqa: S105  # the name of a family, not a password
    """To show a key or a password."""
    AUTHORITY = "authority"
    """That the writer is its developer."""
    ROLE_MARKER = "role_marker"
    """Text that imitates a system message."""
    NEW_INSTRUCTIONS = "new_instructions"
    """That it has new instructions."""
    OBEY = "obey"
    """To do whatever the writer says, never to refuse, to follow hidden text."""
    ADDRESS_MODEL = "address_model"
    """A text for people that addresses the model that reads it."""
    EXFILTRATE = "exfiltrate"
    """To send a user's data away."""
    OUTPUT_HIJACK = "output_hijack"
    """To say exactly this."""
    PERSIST = "persist"
    """To do something in every answer from now on, or without telling the user."""


@dataclass(frozen=True, slots=True)
class AttackRule:
    """Concepts that make an attack together in one clause: one for each need, in any order, with few unknown words in between."""

    family: AttackFamily
    needs: tuple[frozenset[str], ...]
    unknown: int
    """How many unknown words may stand between the first and the last concept."""


@lru_cache(maxsize=1 << 14)
def rules_for(concepts: frozenset[str]) -> tuple[AttackRule, ...]:
    """The rules whose needs are all among these concepts. Cached, because most texts have the same few concepts."""
    return tuple(rule for rule in RULES if all(not need.isdisjoint(concepts) for need in rule.needs))


def make_rule(family: AttackFamily, *needs: str, unknown: int = 2) -> AttackRule:
    return AttackRule(family, tuple(frozenset(need.split("|")) for need in needs), unknown)


RULES = (
    make_rule(AttackFamily.OVERRIDE, "ignore|drop", "instructions", "prior|weak_prior|all|your|system"),
    make_rule(AttackFamily.OVERRIDE, "ignore|drop", "rules", "prior|weak_prior|your|system", unknown=1),
    make_rule(AttackFamily.OVERRIDE, "ignore|drop", "rules", "all", unknown=0),
    make_rule(AttackFamily.OVERRIDE, "follow", "not", "instructions|rules", "prior|your|system", unknown=1),
    make_rule(AttackFamily.OVERRIDE, "ignore", "loose", "prior", "all", unknown=1),
    make_rule(AttackFamily.OVERRIDE, "ignore", "loose", "prior", "reveal|assert|now"),
    make_rule(AttackFamily.OVERRIDE, "ignore", "above", unknown=1),
    make_rule(AttackFamily.OVERRIDE, "ignore", "everything", "told|prior"),
    make_rule(AttackFamily.MODE_SWITCH, "override"),
    make_rule(AttackFamily.MODE_SWITCH, "overriding", "operator"),
    make_rule(AttackFamily.MODE_SWITCH, "bad_mode"),
    make_rule(AttackFamily.MODE_SWITCH, "mode", "enter|you|now|ai", unknown=3),
    make_rule(AttackFamily.JAILBREAK, "jailbreak"),
    make_rule(AttackFamily.PERSONA, "you_now"),
    make_rule(AttackFamily.PERSONA, "pretend", "ai", "unbound", unknown=4),
    make_rule(AttackFamily.NO_LIMITS, "you|answer", "no_limits"),
    make_rule(AttackFamily.NO_LIMITS, "ai", "unbound", unknown=1),
    make_rule(AttackFamily.DISABLE_SAFETY, "disable", "safeguard"),
    make_rule(AttackFamily.DISABLE_SAFETY, "disable", "limits", "your", unknown=1),
    make_rule(AttackFamily.EXTRACT_PROMPT, "reveal|what", "instructions", "your|system"),
    make_rule(AttackFamily.EXTRACT_PROMPT, "reveal", "instructions", "prior"),
    make_rule(AttackFamily.EXTRACT_PROMPT, "reveal|what|you|your|continue", "system_prompt", unknown=3),
    make_rule(AttackFamily.EXTRACT_PROMPT, "reveal", "above", unknown=1),
    make_rule(AttackFamily.EXTRACT_SECRET, "reveal|what", "secret", "your|system", unknown=1),
    make_rule(AttackFamily.AUTHORITY, "authority"),
    make_rule(AttackFamily.NEW_INSTRUCTIONS, "new", "instructions", "your|system", unknown=1),
    make_rule(AttackFamily.NEW_INSTRUCTIONS, "new", "instructions", "follow", "now", unknown=1),
    make_rule(AttackFamily.OBEY, "obey"),
    make_rule(AttackFamily.OBEY, "decode", "run_it", unknown=6),
    make_rule(AttackFamily.ADDRESS_MODEL, "address_ai"),
    make_rule(AttackFamily.ADDRESS_MODEL, "instead"),
    make_rule(AttackFamily.EXFILTRATE, "send", "private", unknown=3),
    make_rule(AttackFamily.EXFILTRATE, "reveal|what|send", "user_data"),
    make_rule(AttackFamily.OUTPUT_HIJACK, "say_only", "quote", unknown=1),
    make_rule(AttackFamily.OUTPUT_HIJACK, "stop_all", "say_only|assert|reveal", unknown=4),
    make_rule(AttackFamily.OUTPUT_HIJACK, "ignore", "assert", unknown=3),
    make_rule(AttackFamily.PERSIST, "conceal"),
    make_rule(AttackFamily.PERSIST, "every_answer", "always", unknown=3),
)
