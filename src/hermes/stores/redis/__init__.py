"""Adapters of the ports on Redis or Valkey: data that is kept there for speed and can be rebuilt."""
