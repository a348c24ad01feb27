"""Messages that tell nothing: greetings, thanks, agreement, farewells, laughter and single emoji, in sixteen languages.

Nothing is looked up for them and nothing is remembered of them. A message that is wrongly taken for one gets a worse answer,
one that is wrongly not taken for one costs an embedding: so a digit, a question mark or one unknown word makes it content."""

from hermes.soul.trivial.trivial import is_trivial, trivial_languages

__all__ = ["is_trivial", "trivial_languages"]
