"""From a message to its answer: it enters (intake), its turn runs (turns, pipeline), its answer leaves (outbox). Knows no adapter."""
