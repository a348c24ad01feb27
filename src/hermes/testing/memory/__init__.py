"""Stores in the memory of one process, for trying the router without any server: nothing lasts, nothing is shared.

A transaction here is a frame around nothing; who must survive being killed needs PostgreSQL. Each keeps the contract of its port as far
as a turn can tell, and no further."""

from hermes.testing.memory.credits import MemoryCredits
from hermes.testing.memory.job_queue import MemoryChores, MemoryJobQueue
from hermes.testing.memory.router_harness import RouterHarness, claim_for
from hermes.testing.memory.sessions import MemoryGraphs, MemoryHistories, MemorySessions
from hermes.testing.memory.turn_records import MemoryInbox, MemoryInteractions, MemoryJournal, MemoryOutbox, MemoryTransactions
from hermes.testing.memory.users import MemoryUsers

__all__ = [
    "MemoryChores",
    "MemoryCredits",
    "MemoryGraphs",
    "MemoryHistories",
    "MemoryInbox",
    "MemoryInteractions",
    "MemoryJobQueue",
    "MemoryJournal",
    "MemoryOutbox",
    "MemorySessions",
    "MemoryTransactions",
    "MemoryUsers",
    "RouterHarness",
    "claim_for",
]
