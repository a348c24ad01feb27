"""The best embedder that this machine has."""

from __future__ import annotations

from functools import cache
from importlib import import_module

import structlog

from hermes.ports.memories import Embeddings
from hermes.stores.embeddings.hashing import HashedEmbeddings

log = structlog.get_logger()

MINILM = "hermes.stores.embeddings.minilm"
"""A plugin: the packages that it needs (the extra `recall`) may be missing."""


@cache
def local_embeddings(plugin: str = MINILM) -> Embeddings:
    """MiniLM if the extra `recall` is installed, hashed letters otherwise. Does not load the model yet. One object for each process: the
    model takes 200 MB and is safe to share."""
    try:
        found: Embeddings = import_module(plugin).MiniLmEmbeddings()
    except ImportError as error:
        log.info("embeddings_by_letters", missing=error.name)
        return HashedEmbeddings()
    return found
