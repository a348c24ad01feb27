"""The composition root: the one room that knows which adapter stands behind which port.

Imports nothing: a command that reads a few rows must not wait for the models, the tools and the web."""
