"""The concierge's tools with those of the memory, and the gate for them, as a Hermes with this pack has them."""

from hermes.app.packs import script_from
from hermes.backends.scripted.script import Script
from hermes.packs.concierge import PACK, TOOLS, Concierge, concierge_tools
from hermes.soul.fact_keys import KEYS, SYSTEM_KEYS
from hermes.tools.gate import Gate
from hermes.tools.memory import forget_memory, memory_tools, recall_memory, save_preference
from hermes.tools.registry import Tool

ALL_TOOLS = (*TOOLS, save_preference, recall_memory, forget_memory)
"""Before they are bound to services."""
MEMORY_TOOLS = frozenset({"save_preference", "recall_memory", "forget_memory"})


def all_tools(concierge: Concierge) -> list[Tool]:
    return [*concierge_tools(concierge), *memory_tools(concierge.notebook, [key for key in KEYS if key not in SYSTEM_KEYS])]


def concierge_gate() -> Gate:
    assert PACK.gate is not None
    return Gate([PACK.gate], frozenset(tool.name for tool in ALL_TOOLS), MEMORY_TOOLS)


def concierge_script() -> Script:
    return script_from([PACK])
