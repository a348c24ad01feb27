"""Packs: everything that Hermes knows about one trade, in one folder that can be removed. A setting switches a pack on: `packs.enabled`.

    concierge    places, bookings, reminders, products, food, rides: the pack that comes with Hermes

A pack is a value of the class `Pack`; every field but the name is optional. Hermes finds it by its name (a pack that comes with Hermes, or
an entry point of the group `hermes.packs`) or by its place, `module:attribute`. No other module imports a certain pack: hermes.app asks
`find_pack`, and hands each part of a pack to the room that uses it. docs/packs.md shows a whole pack."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar

if TYPE_CHECKING:  # `hermes --help` asks which packs there are, and must not wait for all of this
    from hermes.ports.runtime import Transactions
    from hermes.ports.tools import Notebook
    from hermes.router.proactive import TakeDue
    from hermes.soul.fact_keys import FactKey
    from hermes.stores.postgres.keyring import Keyring
    from hermes.stores.postgres.users import UserTable
    from hermes.tools.gate import GateRules
    from hermes.tools.images import ImageIntent
    from hermes.tools.registry import Tool

T = TypeVar("T")

GROUP = "hermes.packs"
"""The group of entry points."""
NAME_PATTERN, PLACE_PATTERN = re.compile(r"[a-z][a-z0-9_-]*"), re.compile(r"[\w.]+:[\w.]+")
TAKEN_NAMES = frozenset({"queue", "mcp"})
"""Names that mean something else: the migrations of the job queue, and the tools of MCP servers."""


class ShippedPack(NamedTuple):
    """A pack that comes with Hermes: its place, and the lines of its commands in `hermes --help`, which does not load the pack."""

    place: str
    commands: Mapping[str, str]


SHIPPED_PACKS: Mapping[str, ShippedPack] = {
    "concierge": ShippedPack("hermes.packs.concierge:PACK", {"venues": "Places: import, list, sample."}),
}
"""The packs that come with Hermes, by name."""


class PackNotFound(ValueError):
    """There is no such pack. The message names the nearest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackServices:
    """What the parts of a pack are built with. A pack brings its own adapters: SQL on the tables of its migrations."""

    transactions: Transactions
    keyring: Keyring
    """Seals texts of a user with that user's key, so that they cannot be read when the user is erased."""
    notebook: Notebook
    """Notes facts about users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """Everything that one pack brings."""

    name: str
    """Small letters, digits, - and _. The migrations are recorded under it, so it never changes."""
    role: str = ""
    """What the agent is, for its prompt: `concierge`. The first pack that says it wins."""
    tools: Callable[[PackServices], Sequence[Tool]] = lambda _: ()
    """The tools, in a fixed order, so that a prompt with them has the same bytes every time."""
    gate: GateRules | None = None
    """By which words the gate chooses which of the tools. Without it, they go with every message that is no small talk."""
    image_intents: Sequence[ImageIntent] = ()
    fact_keys: Sequence[FactKey] = ()
    """The structural memory keys."""
    due_messages: Callable[[PackServices], Sequence[TakeDue]] = lambda _: ()
    """Where the messages come from that Hermes sends by itself: reminders."""
    migrations: Traversable | None = None
    """A folder of `.sql` files, which run in the order of their names. A file is never changed or renamed after a release."""
    user_tables: Sequence[UserTable] = ()
    """The tables with rows of users. Hermes counts them where users see their data, and deletes them when it erases a user."""
    load_samples: Callable[[PackServices], Awaitable[None]] | None = None
    """Fills the tables that are empty with sample data. Repeating it changes nothing."""
    script: Traversable | None = None
    """The TOML file of the rules that answer without a model; see docs/how-to/scripted.md."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """The commands of `hermes`: from a name to the `module:function` that takes a PackConsole and returns the Typer app."""

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.name) or self.name in TAKEN_NAMES:
            raise ValueError(f"a pack cannot have the name {self.name!r}; use another one, of small letters, digits, - and _")


def find_pack(name: str) -> Pack:
    """Return a pack by its name or by its place. Raises PackNotFound."""
    installed = {point.name: point for point in entry_points(group=GROUP)}
    installed |= {shipped: EntryPoint(shipped, pack.place, GROUP) for shipped, pack in SHIPPED_PACKS.items()}
    point = EntryPoint(name, name, GROUP) if ":" in name else installed.get(name)
    if ":" in name and not PLACE_PATTERN.fullmatch(name):
        raise PackNotFound(f"{name!r} is no place of a pack; write it as module:attribute")
    if point is None:
        near = get_close_matches(name, installed, 1, cutoff=0.0)
        raise PackNotFound(f"there is no pack {name!r}; did you mean {near[0]!r}?")
    try:
        found = point.load()
    except (ImportError, AttributeError, ValueError) as error:
        raise PackNotFound(f"the pack {name!r} cannot be loaded: {error}") from error
    if not isinstance(found, Pack):
        raise PackNotFound(f"{point.value} is no pack, but a {type(found).__name__}")
    if ":" not in name and found.name != name:  # a database knows a pack by its own name; Hermes finds it there after it was switched off
        raise PackNotFound(f"the entry point {name!r} is the pack {found.name!r}; give both one name")
    return found


class PackConsole(Protocol):
    """What the commands of a pack get from the command line."""

    def run(self, config: Path | None, act: Callable[[PackServices], Coroutine[Any, Any, T]]) -> T:
        """Open Hermes with this settings file, or with the usual one; call `act`, and return its result. Errors become one line."""
        ...

    def fail(self, message: str) -> NoReturn:
        """Print one line and exit with the code for bad input."""
        ...

    def print_table(self, names: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        """Print rows under the names of their columns. No text can control the terminal, and in a pipe every cell is whole."""
        ...

    def print_json(self, value: object) -> None:
        """Print a value as one line of JSON."""
        ...
