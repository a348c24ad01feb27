"""From a message to its answer: it enters (intake), its turn runs (turns), its answer leaves (outbox_delivery). Knows ports, no adapter."""
