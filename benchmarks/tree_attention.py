"""One training step on tree rows against the same step on linear rows: gradients, time and memory. Wants a GPU and torch.

Agent sessions whose reasoning is stripped from history, so that every turn forks: in linear rows each turn repeats all before it, in a
tree row each unique token is computed once, under the mask `(q >= k) & (q < subtree_end[k])` (FlexAttention). The model has random
weights; the loss is on trained tokens only and the same on both sides. Needs torch and numpy, nothing else; without a GPU it runs in a
tiny size with a dense mask, as a smoke test. Exits with 1 if gradients differ by more than rounding."""

from __future__ import annotations

import argparse
import importlib
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hermes.graph import CallRecord, MessageGraph
from hermes.trajectories.calls import SampledCall, SamplePolicies, read_calls
from hermes.trajectories.rows import Row, linear_rows
from hermes.trajectories.source import ExportSession
from hermes.trajectories.tree import TreeRow, tree_row

try:
    import torch
    from torch.nn import functional
    from torch.nn.attention import flex_attention
except ImportError:
    torch = None

BLOCK = 128
"""FlexAttention's mask is made of blocks of so many tokens; sequences are padded to whole blocks."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the model, the sessions and a batch are."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    system: int
    reasoning: int
    answer: int
    tool: int
    batch_tokens: int
    """Linear rows are packed into batches of about so many tokens."""


GPU = Size(12, 1024, 16, 32_000, system=1000, reasoning=300, answer=100, tool=400, batch_tokens=65_536)
CPU = Size(2, 64, 4, 512, system=30, reasoning=10, answer=4, tool=12, batch_tokens=1024)


# Sessions --------------------------------------------------------------------------------------------------------


def session(turns: int, size: Size) -> list[SampledCall]:
    """An agent that thinks, answers and calls a tool in every turn; later turns are not shown the reasoning of earlier ones."""
    source = random.Random(turns)

    def some(count: int) -> list[int]:
        return [source.randrange(size.vocabulary) for _ in range(count)]

    chat = MessageGraph([{"role": "system", "content": "Use tools."}, {"role": "user", "content": "Find out."}], seed=f"{turns} turns")
    context = some(size.system)
    for number in range(turns):
        reasoning, answer, result = some(size.reasoning), some(size.answer), some(size.tool)
        turn = chat.prepare(keep_reasoning="none")
        call = CallRecord(
            prompt_token_ids=context,
            token_ids=reasoning + answer,
            logprobs=[-1.0] * len(reasoning + answer),
            sample_id=f"turn {number}",
            tokenizer="random",
        )
        chat.commit(turn, {"role": "assistant", "content": f"answer {number}", "reasoning_content": f"thought {number}"}, call=call)
        chat.append({"role": "tool", "tool_call_id": str(number), "content": f"result {number}"})
        context = context + answer + result
    return read_calls(ExportSession(f"{turns} turns", chat), SamplePolicies())


# Batches ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batch:
    """A forest of tokens: trees or, as the simplest of trees, rows."""

    tokens: Any
    positions: Any
    subtree_end: Any
    sources: Any
    """Where the logits are taken that predict the targets: at the token before each target."""
    targets: Any
    attention: Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it runs, and how attention is computed there."""

    device: str
    flex: Callable[..., Any] | None
    """FlexAttention compiled, or None for a dense mask."""

    def masked(self, subtree_end: Any) -> Callable[[Any, Any, Any], Any]:
        """Attention under the mask of a forest."""
        if self.flex is None:
            at = torch.arange(len(subtree_end), device=self.device)
            dense = (at[:, None] >= at) & (at[:, None] < subtree_end)
            return lambda q, k, v: functional.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=dense)[0]

        def sees(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
            return (query >= key) & (query < subtree_end[key])

        length = len(subtree_end)
        blocks = flex_attention.create_block_mask(sees, None, None, length, length, device=self.device, BLOCK_SIZE=BLOCK)
        flex = self.flex
        return lambda q, k, v: flex(q[None], k[None], v[None], block_mask=blocks)[0]

    def causal(self, q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]

    def batch(self, arrays: Sequence[Any], *, is_one_row: bool = False) -> Batch:
        on_device = [torch.from_numpy(np.ascontiguousarray(values, np.int64)).to(self.device) for values in arrays]
        attention = self.causal if is_one_row else self.masked(on_device[2])
        return Batch(*on_device, attention)

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def tree_batches(tree: TreeRow, machine: Machine) -> list[Batch]:
    """The tree row as it is exported; the logit that predicts a token is its parent's."""
    index = np.concatenate([np.arange(start, end) for placed in tree.placed for start, end in placed.segments])
    arrays = (tree.tokens, tree.position_ids, tree.subtree_end, tree.parents[index], tree.tokens[index])
    return [machine.batch(_padded(*arrays, length=_blocks(len(tree.tokens))))]


def row_batches(rows: Sequence[Row], machine: Machine) -> list[Batch]:
    """Every row on its own, with plain causal attention."""
    return [machine.batch(_forest([row]), is_one_row=True) for row in rows]


def packed_batches(rows: Sequence[Row], machine: Machine, batch_tokens: int) -> list[Batch]:
    """Several rows in a batch, evenly filled, all batches of one length; each row sees itself only."""
    count = math.ceil(sum(row.length for row in rows) / batch_tokens)
    packs: list[list[Row]] = [[] for _ in range(count)]
    for row in sorted(rows, key=lambda row: -row.length):
        min(packs, key=lambda pack: sum(other.length for other in pack)).append(row)
    length = _blocks(max(sum(row.length for row in pack) for pack in packs))
    return [machine.batch(_padded(*_forest(pack), length=length)) for pack in packs]


def _forest(rows: Sequence[Row]) -> tuple[Any, ...]:
    starts = np.cumsum([0, *(row.length for row in rows)])
    tokens = np.concatenate([np.frombuffer(row.tokens, np.int32) for row in rows])
    positions = np.concatenate([np.arange(row.length) for row in rows])
    ends = np.repeat(starts[1:], [row.length for row in rows])
    pairs = zip(starts, rows, strict=False)
    index = np.concatenate([start + np.arange(call.start, call.end) for start, row in pairs for call in row.calls])
    return tokens, positions, ends, index - 1, tokens[index]


def _padded(tokens: Any, positions: Any, ends: Any, sources: Any, targets: Any, *, length: int) -> tuple[Any, ...]:
    """Add tokens that see nothing but themselves and that nobody sees."""
    places = np.arange(len(tokens), length)
    nothing = np.zeros(len(places), np.int64)
    return np.append(tokens, nothing), np.append(positions, nothing), np.append(ends, places + 1), sources, targets


def _blocks(length: int) -> int:
    return math.ceil(length / BLOCK) * BLOCK


# The model -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Model:
    """A transformer with random weights: rotary positions, RMS norm, GELU. Weights in float32, arithmetic in `dtype`."""

    size: Size
    weights: dict[str, Any]

    def loss(self, batch: Batch, dtype: Any) -> Any:
        """The summed negative logprob of the batch's targets."""
        width, heads = self.size.width, self.size.heads
        rotation = _rotation(batch.positions, width // heads, dtype)
        x = functional.embedding(batch.tokens, self.weights["embedding"]).to(dtype)
        for layer in range(self.size.layers):
            qkv = functional.linear(functional.rms_norm(x, (width,)), self._weight(f"{layer}.qkv", dtype))
            q, k, v = qkv.view(-1, 3, heads, width // heads).permute(1, 2, 0, 3)
            seen = batch.attention(_rotated(q, rotation), _rotated(k, rotation), v.contiguous())
            x = x + functional.linear(seen.transpose(0, 1).reshape(-1, width), self._weight(f"{layer}.out", dtype))
            up = functional.gelu(functional.linear(functional.rms_norm(x, (width,)), self._weight(f"{layer}.up", dtype)))
            x = x + functional.linear(up, self._weight(f"{layer}.down", dtype))
        logits = functional.linear(functional.rms_norm(x[batch.sources], (width,)), self._weight("head", dtype))
        return functional.cross_entropy(logits.float(), batch.targets, reduction="sum")

    def _weight(self, name: str, dtype: Any) -> Any:
        return self.weights[name].to(dtype)

    def step(self, batches: Sequence[Batch], dtype: Any) -> float:
        """One forward and backward over all batches; gradients add up in float32. Returns the mean loss of a trained token."""
        for weight in self.weights.values():
            weight.grad = None
        trained = sum(len(batch.targets) for batch in batches)
        total = torch.zeros((), device=batches[0].tokens.device)
        for batch in batches:
            loss = self.loss(batch, dtype) / trained
            loss.backward()
            total += loss.detach()
        return float(total)


def random_model(size: Size, device: str) -> Model:
    source = torch.Generator(device).manual_seed(0)
    wide = size.width
    shapes = {"embedding": (size.vocabulary, wide), "head": (size.vocabulary, wide)}
    for layer in range(size.layers):
        shapes |= {
            f"{layer}.qkv": (3 * wide, wide),
            f"{layer}.out": (wide, wide),
            f"{layer}.up": (4 * wide, wide),
            f"{layer}.down": (wide, 4 * wide),
        }
    weights = {name: torch.randn(shape, generator=source, device=device) / math.sqrt(shape[1]) for name, shape in shapes.items()}
    return Model(size, {name: weight.requires_grad_() for name, weight in weights.items()})


def _rotation(positions: Any, head_width: int, dtype: Any) -> tuple[Any, Any]:
    rates = 10_000.0 ** (-torch.arange(0, head_width, 2, device=positions.device) / head_width)
    angles = positions[:, None] * rates
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _rotated(x: Any, rotation: tuple[Any, Any]) -> Any:
    cos, sin = rotation
    one, other = x.chunk(2, -1)
    return torch.cat((one * cos - other * sin, other * cos + one * sin), -1)


# Measurements ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """One way to run the step."""

    name: str
    tokens: int
    """Forwarded, padding included."""
    seconds: float
    spread: float
    """From the fastest to the slowest run, in seconds."""
    peak_gib: float
    loss: float


def measure(name: str, model: Model, batches: Sequence[Batch], machine: Machine, dtype: Any, *, repeats: int) -> Measured:
    """Run warm, then take the median."""
    for _ in range(2):
        loss = model.step(batches, dtype)
    peak = 0.0
    if machine.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    runs = []
    for _ in range(repeats):
        machine.synchronize()
        start = time.perf_counter()
        loss = model.step(batches, dtype)
        machine.synchronize()
        runs.append(time.perf_counter() - start)
    if machine.device == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**30
    tokens = sum(len(batch.tokens) for batch in batches)
    return Measured(name, tokens, statistics.median(runs), max(runs) - min(runs), peak, loss)


def gradients(model: Model, batches: Sequence[Batch], dtype: Any) -> dict[str, Any]:
    model.step(batches, dtype)
    return {name: weight.grad.clone() for name, weight in model.weights.items()}


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two gradients lie apart."""

    largest: float
    """The largest difference of one number, relative to the largest number of its matrix."""
    norm: float
    """|a - b| / |a| over all weights."""
    one_minus_cosine: float


def difference(one: dict[str, Any], other: dict[str, Any]) -> Difference:
    largest = max(float((a - other[name]).abs().max() / a.abs().max()) for name, a in one.items())
    pairs = [(a.double(), other[name].double()) for name, a in one.items()]
    apart, norm_a, norm_b, dot = (
        sum(float(part(a, b)) for a, b in pairs)
        for part in (
            lambda a, b: (a - b).pow(2).sum(),
            lambda a, _: a.pow(2).sum(),
            lambda _, b: b.pow(2).sum(),
            lambda a, b: (a * b).sum(),
        )
    )
    return Difference(largest, math.sqrt(apart / norm_a), 1 - dot / math.sqrt(norm_a * norm_b))


def compare_gradients(model: Model, turns: int, machine: Machine) -> bool:
    """Print how far the tree's gradients are from those of linear rows, in float32 and in bfloat16; say whether it is rounding."""
    calls = session(turns, model.size)
    rows, tree = row_batches(linear_rows(calls), machine), tree_batches(_tree(calls), machine)
    exact = gradients(model, rows, torch.float32)
    tree_exact = gradients(model, tree, torch.float32)
    found = {"float32: tree against rows": difference(exact, tree_exact)}
    del tree_exact
    rough, tree_rough = gradients(model, rows, torch.bfloat16), gradients(model, tree, torch.bfloat16)
    found["bfloat16: tree against rows"] = difference(rough, tree_rough)
    found["bfloat16 rows against float32 rows (its own noise)"] = difference(exact, rough)
    found["bfloat16 tree against float32 rows"] = difference(exact, tree_rough)
    table(
        f"gradients of all weights, {turns} turns",
        ["", "largest, relative", "norm, relative", "1 - cosine"],
        [[name, f"{d.largest:.1e}", f"{d.norm:.1e}", f"{d.one_minus_cosine:.1e}"] for name, d in found.items()],
    )
    noise = found["bfloat16 rows against float32 rows (its own noise)"].norm
    return found["float32: tree against rows"].norm < 1e-5 and found["bfloat16 tree against float32 rows"].norm < 2 * noise


def compare_speed(model: Model, turns: int, machine: Machine, dtype: Any, repeats: int) -> bool:
    """Print time and memory of one step on linear rows, one by one and packed, and on the tree; say whether the losses agree."""
    calls = session(turns, model.size)
    rows, tree = linear_rows(calls), _tree(calls)
    linear, unique = sum(row.length for row in rows), len(tree.tokens)
    ways: dict[str, Callable[[], list[Batch]]] = {
        "linear rows, one by one (causal)": lambda: row_batches(rows, machine),
        "linear rows, packed": lambda: packed_batches(rows, machine, model.size.batch_tokens),
        "tree row": lambda: tree_batches(tree, machine),
    }
    measured = []
    for name, make in ways.items():
        machine.synchronize()
        start = time.perf_counter()
        batches = make()
        machine.synchronize()
        made = time.perf_counter() - start
        measured.append((measure(name, model, batches, machine, dtype, repeats=repeats), made))
        del batches
    table(
        f"one step, {turns} turns, {dtype}: {len(rows)} rows, {linear:,} tokens; tree {unique:,} tokens",
        ["", "forwarded", "time", "spread", "batch and mask made in", "peak memory", "loss"],
        [
            [
                m.name,
                f"{m.tokens:,}",
                f"{m.seconds * 1e3:,.1f} ms",
                f"{m.spread * 1e3:,.1f} ms",
                f"{made * 1e3:,.1f} ms",
                f"{m.peak_gib:,.1f} GiB",
                f"{m.loss:.6f}",
            ]
            for m, made in measured
        ],
    )
    (one_by_one, _), (packed, _), (whole, _) = measured
    best = min(one_by_one.seconds, packed.seconds)
    print(
        f"  tree: {linear / unique:.2f} times fewer tokens (the bound), {best / whole.seconds:.2f} times faster than the faster linear way"
    )
    return max(abs(m.loss - whole.loss) for m, _ in measured) < (1e-4 if dtype == torch.float32 else 1e-2)


def _tree(calls: Sequence[SampledCall]) -> TreeRow:
    tree = tree_row(calls)
    assert tree is not None
    return tree


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    print(f"\n{title}")
    for row in (head, ["-" * width for width in widths], *rows):
        cells = [cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(zip(row, widths, strict=True))]
        print("  " + "  ".join(cells), flush=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), help="of the timed steps (default: bfloat16 on a GPU, else float32)")
    parser.add_argument("--turns", type=int, nargs="+", default=[20, 40], help="of the sessions")
    parser.add_argument("--repeats", type=int, default=5, help="timed steps, after two to warm up")
    asked = parser.parse_args(arguments)
    if torch is None:
        print("torch is not installed: nothing measured")
        return 0
    start = time.perf_counter()
    is_gpu = torch.cuda.is_available()
    if is_gpu:
        # Four lengths in two types, each compiled once; beyond its limit dynamo would silently run uncompiled.
        importlib.import_module("torch._dynamo").config.cache_size_limit = 64
        machine = Machine("cuda", torch.compile(flex_attention.flex_attention, dynamic=False))
    else:
        machine = Machine("cpu", None)  # FlexAttention has no backward there
    torch.set_float32_matmul_precision("highest")  # float32 means float32: no TF32
    size = GPU if is_gpu else CPU
    dtype = getattr(torch, asked.dtype or ("bfloat16" if is_gpu else "float32"))
    name = torch.cuda.get_device_name() if is_gpu else "CPU, tiny size: a smoke test, times mean nothing"
    print(f"torch {torch.__version__}, {name}; {size.layers} layers x {size.width} wide")
    model = random_model(size, machine.device)
    is_equal = compare_gradients(model, asked.turns[0], machine)
    agree = [compare_speed(model, turns, machine, dtype, asked.repeats) for turns in asked.turns]
    print(f"\n  {'kept  ' if is_equal else 'BROKEN'}  gradients of the tree are those of the rows, up to rounding")
    print(f"  {'kept  ' if all(agree) else 'BROKEN'}  the loss is the same")
    print(f"  {time.perf_counter() - start:,.0f} s in all")
    return 0 if is_equal and all(agree) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
