"""Keep orders that are hidden in data out of the prompt, in sixteen languages.

value      cleans and cuts a value that is to be stored; None for an attack
scan       tells whether a text is an attack, of which family, in which language
families   the sixteen kinds of attack, as combinations of concepts
clauses    finds where the concepts of one clause stand
lexicon    maps words to concepts; words/ holds the words, a file for each language
views      the texts that one text may stand for: decoded, folded, without spaces, reversed
fold       folds all ways to write a letter into one
markers    finds the marks that chat templates put between messages

It is hygiene, not a proof: an attacker with new words gets through. So text that passes still enters a prompt only as marked data."""

from hermes.soul.sanitize.families import AttackFamily
from hermes.soul.sanitize.scan import AttackFinding, load_word_lists, scan
from hermes.soul.sanitize.value import MAX_KEY_CHARS, MAX_VALUE_CHARS, sanitize_memory_value

__all__ = ["MAX_KEY_CHARS", "MAX_VALUE_CHARS", "AttackFamily", "AttackFinding", "load_word_lists", "sanitize_memory_value", "scan"]
