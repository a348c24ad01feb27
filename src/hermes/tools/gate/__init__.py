"""The gate: which of a few fixed sets of tools goes with a message."""
