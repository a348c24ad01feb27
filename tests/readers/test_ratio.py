"""The importance ratio of what we export is 1: logprobs recomputed on the rows are the ones recorded while sampling.

A tiny transformer samples token by token through real sessions: edits, compaction, forks, best of n, stripped reasoning, late answers,
subagents in subagents. Every step is a full forward over the context, without a cache, so that a recorded logprob means: this context
and no other. Everything is float32 on one CPU thread.

Bits depend on shapes (a matrix product of 40 rows may sum in another order than one of 300), so sampling and recomputing pad every
sequence to the same LENGTH at its end, where a causal mask hides it. Then equal contexts must give equal bits, and any difference is a
difference of context. A tree has another shape by its nature: there, equality is asked for to within rounding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from hermes import CallRecord, MessageGraph
from hermes.trajectories.calls import SamplePolicies, read_calls
from hermes.trajectories.export import export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.plan import ExportSettings
from hermes.trajectories.source import ExportSession, read_sessions
from hermes.trajectories.tree import ancestor_mask, tree_row

torch = pytest.importorskip("torch", reason="needs torch, which Hermes does not depend on: pip install torch")

pytestmark = pytest.mark.readers

LENGTH = 256
"""Every sequence is padded to so many tokens."""
WIDTH, HEADS, LAYERS = 64, 4, 2
ALPHABET = "\nabcdefghijklmnopqrstuvwxyz .,?!0123456789¶§¤«»"
"""One token for each character. The last five: end of message, end of reasoning, and the three speakers' marks."""
END, THOUGHT, SYSTEM, USER, ASSISTANT = (ALPHABET.index(mark) for mark in "¶§¤«»")
SPEAKERS = {"system": SYSTEM, "user": USER, "tool": USER, "assistant": ASSISTANT}
LONGEST_ANSWER = 28


class Policy:
    """A causal transformer in few lines: rotary positions, eager attention under the mask it is given."""

    def __init__(self, seed: int) -> None:
        source = torch.Generator().manual_seed(seed)

        def weights(*shape: int) -> Any:
            return torch.randn(*shape, generator=source) / math.sqrt(shape[0])

        self.embedding = torch.randn(len(ALPHABET), WIDTH, generator=source)
        self.layers = [
            {
                "qkv": weights(WIDTH, 3 * WIDTH),
                "out": weights(WIDTH, WIDTH),
                "up": weights(WIDTH, 4 * WIDTH),
                "down": weights(4 * WIDTH, WIDTH),
            }
            for _ in range(LAYERS)
        ]
        # Flat: logprobs between -4 and -8 are 5e-7 apart in float32, so that a millionth is two such steps and no third.
        self.head = weights(WIDTH, len(ALPHABET)) / 4
        self.bias = torch.zeros(len(ALPHABET))
        self.bias[[END, THOUGHT]] = 1.5  # so that answers end, and most of them have reasoning

    def logprobs(self, tokens: Any, positions: Any, mask: Any) -> Any:
        """Return log p(next token) at every position; `mask[q, k]` says whether q sees k."""
        x = self.embedding[tokens]
        hidden = torch.where(mask, 0.0, -torch.inf)
        for layer in self.layers:
            q, k, v = (part.view(-1, HEADS, WIDTH // HEADS).transpose(0, 1) for part in (_norm(x) @ layer["qkv"]).chunk(3, -1))
            scores = _rotated(q, positions) @ _rotated(k, positions).transpose(1, 2) / math.sqrt(WIDTH // HEADS)
            seen = torch.softmax(scores + hidden, -1) @ v
            x = x + seen.transpose(0, 1).reshape(-1, WIDTH) @ layer["out"]
            x = x + torch.nn.functional.gelu(_norm(x) @ layer["up"]) @ layer["down"]
        return torch.log_softmax(_norm(x) @ self.head + self.bias, -1)

    def sequence_logprobs(self, tokens: Sequence[int], length: int = LENGTH) -> Any:
        """Return log p(next token) at every position of one sequence, padded at its end to `length`."""
        assert len(tokens) <= length, "raise LENGTH"
        padded = torch.zeros(length, dtype=torch.long)
        padded[: len(tokens)] = torch.tensor(tokens)
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        return self.logprobs(padded, torch.arange(length), causal)[: len(tokens)]

    def sample(self, prompt: list[int], seed: int) -> tuple[list[int], list[float]]:
        """Draw an answer token by token; return it with the logprob of each token in the context it was drawn in."""
        source = torch.Generator().manual_seed(seed)
        answer: list[int] = []
        scores: list[float] = []
        while len(answer) < LONGEST_ANSWER and (not answer or answer[-1] != END):
            known = self.sequence_logprobs(prompt + answer)[-1]
            token = int(torch.multinomial(known.exp(), 1, generator=source))
            answer.append(token)
            scores.append(float(known[token]))
        return answer, scores


def _norm(x: Any) -> Any:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def _rotated(x: Any, positions: Any) -> Any:
    half = x.shape[-1] // 2
    angles = positions[:, None] * (100.0 ** (-torch.arange(half) / half))
    one, other = x[..., :half], x[..., half:]
    return torch.cat((one * angles.cos() - other * angles.sin(), other * angles.cos() + one * angles.sin()), -1)


def render(messages: Sequence[Any]) -> list[int]:
    """The chat template: history is written anew for every call, as servers do, stripped of outer spaces, so that tokens may drift."""
    tokens: list[int] = []
    for message in messages:
        thought = message.get("reasoning_content")
        text = ([*encode(thought), THOUGHT] if thought is not None else []) + encode(message["content"].strip())
        tokens += [SPEAKERS[message["role"]], *text, END]
    return [*tokens, ASSISTANT]


def encode(text: str) -> list[int]:
    return [ALPHABET.index(character) for character in text]


def parse(answer: Sequence[int]) -> dict[str, Any]:
    """What a server makes of sampled tokens: reasoning up to its end mark, then the text."""
    text = "".join(ALPHABET[token] for token in answer).removesuffix(ALPHABET[END])
    thought, mark, rest = text.partition(ALPHABET[THOUGHT])
    return {"role": "assistant", "reasoning_content": thought, "content": rest} if mark else {"role": "assistant", "content": text}


@dataclass(slots=True)
class Agent:
    """Samples into chats, with another seed each time unless told."""

    policy: Policy
    drawn: int = 0

    def answer(self, chat: MessageGraph, seed: int | None = None, turn: Any = None, **overlay: Any) -> None:
        turn = turn or chat.prepare(**overlay)
        prompt = render(turn.messages)
        self.drawn += 1
        answer, scores = self.policy.sample(prompt, self.drawn if seed is None else seed)
        call = CallRecord(
            prompt_token_ids=prompt, token_ids=answer, logprobs=scores, sample_id=f"draw-{self.drawn}", tokenizer="characters"
        )
        chat.commit(turn, parse(answer), call=call)

    def talk(self, chat: MessageGraph, *texts: str, **overlay: Any) -> MessageGraph:
        for text in texts:
            chat.append({"role": "user", "content": text})
            self.answer(chat, **overlay)
        return chat


def opened(name: str, rules: str = "be brief.") -> MessageGraph:
    return MessageGraph([{"role": "system", "content": rules}], seed=name)


def edited(agent: Agent) -> Iterator[MessageGraph]:
    chat = agent.talk(opened("edited"), "one?", "two?", "three?", keep_reasoning="all")
    chat[1]["content"] = "uno?"
    agent.talk(chat, "four?", keep_reasoning="all")
    chat[0]["content"] = "be kind."
    del chat[3:5]
    agent.talk(chat, "five?")
    yield chat


def compacted(agent: Agent) -> Iterator[MessageGraph]:
    chat = agent.talk(opened("compacted"), "tell a.", "tell b.", "tell c.", keep_reasoning="all")
    rejected, summariser = chat.fork(), chat.fork()
    for attempt in (rejected, summariser):
        agent.talk(attempt, "sum up.", keep_reasoning="all")
    note = {"role": "user", "content": rejected[-1]["content"], "metadata": {"chat": rejected}}
    chat.compact(slice(1, None), note, kind="compaction_attempt")
    agent.talk(chat, "and?")
    chat.compact(slice(1, None), {"role": "user", "content": summariser[-1]["content"], "metadata": {"chat": summariser}})
    agent.talk(chat, "go on.", "more.")
    yield chat


def forked(agent: Agent) -> Iterator[MessageGraph]:
    chat = agent.talk(opened("forked"), "left?", "right?", keep_reasoning="current_turn")
    branch = agent.talk(chat.fork(3), "up?", "down?")
    yield agent.talk(chat, "straight?")
    yield branch


def best_of(agent: Agent) -> Iterator[MessageGraph]:
    chat = opened("best of")
    for text in ("pick one.", "again."):
        chat.append({"role": "user", "content": text})
        turn = chat.prepare(keep_reasoning="all")
        for _ in range(4):
            agent.answer(chat, turn=turn)
    agent.answer(chat, turn=turn, seed=7)
    agent.answer(chat, turn=turn, seed=7)  # a twin: the same tokens drawn twice are two samples
    yield chat


def stripped(agent: Agent) -> Iterator[MessageGraph]:
    yield agent.talk(opened("stripped"), *(f"step {number}." for number in range(8)), keep_reasoning="none")


def delegated(agent: Agent) -> Iterator[MessageGraph]:
    inner = agent.talk(opened("inner", "dig."), "where?", "how deep?")
    outer = agent.talk(opened("outer", "help."), "find it.")
    outer.append({"role": "tool", "tool_call_id": "1", "content": inner[-1]["content"], "metadata": {"chat": inner}})
    agent.answer(outer)
    chat = agent.talk(opened("delegated"), "do it.")
    for number in range(2):
        helper = outer if number == 0 else agent.talk(opened("other", "help."), "also this.")
        chat.append({"role": "tool", "tool_call_id": str(number), "content": helper[-1]["content"], "metadata": {"chat": helper}})
    agent.answer(chat, ephemeral="hurry.")
    yield agent.talk(chat, "thanks.")


def late(agent: Agent) -> Iterator[MessageGraph]:
    chat = agent.talk(opened("late"), "first.")
    chat.append({"role": "user", "content": "second."})
    turn = chat.prepare()
    chat[-1]["content"] = "second, please."
    agent.answer(chat, turn=turn)  # comes too late: kept on a branch of its own
    agent.answer(chat)
    yield chat


SESSIONS = (edited, compacted, forked, best_of, stripped, delegated, late)


@pytest.fixture(scope="module")
def policy() -> Iterator[Policy]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        yield Policy(seed=0)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def graphs(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sessions as a file, as a server would leave them behind."""
    agent = Agent(policy)
    file = tmp_path_factory.mktemp("graphs") / "sessions.jsonl"
    file.write_text("".join(chat.to_json() + "\n" for play in SESSIONS for chat in play(agent)), "utf-8")
    return file


def exported(graphs: Path, kind: str, out: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    manifest = export(read_sessions([graphs]), out / kind, ExportSettings(format=kind), FORMATS).manifest
    rows = pq.read_table(out / kind / ("rows.parquet" if kind == "parquet" else "tree.parquet")).to_pylist()
    return rows, dict(manifest)


def bits(values: Any) -> Any:
    return torch.as_tensor(values, dtype=torch.float32).view(torch.int32)


def test_the_ratio_on_linear_rows_is_exactly_one_bit_for_bit(policy: Policy, graphs: Path, tmp_path: Path):
    rows, manifest = exported(graphs, "parquet", tmp_path)
    trained = 0
    for row in rows:
        places = torch.tensor(row["loss_mask"]).nonzero().squeeze(1)
        ids = torch.tensor(row["input_ids"])
        recomputed = policy.sequence_logprobs(row["input_ids"])[places - 1, ids[places]]
        recorded = torch.tensor(row["logprobs"])[places]
        assert torch.equal(bits(recomputed), bits(recorded)), row["session"]
        assert torch.equal((recomputed - recorded).exp(), torch.ones(len(places)))
        trained += int(sum(row["weight"]))
    assert trained == manifest["tokens"]["trained"] == manifest["tokens"]["sampled"] > 500
    assert manifest["duplicates"] > 0  # the forks' shared samples count once
    assert max(max(row["weight"]) for row in rows) == 2  # the twins
    assert sum(row["shared_prefix"] > 0 for row in rows) > 20  # they did fork


def test_the_ratio_on_unpadded_linear_rows_is_one_to_within_rounding(policy: Policy, graphs: Path, tmp_path: Path):
    rows, _ = exported(graphs, "parquet", tmp_path)
    for row in rows:
        places = torch.tensor(row["loss_mask"]).nonzero().squeeze(1)
        ids = torch.tensor(row["input_ids"])
        recomputed = policy.sequence_logprobs(row["input_ids"], len(row["input_ids"]))[places - 1, ids[places]]
        assert ((recomputed - torch.tensor(row["logprobs"])[places]).exp() - 1).abs().max() <= 1e-6


def test_the_ratio_on_tree_rows_is_one_to_within_a_millionth(policy: Policy, graphs: Path, tmp_path: Path):
    rows, manifest = exported(graphs, "tree", tmp_path)
    trained, shared = 0, 0
    for row in rows:
        ids, ends, parents, index = (torch.tensor(row[name]) for name in ("input_ids", "subtree_end", "parents", "token_index"))
        at = torch.arange(len(ids))
        mask = (at[:, None] >= at) & (at[:, None] < ends)
        known = policy.logprobs(ids, torch.tensor(row["position_ids"]), mask)
        recomputed = known[parents[index], ids[index]]  # the logit that predicts a token is its parent's
        assert ((recomputed - torch.tensor(row["logprob"])).exp() - 1).abs().max() <= 1e-6, row["session"]
        trained += len(index)
        shared += int((parents != at - 1).sum())
    assert trained == manifest["tokens"]["trained"] == manifest["tokens"]["sampled"] > 500
    assert shared > 20  # where the token before is not the parent


def test_a_trained_token_in_another_context_is_noticed(policy: Policy, graphs: Path, tmp_path: Path):
    rows, _ = exported(graphs, "parquet", tmp_path)
    row = max(rows, key=lambda row: len(row["input_ids"]))
    ids = [(row["input_ids"][0] + 1) % len(ALPHABET), *row["input_ids"][1:]]
    places = torch.tensor(row["loss_mask"]).nonzero().squeeze(1)
    recomputed = policy.sequence_logprobs(ids)[places - 1, torch.tensor(ids)[places]]
    assert ((recomputed - torch.tensor(row["logprobs"])[places]).exp() - 1).abs().max() > 1e-4


def test_the_ancestor_mask_shows_exactly_the_parents_of_a_token(graphs: Path):
    for session in read_sessions([graphs]):
        assert isinstance(session, ExportSession)
        tree = tree_row(read_calls(session, SamplePolicies()))
        assert tree is not None
        by_parents = np.zeros((len(tree.tokens), len(tree.tokens)), np.bool_)
        for query, parent in enumerate(tree.parents):
            if parent >= 0:
                by_parents[query] = by_parents[parent]
            by_parents[query, query] = True
        assert np.array_equal(ancestor_mask(tree.subtree_end), by_parents)
        assert np.array_equal(by_parents.sum(1) - 1, tree.position_ids)
