"""The best embedder that this machine has."""

from __future__ import annotations

from importlib import import_module

import structlog

from hermes.ports.embeddings import Embeddings
from hermes.stores.embeddings.hashing import HashedEmbeddings

log = structlog.get_logger()

MINILM = "hermes.stores.embeddings.minilm"
"""A plugin: what it stands on (the extra `recall`) need not be installed."""


def local_embeddings(plugin: str = MINILM) -> Embeddings:
    """MiniLM where the extra `recall` is installed, hashed letters otherwise. Loads no model yet."""
    try:
        found: Embeddings = import_module(plugin).MiniLmEmbeddings()
    except ImportError as error:
        log.info("embeddings_by_letters", missing=error.name)
        return HashedEmbeddings()
    return found
