"""Conversations to compress: written by hand, drawn by Hypothesis, and a model to summarise them that speaks our Protocol."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from hermes import CallRecord, MessageGraph
from hermes.trajectories.compress import CompressionSettings, read_settings
from hermes.trajectories.sampling_model import ModelFailed, SampledMessage, SampleRequest, SamplingModel


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str | None, *calls: tuple[str, str, str], **fields: Any) -> dict[str, Any]:
    """An assistant's message; calls are (id, name, arguments)."""
    called = [{"id": of, "type": "function", "function": {"name": name, "arguments": arguments}} for of, name, arguments in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": called} if called else {}), **fields}


def result(of: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": of, "content": text, **fields}


def words(count: int, of: str = "word") -> str:
    return " ".join(f"{of}{number}" for number in range(count))


def chat_of(messages: Sequence[Mapping[str, Any]], seed: str = "chat") -> MessageGraph:
    """A graph in which every assistant's message was sampled."""
    chat = MessageGraph(seed=seed)
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            chat.append(dict(message), call=CallRecord(sample_id=f"{seed}:{index}", model="policy"))
        else:
            chat.append(dict(message))
    return chat


def settings(target: int, **values: Any) -> CompressionSettings:
    """Settings with a target; `trim_protected=True` or `processing={…}`."""
    sections = {name: value for name, value in values.items() if isinstance(value, dict)}
    rest = {f"compression.{name}": value for name, value in values.items() if not isinstance(value, dict)}
    return read_settings(None, {"compression.target_max_tokens": target, **rest, **sections})


class Fake:
    """A model that answers from a list: a text, a whole message, or a failure to raise; the last one again and again."""

    name = "fake"

    def __init__(self, *answers: str | dict[str, Any] | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[SampleRequest] = []

    async def sample(self, request: SampleRequest) -> SampledMessage:
        self.requests.append(request)
        said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(said, Exception):
            raise said
        message = answer(said) if isinstance(said, str) else said
        return SampledMessage(message, CallRecord(model=self.name, usage={"completion_tokens": 7}, sampling=request.sampling), micro_usd=11)


SPENT = ModelFailed("the budget of this run is spent", is_spent=True)
_: type[SamplingModel] = Fake  # speaks the Protocol

# Drawn conversations ---------------------------------------------------------------------------------------------

_texts = st.one_of(
    st.integers(1, 60).map(words),
    st.integers(1, 30).map(lambda count: ". ".join(f"Fact {number} is {number * 7}" for number in range(count)) + "."),
    st.text(st.sampled_from("aé漢 \n.<>[]{}😀"), max_size=60),
)
_results = st.one_of(_texts, st.integers(100, 1500).map(lambda count: words(count, "out")))
_ids = st.sampled_from(["c1", "c2", "c3"])  # few, so that they come again


@st.composite
def _exchanges(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A question, an answer, a call with its results in any order, an answered one, or one whose result never came."""
    kind = draw(st.sampled_from(["question", "answer", "call", "call", "calls", "unanswered", "orphan", "late"]))
    if kind == "question":
        return [user(draw(_texts))]
    if kind == "answer":
        thought = draw(st.none() | _texts)
        return [answer(draw(_texts), **({"reasoning": thought} if thought else {}))]
    if kind == "orphan":
        return [user(draw(_texts)), result("nobody", draw(_results))]
    ids = draw(st.lists(_ids, min_size=1, max_size=1 if kind != "calls" else 3, unique=True))
    calling = answer(draw(st.none() | _texts), *((of, "look", '{"at": "x"}') for of in ids))
    if kind == "unanswered":
        return [calling]
    results = [result(of, draw(_results)) for of in draw(st.permutations(ids))]
    return [calling, *([user(draw(_texts))] if kind == "late" else []), *results]


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Any conversation, of any shape that files have."""
    start = draw(st.sampled_from([[], [system("Be brief.")], [system("Be brief."), user("Please look into it.")]]))
    rest = draw(st.lists(_exchanges(), min_size=1, max_size=14))
    return [*start, *(message for exchange in rest for message in exchange)]


@st.composite
def drawn_settings(draw: st.DrawFn) -> CompressionSettings:
    flags = st.booleans()
    return settings(
        draw(st.integers(20, 1500)),
        summary_target_tokens=draw(st.integers(1, 400)),
        trim_results=draw(flags),
        trim_protected=draw(flags),
        trim_keep_tokens=draw(st.integers(1, 200)),
        prune_results=draw(flags),
        giant_result_share=draw(st.sampled_from([0.1, 0.5, 1.0])),
        protected_turns={
            "first_system": draw(flags),
            "first_human": draw(flags),
            "first_gpt": draw(flags),
            "first_tool": draw(flags),
            "first_n_turns": draw(st.integers(0, 4)),
            "last_n_turns": draw(st.integers(0, 6)),
        },
        output={"add_summary_notice": draw(flags)},
    )
