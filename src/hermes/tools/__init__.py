"""Tools that a model may use: a registry of typed functions, the executor, the gate, the concierge pack, MCP servers as a further source.

Knows nothing about stores: what a tool needs is a port, handed over by whoever puts Hermes together."""
