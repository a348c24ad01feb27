"""Answers from a script: no key, no network, no randomness."""
