"""Stores in the memory of one process, for trying the router without any server: nothing lasts, nothing is shared.

A transaction here is a frame around nothing; who must survive being killed needs PostgreSQL. Each keeps the contract of its port as far
as a turn can tell, and no further."""

from hermes.stores.memory.house import MemoryHouse, claim_for
from hermes.stores.memory.ledger import MemoryCredits
from hermes.stores.memory.people import MemoryPeople
from hermes.stores.memory.sessions import MemoryGraphs, MemoryHistories, MemorySessions
from hermes.stores.memory.turns import MemoryInbox, MemoryInteractions, MemoryJournal, MemoryOutbox, MemoryTransactions
from hermes.stores.memory.work import MemoryRota, MemoryWork

__all__ = [
    "MemoryCredits",
    "MemoryGraphs",
    "MemoryHistories",
    "MemoryHouse",
    "MemoryInbox",
    "MemoryInteractions",
    "MemoryJournal",
    "MemoryOutbox",
    "MemoryPeople",
    "MemoryRota",
    "MemorySessions",
    "MemoryTransactions",
    "MemoryWork",
    "claim_for",
]
