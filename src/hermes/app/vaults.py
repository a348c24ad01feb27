"""The vault of the settings: where it is, whether this database has one, and the chore that keeps it."""

from __future__ import annotations

from uuid import UUID

from hermes.app.home import home_of
from hermes.config import Settings
from hermes.event_log import get_logger
from hermes.ports.errors import StartRefused
from hermes.ports.runtime import Transactions
from hermes.router.chores import ChoreRun
from hermes.stores.key_vault import VaultFolder
from hermes.stores.postgres.vault_keys import VaultKeeper, count_unrotated, rotate_some
from hermes.stores.seal import MasterKeys

__all__ = ["count_unrotated", "keep_vault", "makes_vault", "open_vault", "rotate_some", "vault_folder", "vault_mark"]

log = get_logger(__name__)


def vault_folder(settings: Settings) -> VaultFolder:
    """Return the folder in which this process looks for vaults."""
    return VaultFolder(settings.vault or home_of(settings))


def makes_vault(settings: Settings) -> bool:
    """Whether a database of these settings gets a vault. A server may be used from several machines, whose homes are not one folder."""
    return settings.vault is not None or settings.database_url is None


def vault_mark(settings: Settings) -> UUID | None:
    """Return what names the folder of vaults, for other processes to compare; None if this process makes none, or cannot write there."""
    if not makes_vault(settings):
        return None
    try:
        return vault_folder(settings).mark()
    except OSError as error:
        log.warning("vault_folder_not_written", error=error.strerror)
        return None


async def open_vault(settings: Settings, transactions: Transactions, masters: MasterKeys) -> None:
    """Give the database a vault if it should have one, and refuse to start without the one that it has. Raises StartRefused."""
    keeper = VaultKeeper(masters, vault_folder(settings))
    try:
        if makes_vault(settings):
            await keeper.begin(transactions)
        async with transactions.begin() as tx:
            missing = await keeper.missing(tx)
    except OSError as error:
        raise StartRefused(f"the vault in {keeper.folder.path} cannot be used ({error.strerror}); set HERMES_VAULT") from error
    if missing:
        where = keeper.folder.file_of(missing[0].vault)
        raise StartRefused(
            f"{len(missing)} keys that open this database are not in {where}: set HERMES_VAULT to the folder that all processes share, "
            "or put the file back"
        )


async def keep_vault(settings: Settings, masters: MasterKeys, run: ChoreRun) -> int:
    """The chore: destroy the keys of erased users. Return how many were destroyed."""
    keeper = VaultKeeper(masters, vault_folder(settings))
    if makes_vault(settings):
        await keeper.begin(run.transactions)
    destroyed = await keeper.keep(run.transactions, grace_s=settings.erasure.grace_s)
    if destroyed:
        log.info("vault_keys_destroyed", keys=destroyed)
    return destroyed
