"""What benchmarks/channels.py measures with.

accounts      accounts at platforms: what Hermes is told of them, and the webhooks that their platforms send
senders       the platforms as senders, a process of its own: so many webhooks a second, or as many as are taken
taking        the platforms as takers of answers: says at once that it was sent, and counts
house         stores, web and worker as real processes, with those accounts
acknowledge   how long a webhook waits for its 200, and whether each of them is in the inbox once
outbox        how fast what was promised is brought out
memory        whether web and worker grow"""
