"""Stores in the memory of one process, to try the router without any server: nothing is durable, and processes share nothing.

A transaction here does nothing; code whose data must survive a crash needs PostgreSQL. Each store has all methods of its port, and keeps
the part of its contract that a turn relies on."""

from hermes.testing.memory.alerts import MemoryAlertRecords
from hermes.testing.memory.events import MemoryOperationsEvents
from hermes.testing.memory.journal import MemoryJournal, MemoryTimelines
from hermes.testing.memory.messages import MemoryAnswerSignals, MemoryBreakers, MemoryInbox, MemoryOutbox
from hermes.testing.memory.models import MemoryModelBreakers
from hermes.testing.memory.processes import MemoryProcesses
from hermes.testing.memory.router_harness import FixedSouls, NoImages, RouterHarness, claim_for
from hermes.testing.memory.runtime import MemoryAlerts, MemoryChores, MemoryJobQueue, MemoryTransactions, MemoryTurnMeter
from hermes.testing.memory.sessions import MemoryGraphs, MemoryHistories, MemoryInteractions, MemorySessions
from hermes.testing.memory.users import MemoryCredits, MemoryUsers

__all__ = [
    "FixedSouls",
    "MemoryAlertRecords",
    "MemoryAlerts",
    "MemoryAnswerSignals",
    "MemoryBreakers",
    "MemoryChores",
    "MemoryCredits",
    "MemoryGraphs",
    "MemoryHistories",
    "MemoryInbox",
    "MemoryInteractions",
    "MemoryJobQueue",
    "MemoryJournal",
    "MemoryModelBreakers",
    "MemoryOperationsEvents",
    "MemoryOutbox",
    "MemoryProcesses",
    "MemorySessions",
    "MemoryTimelines",
    "MemoryTransactions",
    "MemoryTurnMeter",
    "MemoryUsers",
    "NoImages",
    "RouterHarness",
    "claim_for",
]
