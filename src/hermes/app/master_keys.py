"""The master keys of this Hermes, from its settings or from a file in its home, and the keyring of the data that they protect.

Apart from home.py, because cryptography takes as long to load as a short command has: commands that open no sealed row need none."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hermes.app.home import home_of
from hermes.app.vaults import vault_folder
from hermes.config import Environment, Settings
from hermes.ports.errors import StartRefused
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.seal import KeyPurpose, MasterKeyInvalid, MasterKeys, decode_master_key, derive, new_master_key

__all__ = ["MASTER_KEY_FILE", "keyring_from", "master_keys", "masters_from", "new_master_key", "visitor_keys"]

MASTER_KEY_FILE = "master.key"


def keyring_from(settings: Settings) -> Keyring:
    """Return the keyring of the data that these settings protect. Raises StartRefused."""
    return Keyring(masters_from(settings), vaults=vault_folder(settings))


def masters_from(settings: Settings) -> MasterKeys:
    """Return the master keys of these settings. Raises StartRefused."""
    try:
        return MasterKeys.parse(master_keys(settings, home_of(settings)))
    except MasterKeyInvalid as error:
        raise StartRefused(str(error)) from None


def master_keys(settings: Settings, home: Path) -> list[str]:
    """Return the master keys as texts. In development Hermes makes one in its home, readable for its owner only. Raises StartRefused in
    production without a key, and if the home cannot be written."""
    if settings.master_keys:
        return [key.reveal() for key in settings.master_keys]
    if settings.environment is not Environment.DEVELOPMENT:
        raise StartRefused("there is no master key: make one with `hermes keys new-master`, keep it safe, and set HERMES_MASTER_KEYS")
    file = home / MASTER_KEY_FILE
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            make_key_file(file)
        return [file.read_text(encoding="ascii")]
    except OSError as error:
        raise StartRefused(f"cannot keep a master key in {home} ({error.strerror}); choose another folder with HERMES_HOME") from error


def visitor_keys(settings: Settings) -> list[bytes]:
    """Return the keys for the cookies of visitors, which all web processes share: one for each master key. Raises StartRefused."""
    texts = master_keys(settings, home_of(settings))
    return [derive(decode_master_key(text.strip(), place), KeyPurpose.VISITOR) for place, text in enumerate(texts, 1)]


def make_key_file(file: Path) -> None:
    """Write a new key, whole or not at all, and only if there is none: if several processes start together, the first key counts."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=file.name)  # readable for its owner only
    try:
        with os.fdopen(handle, "w", encoding="ascii") as draft:
            draft.write(new_master_key())
            draft.flush()
            os.fsync(draft.fileno())
        try:
            file.hardlink_to(name)
        except FileExistsError:
            return
    finally:
        Path(name).unlink()
