"""The gate: decides which of a few fixed sets of tools goes with a message."""
