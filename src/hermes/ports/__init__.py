"""What Hermes needs from the world, as Protocols that state meaning, atomicity, and whether they fail open or closed.

errors     what can go wrong behind a port
runtime    transactions, the time, alerts, jobs, chores
processes  the processes of Hermes: their rows, and what happened to them
users      users and their channels, API keys, agents
credits    what a turn may cost: credits, budgets, the money of a day
inbox      messages until they are answered, and the signal that an answer is there
sessions   sessions with their graphs and histories, client chats, the journal of turns
events     the stream of what happened, for a program that supervises Hermes
timeline   how a turn went: its attempts, and their steps in plot order
outbox     answers on their way out, breakers, what became of sent messages, dead letters
channels   platforms: channels, their accounts, the client that sends
memories   facts, earlier messages, dreams, embeddings, souls
backends   requests to models, their answers, and how they can fail
models     the call of a model as the rest of Hermes sees it, its cache, its record, the meters
spending   what was spent in each hour, by agent, platform, purpose and more
tools      pictures that users send, and tools that a model may call
figures    numbers about all of Hermes, for the operator
traces     what was done for one message, as spans for a tracing tool

Knows no adapter: `hermes.app` chooses the adapter behind each port."""
