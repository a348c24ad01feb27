"""Trajectories: training data made from graphs. Every sampled token is trained exactly once, in exactly the context it was sampled in,
or listed with the reason why not.

Read it in this order: errors, source (graphs from files), tokenizer (text-grade), calls (samples as tokens), trie, rows (linear), tree
(flattened), ledger, plan (what a format sees), text_rows and sharegpt_turns (rows as text), formats/, duplicates, export (the
pipeline), parallel_export (the same in many processes, on engines/). Import, from files to graphs: foreign_sharegpt and
imports. With a model: sampling_model, compress/ (shorter trajectories) and batch/ (many prompts). verify/ checks exports and
shares no code with the rest."""
