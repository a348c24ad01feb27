"""What Hermes needs from the world, as Protocols that state meaning, atomicity, and whether they fail open or closed.

errors     what can go wrong behind a port
runtime    transactions, the time, alerts, jobs, chores
processes  the processes of Hermes: their rows, and what happened to them
users      users and their channels, API keys, agents
key_limits what an API key may spend and do
credits    what a turn may cost: credits, budgets, the money of a day
inbox      messages until they are answered, and the signal that an answer is there
session    one session of a conversation
sessions   sessions with their graphs and histories, client chats, the journal of turns
turn_end   the end of an ordinary turn, written at once
events     the stream of what happened, for a program that supervises Hermes
conversations  sessions and their message graphs, as operators see them
timeline   how a turn went: its attempts, and their steps in plot order
turn_list  turns as a list, newest first, by filters and pages
turn_record  everything of one turn, for operators: without a key, and with one
outbox     answers on their way out, breakers, what became of sent messages, dead letters
channels   platforms: channels, their accounts, the client that sends
memories   facts, earlier messages, dreams, embeddings, souls
backends   requests to models, their answers, and how they can fail
models     the call of a model as the rest of Hermes sees it, its cache, its record, the meters
key_use    what API keys use, and the errors of a key that has reached a limit
spending   what was spent in each hour, by agent, platform, purpose and more
costs      the same by one dimension, as an operator asks for it, and by user and tool
tools      pictures that users send, and tools that a model may call
operators  who runs Hermes: roles, links, sessions and tokens, and the audit log
live       how Hermes is now: figures of the last minutes, and news of turns between processes
search     things that an operator has a piece of: an id, a sender, a code
people     the people who write, as operators see them: lists, ledgers, what they cost
queues     what waits: messages, answers on their way, what was given up, jobs
replays    recorded requests asked again: dry runs, batches, and what they may use
figures    numbers about all of Hermes, for the operator
traces     what was done for one message, as spans for a tracing tool

Knows no adapter: `hermes.app` chooses the adapter behind each port."""
