"""Read prompts from a JSONL file. Each iteration reads the file again, one line at a time.

An item is named by its `id`, or by the digest of its row: so its name stays when other rows are added or removed. Equal rows without ids
are several items: the second is named `…-2`. If one of them is removed, the last of these names is gone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from hermes.graph import MessageError, MessageGraph
from hermes.graph.message import canonical, digest
from hermes.trajectories.errors import SourceError

PROMPT_FIELD = "prompt"
ITEM_FIELDS = ("id", "system", "cwd")
"""The fields that batch runs use, beside the prompt. All other fields are for tools and verifiers."""
NAME_LENGTH = 16
MAX_LINE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class PromptItem:
    """One row of the file."""

    id: str
    digest: str
    """The digest of the whole row. It shows a resumed run that the row behind an `id` has changed: then it is another item."""
    line: int
    messages: Sequence[Mapping[str, Any]] = field(repr=False)
    row: Mapping[str, Any] = field(repr=False)
    """The row as it is in the file."""
    system: str | None = None
    cwd: str | None = None
    prompt_field: str = PROMPT_FIELD

    @property
    def rest(self) -> dict[str, Any]:
        """The fields of the row that batch runs do not use."""
        return {name: value for name, value in self.row.items() if name not in (*ITEM_FIELDS, self.prompt_field)}


class PromptFile:
    """The items of a prompt file."""

    def __init__(self, file: Path, *, prompt: str = PROMPT_FIELD) -> None:
        """`prompt` names the field that holds the prompt."""
        self.file, self._prompt = file, prompt

    def __iter__(self) -> Iterator[PromptItem]:
        """Yield every item in its order; raise SourceError for a line that is not a valid item."""
        seen: Counter[str] = Counter()
        lines: dict[str, int] = {}
        with self.file.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), start=1):
                if len(line) > MAX_LINE_BYTES:  # /dev/zero has no end
                    self._refuse(number, f"the line is longer than {MAX_LINE_BYTES // 2**20} MB")
                if not line.strip():
                    continue
                item = self._item(line, number, seen)
                if item.id in lines:
                    self._refuse(number, f"the id {item.id!r} is also the id of line {lines[item.id]}; give each row its own id, or none")
                lines[item.id] = number
                yield item

    def index(self) -> dict[str, str]:
        """Return every item's name and digest, in the file's order. Reads and checks the whole file."""
        try:
            found = {item.id: item.digest for item in self}
        except OSError as error:
            raise SourceError(str(self.file), error.strerror or str(error)) from None
        if not found:
            raise SourceError(str(self.file), 'there is no prompt in it; expected lines such as {"prompt": "…"}')
        return found

    def _item(self, line: bytes, number: int, seen: Counter[str]) -> PromptItem:
        row = self._row(line, number)
        whole = digest(canonical(row)).hex()
        given = row.get("id")
        if given is None:
            seen[whole] += 1
            name = whole[:NAME_LENGTH] + (f"-{seen[whole]}" if seen[whole] > 1 else "")
        elif isinstance(given, bool) or not isinstance(given, str | int) or not str(given).strip():
            self._refuse(number, "its id is neither a text nor a whole number")
        else:
            name = str(given)
        for field_ in ("system", "cwd"):
            if not isinstance(row.get(field_), str | None):
                self._refuse(number, f"its {field_} is not a text")
        return PromptItem(name, whole, number, self._messages(row, number), row, row.get("system"), row.get("cwd"), self._prompt)

    def _row(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            row = json.loads(line, parse_constant=_refuse_constant)  # Python's parser would accept NaN and Infinity
        except (ValueError, RecursionError) as error:
            self._refuse(number, f"not JSON ({error})")
        if not isinstance(row, dict) or row.get(self._prompt) is None:
            has = f"; it has {', '.join(row)}. Another field: prompt_field = NAME" if isinstance(row, dict) and row else ""
            self._refuse(number, f"expected an object with {self._prompt!r}{has}")
        try:
            canonical(row)  # only to see whether it raises: the row gets a digest
            MessageGraph([{"role": "user", "content": "", "metadata": row}])  # checks that the graph can keep the row as metadata
        except (MessageError, ValueError) as error:
            self._refuse(number, f"this row cannot be stored ({error})")
        return row

    def _messages(self, row: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
        given = row[self._prompt]
        messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(messages, list) or not messages:
            self._refuse(number, f"its {self._prompt} is neither a text nor a list of messages")
        try:
            checked = [dict(message) for message in MessageGraph(messages)]
        except MessageError as error:
            self._refuse(number, f"its {self._prompt} is not a list of messages ({error})")
        if checked[-1]["role"] == "assistant":
            self._refuse(number, "its last message is an assistant's, so there is nothing to answer")
        if row.get("system") is not None and checked[0]["role"] in ("system", "developer"):
            self._refuse(number, "it has a system message and a field `system`; leave out one of them")
        return checked

    def _refuse(self, number: int, reason: str) -> NoReturn:
        raise SourceError(f"{self.file}, line {number}", reason)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
