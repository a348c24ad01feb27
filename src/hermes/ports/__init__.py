"""What Hermes needs from the world, as Protocols that state meaning, atomicity, and whether they fail open or closed.

Knows no adapter: `hermes.app` chooses the adapter behind each port."""
