"""Signatures: who made an export. An Ed25519 key signs the ledger, and the ledger holds the hash of every other file and of the graphs.

`ledger.sig` is one line of JSON beside `ledger.jsonl`:

    {"ed25519": the signer's public key, "signature": over b"hermes.ledger\\0" and the SHA-256 of ledger.jsonl}, both in hexadecimal

Keys are PEM files, as `openssl genpkey -algorithm ed25519` writes them. Shares nothing with the code that writes ledgers."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from hermes.trajectories.errors import TrajectoryError

SIGNATURE_FILE = "ledger.sig"
LEDGER_FILE = "ledger.jsonl"
CONTEXT = b"hermes.ledger\0"
"""A signature says nothing about files of other programs."""


class KeyUnusable(TrajectoryError):
    """The file does not hold a key that Hermes can use."""


@dataclass(frozen=True, slots=True)
class LedgerSigner:
    """Signs exports with one key."""

    key: Ed25519PrivateKey

    @classmethod
    def from_file(cls, path: Path) -> LedgerSigner:
        """Read a private key from a PEM file; raise KeyUnusable if there is none."""
        try:
            key = load_pem_private_key(path.read_bytes(), None)
        except OSError as error:
            raise KeyUnusable(f"{path}: {error.strerror}") from None
        except TypeError:
            raise KeyUnusable(f"{path}: the key has a password; remove it with: openssl pkey -in {path} -out plain.pem") from None
        except (ValueError, UnsupportedAlgorithm):
            raise KeyUnusable(f"{path}: not a private key in PEM; make one with: openssl genpkey -algorithm ed25519 -out key.pem") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise KeyUnusable(f"{path}: not an Ed25519 key; make one with: openssl genpkey -algorithm ed25519 -out key.pem")
        return cls(key)

    def sign(self, folder: Path) -> None:
        """Write the signature beside the ledger of a folder."""
        signature = self.key.sign(_signed_text(folder))
        line = {"ed25519": self.key.public_key().public_bytes_raw().hex(), "signature": signature.hex()}
        (folder / SIGNATURE_FILE).write_text(json.dumps(line) + "\n", encoding="ascii")


def load_trusted_key(path: Path) -> Ed25519PublicKey:
    """Read a public key from a PEM file; raise KeyUnusable if there is none."""
    try:
        key = load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise KeyUnusable(f"{path}: {error.strerror}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise KeyUnusable(f"{path}: not a public key in PEM; make one with: openssl pkey -in key.pem -pubout -out public.pem") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyUnusable(f"{path}: not an Ed25519 key")
    return key


def signature_refusal(folder: Path, trusted: Ed25519PublicKey) -> str | None:
    """Return None if this key signed the ledger of the folder as it is now, and else in one line why not."""
    path = folder / SIGNATURE_FILE
    try:
        line = json.loads(path.read_bytes())
        signer, signature = bytes.fromhex(line["ed25519"]), bytes.fromhex(line["signature"])
    except FileNotFoundError:
        return f"{folder}: not signed: there is no {SIGNATURE_FILE}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{path}: not a signature that hermes export writes"
    if signer != trusted.public_bytes_raw():
        return f"{folder}: signed by another key, {signer.hex()[:16]}…, not by {trusted.public_bytes_raw().hex()[:16]}…"
    try:
        trusted.verify(signature, _signed_text(folder))
    except InvalidSignature:
        return f"{folder}: {LEDGER_FILE} was changed after it was signed, or the signature was"
    return None


def _signed_text(folder: Path) -> bytes:
    with (folder / LEDGER_FILE).open("rb") as ledger:
        return CONTEXT + hashlib.file_digest(ledger, "sha256").digest()
