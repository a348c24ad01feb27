"""Verify: checks an export again from its files, and imports none of the code that writes exports.

Everything is written a second time on purpose: a fault in the exporter is not repeated here. Read it in this order: report, ledger
(lines and counts), exported_rows (what a row is), linear_reader, tree_reader, trainer_readers, text_readers (the formats), rows
(rows against the ledger), source (both against the graphs), folder (its files, then the whole check)."""

from hermes.trajectories.verify.folder import verify
from hermes.trajectories.verify.ledger import NotAnExport
from hermes.trajectories.verify.report import VerifyReport

__all__ = ["NotAnExport", "VerifyReport", "verify"]
