"""From a message to its answer: it enters (intake), its turn runs (turns, pipeline), its answer leaves (outbox). Knows no adapter.

intake             routes the events of a webhook, and stores a message once before it is acknowledged
turns              claims the turn of a message, runs it, and gives it up only with an apology
stop               ends a turn whose client no longer wants the answer
pipeline           the ten steps in their order, and the table of fallbacks
steps/             a file for each step
services           what the steps need
step_log           what an attempt did, with times, until the journal has it
effects            what costs money or shows outside is done once, however often a turn runs
compaction_policy  when a history is too long, and which summariser compacts it
sticky_tools       keeps a session's tools while the vendor's prompt cache may hold its prompt
speakers           labels the messages of a shared room
approvals          what a user approved, before any model: carried out once, exactly as offered; and how an offer is shown
decisions          what a message decides about an offer: a button's id or a code
approved_block     how a model is told what was approved, and what it brought
outbox             puts the answer into the outbox, and has it delivered after the commit
replies/           what Hermes says without a model
feedback           reactions of users become annotations
signup             how a person becomes an active user
proactive          messages that Hermes sends by itself
chores             work by the clock
journal_retention  empties what old turns asked and answered"""
