"""Write a file that `torch.load` reads, without torch. The same plain values give the same bytes.

The file is a zip of stored entries, one of them a pickle of protocol 2. It loads with `weights_only` on and off. It holds None, bool, int,
float, str, list and dict, and no tensors."""

from __future__ import annotations

import io
import pickle  # only written, never read
import zipfile
from pathlib import Path
from typing import Any

PICKLE_PROTOCOL = 2
"""The only protocol that `weights_only=True` reads without a warning."""


def write_torch(path: Path, value: Any) -> None:
    """Write `value`, a tree of plain Python values, as `torch.save` would."""
    entries = {
        "data.pkl": _pickle_value(value),
        ".format_version": b"1",
        ".storage_alignment": b"64",
        "byteorder": b"little",
        "version": b"3\n",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for name, data in entries.items():
            entry = zipfile.ZipInfo(f"archive/{name}")  # dated 1980, the zip format's first day
            entry.create_system = 0  # the bytes must not depend on the operating system
            file.writestr(entry, data)


def _pickle_value(value: Any) -> bytes:
    data = io.BytesIO()
    pickler = pickle.Pickler(data, protocol=PICKLE_PROTOCOL)
    # No memo: with a memo the bytes depend on which equal values are the same object.
    pickler.fast = True
    pickler.dump(value)
    return data.getvalue()
