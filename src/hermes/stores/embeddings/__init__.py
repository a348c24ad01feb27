"""Embedders: MiniLM on this machine, any embeddings API, and hashed letters where neither is there.

Choose with `local_embeddings`, or make an `ApiEmbeddings`. Nothing is ever downloaded here."""

from hermes.stores.embeddings.api import ApiEmbeddings
from hermes.stores.embeddings.hashing import HashedEmbeddings
from hermes.stores.embeddings.local import local_embeddings

__all__ = ["ApiEmbeddings", "HashedEmbeddings", "local_embeddings"]
