"""A guided tour of the message graph in the terminal: a chat, an edit, a compaction, a subagent, a recorded call, and the graph of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax

from hermes.graph import CallRecord, MessageGraph
from hermes.terminal import graph_tree


@dataclass(frozen=True, slots=True)
class TourScene:
    """One step of the tour. The tour shows the code and runs exactly that code."""

    title: str
    why: str
    code: str


SCENES = (
    TourScene(
        "A chat is a list",
        "Keep your history in a MessageGraph instead of a list; nothing else changes. "
        "An assistant message that you append is a response: a model sampled it under what the list shows now.",
        """\
chat = MessageGraph([{"role": "system", "content": "Be brief."}])
chat.append({"role": "user", "content": "Capital of France?"})
chat.append({"role": "assistant", "content": "Paris."})""",
    ),
    TourScene(
        "An edit keeps what a model saw",
        'You correct the question. "Paris." was sampled under the old one, so that version is kept; '
        "in the new list the answer is context, not a sample. The next answer is sampled under the new text.",
        """\
chat[1]["content"] = "Capital of Italy?"
chat.append({"role": "assistant", "content": "Rome."})""",
    ),
    TourScene(
        "A compaction is one edit",
        "The context grew too long: replace a part of it by a summary. "
        'Again the version in which "Rome." was sampled is kept, joined by a `compaction` edge.',
        """\
chat.compact(slice(1, 3), "(We talked about capitals.)")""",
    ),
    TourScene(
        "A subagent brings its chat along",
        "A tool that was answered by another agent attaches that agent's whole graph. Its samples are counted with yours.",
        """\
agent = MessageGraph([{"role": "user", "content": "How many people live in Rome?"}])
agent.append({"role": "assistant", "content": "About 2.7 million."})
chat.append({"role": "tool", "tool_call_id": "call_1", "content": "2.7 million", "metadata": {"chat": agent}})""",
    ),
    TourScene(
        "The real thing: prepare, call, commit",
        "prepare() pins exactly what is sent; commit() records the response with its tokens. "
        "If the list changed in between, the response goes to a branch of its own: nothing is lost or mixed up.",
        """\
turn = chat.prepare(ephemeral="Answer in one sentence.")
chat.append({"role": "user", "content": "(typed while the model was thinking)"})
late = chat.commit(
    turn,
    {"role": "assistant", "content": "Rome has 2.7 million people."},
    call=CallRecord(model="my-policy", policy_version="step-12", prompt_token_ids=[1, 2, 3], token_ids=[4, 5], logprobs=[-0.1, -0.2]),
)""",
    ),
)


def play_tour(console: Console, pause: Callable[[], None]) -> MessageGraph:
    """Run the tour and return its graph; calls `pause` after each scene."""
    names: dict[str, object] = {"MessageGraph": MessageGraph, "CallRecord": CallRecord}
    console.print(
        Panel(
            "Hermes routes messages, remembers exactly what every model saw,\nand hands you on-policy training data from it.",
            title="[bold]Hermes[/]",
            subtitle="the message graph",
            expand=False,
        )
    )
    for number, scene in enumerate(SCENES, start=1):
        console.print(Rule(f"[bold]{number}. {scene.title}[/]", align="left"))
        console.print(scene.why, style="italic")
        console.print(Syntax(scene.code, "python", background_color="default", padding=(1, 2), word_wrap=True))
        exec(scene.code, names)  # noqa: S102  # the code is a constant of this file, and is shown word for word
        console.print(graph_tree(_chat(names)))
        pause()
    chat = _chat(names)
    console.print(Rule(f"[bold]{len(SCENES) + 1}. What you get out of it[/]", align="left"))
    console.print("Every sample, once, with exactly the context it was sampled in:", style="italic")
    for response in chat.responses():
        seen = " / ".join(" ".join(str(message["content"]).split()) for message in response.context)
        console.print(f"  [green]●[/] {response.message['content']:<30} [dim]after: {seen}[/]", highlight=False, soft_wrap=True)
    report = chat.verify()
    console.print(f"\nverify(): [bold green]{report.status}[/] ({report.responses} responses, every id computed again)")
    return chat


def _chat(names: dict[str, object]) -> MessageGraph:
    chat = names["chat"]
    assert isinstance(chat, MessageGraph)  # noqa: S101  # the first scene makes it
    return chat
