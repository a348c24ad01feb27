"""Formats: one small module each, named after the program that reads it. `FORMATS` lists the formats of `hermes export --format`."""

from hermes.trajectories.formats.agentlightning import AgentLightningWriter
from hermes.trajectories.formats.atif import AtifWriter
from hermes.trajectories.formats.atropos import AtroposWriter
from hermes.trajectories.formats.llamafactory import LlamaFactoryWriter
from hermes.trajectories.formats.openai import OpenAiWriter
from hermes.trajectories.formats.parquet import ParquetWriter
from hermes.trajectories.formats.sharegpt import ShareGptWriter
from hermes.trajectories.formats.slime import SlimeWriter
from hermes.trajectories.formats.tree import TreeWriter
from hermes.trajectories.formats.trl import TrlWriter
from hermes.trajectories.formats.verifiers import VerifiersWriter
from hermes.trajectories.formats.verl import VerlWriter
from hermes.trajectories.plan import ExportFormat

FORMATS: dict[str, ExportFormat] = {
    "parquet": ParquetWriter,
    "tree": TreeWriter,
    "agentlightning": AgentLightningWriter,
    "atif": AtifWriter,
    "atropos": AtroposWriter,
    "llamafactory": LlamaFactoryWriter,
    "openai": OpenAiWriter,
    "sharegpt": ShareGptWriter,
    "slime": SlimeWriter,
    "trl": TrlWriter,
    "verifiers": VerifiersWriter,
    "verl": VerlWriter,
}
