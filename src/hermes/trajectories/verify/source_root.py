"""Check that the graphs are those that were exported, whole: their roots against `source_root` in the manifest.

`source_root` is the SHA-256 of the roots of all graphs (32 bytes each), sorted. A graph's root covers everything in it: also what no row
shows, such as an edge's kind, a removed answer, or a reward that another one replaced."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from hermes.graph import MessageGraph
from hermes.trajectories.verify.ledger import FILE_NAME
from hermes.trajectories.verify.report import ProblemList


class SourceRoots:
    """The roots of the graphs that were read."""

    def __init__(self) -> None:
        self._roots: list[bytes] = []

    def add(self, graph: MessageGraph) -> None:
        self._roots.append(bytes.fromhex(graph.root))

    def check(self, manifest: Mapping[str, Any], problems: ProblemList) -> None:
        """Note it if these are other graphs. If their number is another one, that is reported elsewhere, and roots add nothing."""
        if len(self._roots) != manifest["sessions"]:
            return
        found = hashlib.sha256(b"".join(sorted(self._roots))).hexdigest()
        if found != manifest["source_root"]:
            problems.add(
                f"the graphs are not those that were exported: their roots give {found[:12]}, the manifest says "
                f"{manifest['source_root'][:12]}",
                file=FILE_NAME,
            )
