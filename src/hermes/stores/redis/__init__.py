"""Adapters of the ports on Redis or Valkey: what is there for speed, and can be rebuilt."""
