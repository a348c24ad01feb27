"""Stores in the memory of one process, to try the router without any server: nothing is durable, and processes share nothing.

A transaction here does nothing; code whose data must survive a crash needs PostgreSQL. Each store keeps the part of its port's contract
that a turn relies on, and no more."""

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
