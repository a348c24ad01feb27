"""Derive every seed from the one number of a run: the same run, item and rollout have the same seed on every machine."""

from __future__ import annotations

import hashlib
import json

MAX_SEED = 2**31 - 1
"""Model servers take a seed as a signed 32-bit number."""


def seed_of(*parts: str | int) -> int:
    """Return a number that depends only on these parts.

    >>> seed_of(0, "item", 3) == seed_of(0, "item", 3) != seed_of(0, "item", 4)
    True
    """
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") % MAX_SEED
