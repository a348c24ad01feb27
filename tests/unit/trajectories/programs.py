"""Random sessions: programs of everything that happens to a conversation, run on a real graph with a toy model behind it.

The toy model has a deterministic tokenizer and chat template, so that a prompt extends an earlier one exactly where a real template
would make it so, and not where it would not: reasoning left out of history, or tokens that come back in other pieces, break the
prefix. Logprobs are random float32. A program is a list of steps, so that Hypothesis can make it smaller."""

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from hermes import CallRecord, MessageGraph

WORDS = ("red", "green", "blue", "sun", "moon", "star")
OPS = (
    *("talk", "talk", "think", "drift", "edit", "delete", "compact", "attempt", "fork", "best_of", "subagents", "retry", "twins"),
    *("late", "cut", "tool", "authored", "untokened", "unscored", "uncounted", "other_tokenizer", "rollout"),
)

Step = tuple[str, int]
"""What happens, and a number that says how."""

PROGRAMS = st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, 1_000)), min_size=1, max_size=14)

# The toy model's tokens: markers, whole words, and letters for words that were sampled in pieces.
MARKERS = {"system": 1, "user": 2, "assistant": 3, "tool": 4, "think": 5, "/think": 6, "end": 7}
WORD = {word: 10 + place for place, word in enumerate(WORDS)}
LETTER = 100


def encode(text: str) -> list[int]:
    """Tokenise as the template does: a token for a word, letters for anything else."""
    return [token for word in text.split() for token in ([WORD[word]] if word in WORD else letters(word))]


def letters(text: str) -> list[int]:
    return [LETTER + ord(letter) for letter in text if letter != " "]


def render(messages: Sequence[Any]) -> list[int]:
    """Return the prompt of a chat: every message behind its marker, and the marker of the reply."""
    tokens: list[int] = []
    for message in messages:
        tokens.append(MARKERS[message["role"]])
        if message.get("reasoning"):
            tokens += thought(message["reasoning"])
        tokens += [*encode(message["content"] or ""), MARKERS["end"]]
    return [*tokens, MARKERS["assistant"]]


def thought(text: str) -> list[int]:
    return [MARKERS["think"], *encode(text), MARKERS["/think"]]


@dataclass
class World:
    """Runs programs. `graphs` are the sessions to export, the first one and its forks."""

    seed: int
    name: str = "w"
    graphs: list[MessageGraph] = field(default_factory=list)
    samples: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.graphs = [MessageGraph([{"role": "system", "content": "red sun"}], seed=f"{self.name}-{self.seed}")]
        self.current = self.graphs[0]

    def run(self, program: Sequence[Step]) -> list[MessageGraph]:
        for op, number in program:
            self.rng.seed(f"{self.seed}/{op}/{number}")
            getattr(self, f"do_{op}")(number)
        return self.graphs

    def text(self) -> str:
        return " ".join(self.rng.choices(WORDS, k=self.rng.randint(1, 3)))

    def ask(self, chat: MessageGraph) -> None:
        chat.append({"role": "user", "content": self.text()})

    def record(self, messages: Sequence[Any], completion: list[int], **fields: Any) -> CallRecord:
        """Return the call of one sample; `fields` overrides what is usual."""
        self.samples += 1
        known: dict[str, Any] = {
            "prompt_token_ids": render(messages),
            "token_ids": completion,
            "logprobs": [float32(self.rng.uniform(-9, 0)) for _ in completion],
            "policy_version": "step-1",
            "tokenizer": "toy",
            "sample_id": f"{self.name}-{self.seed}-{self.samples}",
        }
        return CallRecord(**{**known, **fields})

    def sample(self, chat: MessageGraph, text: str | None = None, *, reasoning: str = "", keep: Any = "none", **fields: Any) -> None:
        """Let the toy model answer what the chat shows now."""
        turn = chat.prepare(keep_reasoning=keep)
        text = self.text() if text is None else text
        completion = [*(thought(reasoning) if reasoning else []), *encode(text), MARKERS["end"]]
        message = {"role": "assistant", "content": text} | ({"reasoning": reasoning} if reasoning else {})
        chat.commit(turn, message, call=self.record(turn.messages, fields.pop("completion", completion), **fields))

    # What can happen -------------------------------------------------------------------------------------------------

    def do_talk(self, _: int) -> None:
        self.ask(self.current)
        self.sample(self.current)

    def do_think(self, number: int) -> None:
        """Reasoning, which later prompts show or do not show."""
        self.ask(self.current)
        self.sample(self.current, reasoning=self.text(), keep=("none", "current_turn", "all")[number % 3])

    def do_drift(self, _: int) -> None:
        """Sampled letter by letter, comes back word by word."""
        self.ask(self.current)
        text = self.text()
        self.sample(self.current, text, completion=[*letters(text), MARKERS["end"]])

    def do_edit(self, number: int) -> None:
        self.current[number % len(self.current)]["content"] = self.text()

    def do_delete(self, number: int) -> None:
        if len(self.current) > 1:
            del self.current[1 + number % (len(self.current) - 1)]

    def do_compact(self, number: int) -> None:
        """A summary that was sampled itself, in a chat of its own."""
        self._compact(number, "compaction")

    def do_attempt(self, number: int) -> None:
        """A compaction that is given up: the list goes on from another summary."""
        self._compact(number, "compaction_attempt")

    def _compact(self, number: int, kind: str) -> None:
        if len(self.current) < 3:
            return
        stop = 2 + number % (len(self.current) - 2)
        chat = MessageGraph([*self.current[:stop], {"role": "user", "content": "star star"}], seed=f"summary-{self.samples}")
        self.sample(chat)
        message = {"role": "user", "content": chat[-1]["content"], "metadata": {"chat": chat}}
        self.current.compact(slice(1, stop), message, kind=kind)

    def do_fork(self, number: int) -> None:
        """Two sessions from one: what they share are the same samples."""
        fork = self.current.fork(1 + number % len(self.current))
        self.graphs.append(fork)
        self.current = fork if number % 2 else self.current

    def do_best_of(self, number: int) -> None:
        self.ask(self.current)
        turn = self.current.prepare()
        for _ in range(2 + number % 3):
            text = self.text()
            self.current.commit(
                turn, {"role": "assistant", "content": text}, call=self.record(turn.messages, [*encode(text), MARKERS["end"]])
            )

    def do_subagents(self, number: int) -> None:
        """Some in parallel, which start alike; some with a subagent of their own."""
        for place in range(1 + number % 3):
            chat = self._subagent(depth=1 + (number + place) % 2)
            self.current.append({"role": "tool", "content": chat[-1]["content"], "metadata": {"chat": chat}})
        self.sample(self.current)

    def _subagent(self, depth: int) -> MessageGraph:
        chat = MessageGraph([{"role": "system", "content": "blue moon"}, {"role": "user", "content": "go"}], seed=f"agent-{self.samples}")
        self.sample(chat)
        if depth > 1:
            inner = self._subagent(depth - 1)
            chat.append({"role": "tool", "content": inner[-1]["content"], "metadata": {"chat": inner}})
            self.sample(chat)
        return chat

    def do_retry(self, _: int) -> None:
        """The first answer came too late to be used; a second one is adopted."""
        self.ask(self.current)
        turn = self.current.prepare()
        for text in (self.text(), self.text()):
            call = self.record(turn.messages, [*encode(text), MARKERS["end"]])
            self.current.commit(turn, {"role": "assistant", "content": text}, call=call, adopt=True)

    def do_twins(self, number: int) -> None:
        """Samples with equal tokens that agree in everything else, or differ in logprobs, policy or reward."""
        self.ask(self.current)
        turn = self.current.prepare()
        text = self.text()
        first = self.record(turn.messages, [*encode(text), MARKERS["end"]])
        others = ({}, {"logprobs": first.logprobs}, {"logprobs": first.logprobs, "policy_version": "step-2"}, {"logprobs": first.logprobs})
        response = self.current.commit(turn, {"role": "assistant", "content": text}, call=first)
        for fields in others[: 2 + number % 3]:
            call = self.record(turn.messages, list(first.token_ids or ()), **fields)
            response = self.current.commit(turn, {"role": "assistant", "content": text}, call=call)
        if number % 2:
            self.current.annotate(response, reward=1.0)

    def do_late(self, _: int) -> None:
        """The answer comes when the list has gone on."""
        self.ask(self.current)
        turn = self.current.prepare()
        self.ask(self.current)
        text = self.text()
        self.current.commit(turn, {"role": "assistant", "content": text}, call=self.record(turn.messages, [*encode(text), MARKERS["end"]]))

    def do_cut(self, number: int) -> None:
        """An answer that stopped at a length limit, so that a longer one begins as it does."""
        self.ask(self.current)
        turn = self.current.prepare()
        text = f"{self.text()} {self.text()}"
        whole = self.record(turn.messages, [*encode(text), MARKERS["end"]])
        half = len(whole.token_ids or ()) // 2
        scores = {"logprobs": list(whole.logprobs or ())[:half]} if number % 2 else {}
        part = self.record(turn.messages, list(whole.token_ids or ())[:half], finish_reason="length", **scores)
        for call, words in ((part, text.split()[:half]), (whole, text.split())):
            self.current.commit(turn, {"role": "assistant", "content": " ".join(words)}, call=call)

    def do_tool(self, _: int) -> None:
        self.current.append({"role": "tool", "content": self.text()})

    def do_authored(self, _: int) -> None:
        """An assistant message that nobody sampled."""
        self.current.insert(len(self.current), {"role": "assistant", "content": self.text()})

    def do_untokened(self, _: int) -> None:
        self.ask(self.current)
        self.sample(self.current, prompt_token_ids=None, token_ids=None, logprobs=None, usage={"completion_tokens": 3})

    def do_unscored(self, _: int) -> None:
        """Returned ids without a logprob for each."""
        self.ask(self.current)
        self.sample(self.current, logprobs=[-0.5])

    def do_uncounted(self, _: int) -> None:
        """The server counted more tokens than it returned."""
        self.ask(self.current)
        self.sample(self.current, usage={"completion_tokens": 9})

    def do_other_tokenizer(self, _: int) -> None:
        self.ask(self.current)
        self.sample(self.current, tokenizer="other toy")

    def do_rollout(self, number: int) -> None:
        """A rollout marked apart from its session's others."""
        self.ask(self.current)
        self.sample(self.current)
        response = list(self.current.responses())[-1]
        self.current.annotate(response, rollout=f"apart-{number % 2}", rollout_reward=0.5)


def float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


FULLY_TRAINED = frozenset(OPS) - {"untokened", "unscored", "uncounted"}
"""Steps after which every sampled token can be trained."""


def program_graphs(program: Sequence[Step], seed: int = 0, name: str = "w") -> list[MessageGraph]:
    """Run a program and return its sessions."""
    return World(seed, name).run(program)
