"""Messages through the whole path: accept, job, ten steps, graph, credits, journal, outbox; beside bare jobs of the same queue."""
