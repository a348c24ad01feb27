"""What Hermes needs from the world, as Protocols that state meaning, atomicity, and whether they fail open or closed.

Knows no adapter: who stands behind a port is decided in app.py."""
