"""Verify: checks an export again from its files, and imports none of the code that writes exports.

Everything is written a second time on purpose: a fault in the exporter is not repeated here. Read it in this order:

    the files alone   report, ledger (lines and counts), exported_rows (what a row is), linear_reader, tree_reader, trainer_readers,
                      text_readers (the formats), rows (rows against the ledger)
    with the graphs   source_graphs, source_samples (what may be trained), token_layout, expected_text (which rows), expected and
                      expected_… (what the files hold), exported_values, same_value, source_root (all of a graph in
                      one hash), source (compares all of it)
    the whole check   proof (what is proven, in words), folder"""

from hermes.trajectories.verify.folder import verify
from hermes.trajectories.verify.ledger import NotAnExport
from hermes.trajectories.verify.report import VerifyReport

__all__ = ["NotAnExport", "VerifyReport", "verify"]
