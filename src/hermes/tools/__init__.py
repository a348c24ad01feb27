"""Tools that a model may use: a registry of typed functions, the executor, the gate, tools of the memory, MCP servers as a further source.

Knows nothing about stores: a tool gets its services as ports, which `hermes.app` hands over."""
