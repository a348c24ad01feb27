"""What operators see and do: one layer of readers and actions behind the pages, the commands and the API. Knows ports only, but for
one module: contexts are rendered by the router's own code, so that an operator sees exactly what was sent."""
