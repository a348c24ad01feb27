"""Trajectories: training data out of graphs. Every sampled token is trained exactly once, in exactly the context it was sampled in,
or listed with the reason why not.

Read it in this order: errors, source (graphs from files), calls (samples as tokens), trie, rows (linear), tree (flattened), ledger,
plan (what a format sees), formats/, export (the pipeline); and apart from all of them verify, which believes none of them."""
