"""Embedders: MiniLM on this machine, any embeddings API, and hashed letters if there is neither.

Call `local_embeddings`, or make an `ApiEmbeddings`. This package never downloads anything."""

from hermes.stores.embeddings.api import ApiEmbeddings
from hermes.stores.embeddings.local import HashedEmbeddings, local_embeddings

__all__ = ["ApiEmbeddings", "HashedEmbeddings", "local_embeddings"]
