"""The how-tos for plain torch work as written, and a step on tree rows has the gradient of the same step on linear rows."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from hermes import CallRecord, MessageGraph
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import ExportSession
from tests.readers.pages import run_page

torch = pytest.importorskip("torch", reason="needs torch, which Hermes does not depend on: pip install torch")

pytestmark = pytest.mark.readers


class Model(torch.nn.Module):
    """One layer of attention, in double precision, so that a difference is a fault and no rounding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.token, self.position, self.head = torch.nn.Embedding(32, 16), torch.nn.Embedding(64, 16), torch.nn.Linear(16, 32)
        self.double()

    def forward(self, ids: Any, positions: Any = None, mask: Any = None) -> Any:
        if positions is None:
            return self(ids[0], torch.arange(ids.shape[1]), torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril())[None]
        x = (self.token(ids) + self.position(positions))[None]
        return self.head(torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)[0])


def chat() -> MessageGraph:
    """A question answered twice with equal tokens, an edit, an answer, and a follow-up; each with a reward."""
    graph = MessageGraph([{"role": "user", "content": "Capital of France?"}], seed="capitals")
    turn = graph.prepare()
    for _ in range(2):
        call = CallRecord(prompt_token_ids=[1, 2, 3], token_ids=[5, 6], logprobs=[-3.2, -3.7], tokenizer="numbers")
        graph.commit(turn, {"role": "assistant", "content": "Paris."}, call=call)
    graph[:] = [{"role": "user", "content": "Capital of Italy?"}]
    call = CallRecord(prompt_token_ids=[1, 2, 4], token_ids=[7, 8, 6], logprobs=[-3.1, -3.3, -3.6], tokenizer="numbers")
    graph.append({"role": "assistant", "content": "Rome."}, call=call)
    graph.append({"role": "user", "content": "Sure?"})
    call = CallRecord(prompt_token_ids=[1, 2, 4, 7, 8, 6, 9], token_ids=[10], logprobs=[-3.4], tokenizer="numbers")
    graph.append({"role": "assistant", "content": "Yes."}, call=call)
    for response in graph.responses():
        graph.annotate(response, reward=0.5 if response.message["content"] == "Paris." else 1.0)
    return graph


def step(page: str, kind: str, folder: Path) -> Any:
    """Export, and run the page's step from that folder; return the model after it."""
    export([ExportSession("capitals", chat())], folder / "out", ExportSettings(format=kind), FORMATS)
    model = Model()
    with contextlib.chdir(folder):
        run_page(page, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    return model


def test_a_step_on_tree_rows_has_the_gradient_of_the_same_step_on_rows(tmp_path: Path):
    rows, tree = step("train-on-rows", "parquet", tmp_path / "rows"), step("train-on-tree-rows", "tree", tmp_path / "tree")
    for one, other, before in zip(rows.parameters(), tree.parameters(), Model().parameters(), strict=True):
        assert one.grad.abs().sum() > 0
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(one, other)
        assert not torch.equal(one, before)
