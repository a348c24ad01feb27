"""Keep orders that are hidden in data out of the prompt, in sixteen languages.

scan       tells whether a text is an attack, of which family, in which language; cleans and cuts a value that is to be stored
clauses    the sixteen kinds of attack, as combinations of concepts, and where the concepts of one clause stand
lexicon    maps words to concepts; words/ holds the words, a file for each language
views      the texts that one text may stand for: decoded, folded, without spaces, reversed

It is hygiene, not a proof: an attacker with new words gets through. So text that passes still enters a prompt only as marked data."""

from hermes.soul.sanitize.clauses import AttackFamily
from hermes.soul.sanitize.scan import MAX_KEY_CHARS, MAX_VALUE_CHARS, AttackFinding, load_word_lists, sanitize_memory_value, scan

__all__ = ["MAX_KEY_CHARS", "MAX_VALUE_CHARS", "AttackFamily", "AttackFinding", "load_word_lists", "sanitize_memory_value", "scan"]
