"""WhatsApp's own reading of a text, written from its rules and not from our code: what is shown, and how each character is marked.

```…```           code, over lines                `…`    code, within a line
*…*  _…_  ~…~     within a line: the first sign stands not behind a letter or digit and before no space, the second behind no space
                  and before no letter or digit; the nearest second sign ends it; one may stand within another
> …               at the start of a line"""

import re
from dataclasses import dataclass

SIGNS = "*_~"


@dataclass(frozen=True)
class Shown:
    """A character on the screen."""

    character: str
    marks: frozenset[str]


def shown(text: str) -> list[Shown]:
    """What a reader sees of a text."""
    result: list[Shown] = []
    at_line_start = True
    for piece in re.split(r"(```.+?```)", text, flags=re.DOTALL):
        if re.fullmatch(r"```.+?```", piece, re.DOTALL):
            result += [Shown(character, frozenset("`")) for character in piece[3:-3]]
            at_line_start = False
            continue
        for number, line in enumerate(piece.split("\n")):
            if number:
                result.append(Shown("\n", frozenset()))
            is_quote = (number > 0 or at_line_start) and line.startswith("> ")
            result += in_line(line[2:] if is_quote else line, frozenset(">") if is_quote else frozenset())
        at_line_start = piece.endswith("\n")
    return result


def in_line(line: str, marks: frozenset[str]) -> list[Shown]:
    result: list[Shown] = []
    at = 0
    while at < len(line):
        code, address = re.compile(r"`([^`]+)`").match(line, at), re.compile(r"https?://[^\s`]+").match(line, at)
        if address:
            result += [Shown(character, marks) for character in address[0]]
            at = address.end()
        elif code:
            result += [Shown(character, marks | {"`"}) for character in code[1]]
            at = code.end()
        elif line[at] in SIGNS and opens(line, at) and (end := closing(line, at)) is not None:
            result += in_line(line[at + 1 : end], marks | {line[at]})
            at = end + 1
        else:
            result.append(Shown(line[at], marks))
            at += 1
    return result


def opens(line: str, at: int) -> bool:
    behind_word = at > 0 and line[at - 1].isalnum()
    return not behind_word and at + 1 < len(line) and not line[at + 1].isspace()


def closing(line: str, at: int) -> int | None:
    for end in range(at + 2, len(line)):
        before_word = end + 1 < len(line) and line[end + 1].isalnum()
        if line[end] == line[at] and not line[end - 1].isspace() and not before_word:
            return end
    return None
