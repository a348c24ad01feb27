"""Adapters of the ports onto PostgreSQL and Redis, and the embedded servers for a machine without servers of its own."""
