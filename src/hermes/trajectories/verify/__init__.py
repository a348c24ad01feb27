"""Verify: the sceptic's tool. Re-checks an export from its files, and imports nothing of what made them.

Everything is written a second time on purpose; a fault in the exporter is not a fault in here. Read it in this order: report,
ledger (lines and counts), files, units (what a row is), linear, tree, trainers, texts (readers of the formats), check (rows against the
ledger), source (both against the graphs), folder (the whole)."""

from hermes.trajectories.verify.folder import verify
from hermes.trajectories.verify.ledger import NotAnExport
from hermes.trajectories.verify.report import VerifyReport

__all__ = ["NotAnExport", "VerifyReport", "verify"]
