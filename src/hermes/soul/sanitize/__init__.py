"""Keeping other people's orders out of the prompt, in sixteen languages.

value      what may be stored, cleaned and cut; None for what is an attack
scan       is this text an attack, of which family, in which language
families   the sixteen kinds of attack, as combinations of concepts
clauses    where the concepts of one clause stand
lexicon    which words say which concept; words/ holds them, a file for each language
views      the texts that one text may stand for: decoded, unfolded, unspaced, turned round
fold       one form for all ways to write a letter
graphemes  what a reader counts as one character

It is hygiene, not a proof: who writes in words of their own gets through. So what passes still enters a prompt as marked data only."""

from hermes.soul.sanitize.families import AttackFamily
from hermes.soul.sanitize.scan import AttackFinding, load_word_lists, scan
from hermes.soul.sanitize.value import MAX_KEY_CHARS, MAX_VALUE_CHARS, sanitize_memory_value

__all__ = ["MAX_KEY_CHARS", "MAX_VALUE_CHARS", "AttackFamily", "AttackFinding", "load_word_lists", "sanitize_memory_value", "scan"]
