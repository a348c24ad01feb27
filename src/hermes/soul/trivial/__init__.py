"""Trivial messages: greetings, thanks, agreement, farewells, laughter and single emoji, in sixteen languages.

Hermes recalls nothing for them and learns nothing from them. A message that is wrongly taken as trivial gets a worse answer; a trivial
message that is not recognised costs an embedding. So a digit, a question mark or one unknown word makes a message not trivial."""

from hermes.soul.trivial.trivial import is_trivial, trivial_languages

__all__ = ["is_trivial", "trivial_languages"]
