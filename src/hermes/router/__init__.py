"""The plot: how a message comes in (intake), what happens to it (turns), how the answer leaves (courier). Knows ports, no adapter."""
