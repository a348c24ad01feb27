"""Adapters of the ports onto PostgreSQL and Redis, and the servers themselves where nobody else runs them."""
