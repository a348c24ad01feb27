"""Adapters of the ports on PostgreSQL. SQL stands in `sql/`, one file per table group; the schema in `migrations/`."""
