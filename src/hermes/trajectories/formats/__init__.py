"""Formats: one small module each, named for its reader. `FORMATS` is what `hermes export --format` knows."""

from hermes.trajectories.formats.parquet import ParquetWriter
from hermes.trajectories.formats.tree import TreeWriter
from hermes.trajectories.plan import Format

FORMATS: dict[str, Format] = {
    "parquet": ParquetWriter,
    "tree": TreeWriter,
}
