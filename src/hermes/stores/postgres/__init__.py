"""Adapters of the ports on PostgreSQL. The SQL is in `sql/`, one file per table group; the schema is in `migrations/`."""
