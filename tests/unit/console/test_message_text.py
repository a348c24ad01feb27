"""One line of a message, as lists show it, and its hidden characters."""

import pytest

from hermes.console.message_text import first_line, show_hidden

NOTE = "<context>\nIt is Monday, 2026-11-16 09:00 (UTC).\n</context>\n\n"


def test_the_line_begins_with_the_users_own_words() -> None:
    assert first_line(NOTE + "find me a\nsunset bar", 80) == "find me a sunset bar"
    assert first_line("words " * 40, 20) == "words words words w…"


def test_a_note_alone_or_one_that_never_ends_is_shown() -> None:
    assert first_line(NOTE, 20) == "<context> It is Mon…"
    assert first_line("<context>\nnever closed", 80) == "<context> never closed"


@pytest.mark.parametrize("code", [0x00, 0x1B, 0x85, 0xAD, 0x061C, 0x200B, 0x2028, 0x202E, 0x2069, 0xFEFF, 0xD83D, 0xE0041])
def test_a_character_that_hides_or_turns_text_is_written_by_its_number(code: int) -> None:
    assert show_hidden(f"a{chr(code)}b") == f"a⟨U+{code:04X}⟩b"


def test_other_characters_stay() -> None:
    assert show_hidden("Zeile\n\t日本 🜏 <b>") == "Zeile\n\t日本 🜏 <b>"
