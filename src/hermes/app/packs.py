"""The packs of the settings, and what Hermes builds from them.

A pack that was switched off leaves its tables. Hermes still counts and erases the rows of users in them, if it can find the pack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from hermes.backends.scripted.script import Script
from hermes.config import Environment, Settings
from hermes.packs import Pack, PackNotFound, PackServices, find_pack
from hermes.ports.errors import StartRefused, StoreUnavailable
from hermes.ports.runtime import Transactions
from hermes.ports.tools import FactSharing
from hermes.router.proactive import TakeDue
from hermes.soul.prompt_layers import DEFAULT_ROLE
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.migrate import MigrationFolder, existing_tables, packs_in_database
from hermes.stores.postgres.users import UserTable
from hermes.tools.gate import Gate
from hermes.tools.images import ImageIntent
from hermes.tools.memory import memory_tools, share_fact
from hermes.tools.registry import Tool

log = structlog.get_logger()


def packs_from(settings: Settings) -> tuple[Pack, ...]:
    """Return the packs that are switched on. Raises StartRefused for a pack that does not exist, and for two of one name."""
    try:
        packs = tuple(find_pack(name) for name in settings.pack_names)
    except PackNotFound as error:
        raise StartRefused(f"packs.enabled: {error}") from None
    names = [pack.name for pack in packs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise StartRefused(f"packs.enabled: two packs have the name {twice!r}; name each pack once")
    return packs


def script_from(packs: Sequence[Pack]) -> Script:
    """Return the rules that answer without a model: those of the packs, and Hermes' own."""
    return Script.default([(f"{pack.name}/{pack.script.name}", pack.script.read_text(encoding="utf-8")) for pack in packs if pack.script])


def migration_folders(packs: Sequence[Pack]) -> list[MigrationFolder]:
    return [MigrationFolder(pack.name, pack.migrations) for pack in packs if pack.migrations is not None]


async def read_user_tables(settings: Settings, database: Transactions) -> list[UserTable]:
    """Return the tables with rows of users: of the packs that are on, and of those that were on earlier.

    A pack that is off may be a newer version than the one that was on: its migrations wait, and tables that they make are not there yet."""
    packs, earlier = packs_from(settings), []
    async with database.begin() as tx:
        for name in await packs_in_database(connection_of(tx)):
            if name not in {pack.name for pack in packs}:
                try:
                    earlier.append(find_pack(name))
                except PackNotFound as error:
                    log.warning("pack_tables_without_pack", pack=name, reason=str(error))
        older = [table for pack in earlier for table in pack.user_tables]
        there = await existing_tables(connection_of(tx), [table.name for table in older])
    return [*(table for pack in packs for table in pack.user_tables), *(table for table in older if table.name in there)]


@dataclass(frozen=True, slots=True)
class OpenPacks:
    """The packs that are on, with the services that their parts are built with."""

    packs: tuple[Pack, ...]
    services: PackServices

    def own_tools(self, keys: Sequence[str], sharing: FactSharing) -> tuple[list[Tool], Gate]:
        """Return the tools of the packs and of the memory, in their fixed order, and the gate for them. `keys` are the memory keys."""
        memory = [*memory_tools(self.services.notebook, keys), share_fact.of(sharing)]
        by_pack = [(pack.gate, pack.tools(self.services)) for pack in self.packs]
        own = [*(tool for _, tools in by_pack for tool in tools), *memory]
        ungated = [*memory, *(tool for gate, tools in by_pack if gate is None for tool in tools)]
        rules = [gate for gate, _ in by_pack if gate is not None]
        return own, Gate(rules, frozenset(tool.name for tool in own), frozenset(tool.name for tool in ungated))

    @property
    def image_intents(self) -> list[ImageIntent]:
        return [intent for pack in self.packs for intent in pack.image_intents]

    @property
    def due_messages(self) -> list[TakeDue]:
        return [take for pack in self.packs for take in pack.due_messages(self.services)]

    async def load_samples(self) -> None:
        """Fill the empty tables of the packs with their sample data. Goes on without it if the store is away."""
        for pack in self.packs:
            if pack.load_samples is not None:
                try:
                    await pack.load_samples(self.services)
                except StoreUnavailable as error:
                    log.warning("samples_not_loaded", pack=pack.name, reason=str(error))


def role_from(packs: Sequence[Pack]) -> str:
    return next((pack.role for pack in packs if pack.role), DEFAULT_ROLE)


def wants_samples(settings: Settings) -> bool:
    sample = settings.tools.sample
    return settings.environment is Environment.DEVELOPMENT if sample is None else sample
