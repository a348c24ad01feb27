"""Trajectories: training data made from graphs. Every sampled token is trained exactly once, in exactly the context it was sampled in,
or listed with the reason why not.

Read it in this order: errors, private_files, source (graphs from files), plain_documents (the usual ones, fast), tokenizer (text-grade),
calls (samples as tokens), rewards (from annotations, and advantages within a group), trie, rows (linear), tree (flattened), merkle, ledger,
plan (what a format sees), text_rows, sharegpt_turns and llamafactory_turns (rows as text), formats/, sample_table (what an export remembers
of every sample), duplicates, signature (who made an export), rare_collection (of garbage), export (the pipeline), parallel_export (the same
in many processes, on engines/). Import, from files to graphs: foreign_sharegpt and imports. With a model: sampling_model, compress/
(shorter trajectories) and batch/ (many prompts). verify/ checks exports and shares no code with the rest."""
