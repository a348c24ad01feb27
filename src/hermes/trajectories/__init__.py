"""Trajectories: training data out of graphs. Every sampled token is trained exactly once, in exactly the context it was sampled in,
or listed with the reason why not.

Read it in this order: errors, source (graphs from files), tokenize (text-grade), calls (samples as tokens), trie, rows (linear), tree
(flattened), ledger, plan (what a format sees), texts and turns (rows as text), formats/, copies, draft, export (the pipeline), parts and
shards (the same by many hands, on engines/); the other way round foreign and imports; model, compress/ (long
ones made shorter) and batch/ (many prompts); and apart from all of them verify/, which believes none of them."""
