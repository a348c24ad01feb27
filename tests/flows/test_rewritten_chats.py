"""Clients that rewrite, summarise or quote our answers: one rollout stays one session, and no chat swallows another."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hermes.graph import MessageGraph
from tests.fakes.vendors import ToolCall
from tests.flows.test_completions import SYSTEM, TOOL, House, open_house, sampled, texts, user

FERRY = "The ferry to Gili Air leaves Padang Bai at half past eight and takes about ninety minutes with a calm sea."
HOTEL = "A quiet guesthouse near the harbour has two rooms left for Friday, each with a fan, a garden view and breakfast."
SUMMARY = "They want a trip on Friday: the early boat, one night in a garden room by the harbour, and nothing that has peanuts in it."
PLAN = "First compare the three ferry companies by price, then call the guesthouse, and at last write one short message with both."
BOILERPLATE = "I am sorry, but I cannot help with that request; please ask me something else about your journey instead."


@pytest.fixture
async def house(database_url: str, redis_url: str) -> AsyncIterator[House]:
    async with open_house(database_url, redis_url) as house:
        yield house


async def talk(house: House, *exchanges: tuple[str, str], system: dict[str, Any] = SYSTEM, **body: Any) -> list[dict[str, Any]]:
    """A chat of its own, word for word; return its messages."""
    messages: list[dict[str, Any]] = [system]
    for question, answer in exchanges:
        messages.append(user(question))
        messages.append(await house.say(messages, answer, **body))
    return messages


def note(graph: MessageGraph) -> dict[str, Any]:
    """The only evidence in a graph's list."""
    [found] = [dict(message["metadata"]["joined_by"]) for message in graph if "joined_by" in (message.get("metadata") or {})]
    return found


def kinds(graph: MessageGraph) -> list[str]:
    return [edge.kind for edge in graph.edges() if edge.kind != "sequential"]


async def test_a_chat_goes_on_with_a_summary_in_the_same_session(house: House) -> None:
    before = await talk(house, ("A ferry?", FERRY), ("A room?", HOTEL))
    await house.say([*before, user("Sum up what we have.")], SUMMARY)
    short = [SYSTEM, user(f"Summary so far: {SUMMARY}"), user("Book it.")]
    booked = await house.say(short, "Both are booked.")
    await house.say([*short, booked, user("Thanks")], "You are welcome.")
    graph = await house.chat()
    assert sampled(graph) == [
        (texts([SYSTEM, user("A ferry?")]), FERRY),
        (texts(before[:4]), HOTEL),
        ([*texts(before), "Sum up what we have."], SUMMARY),
        (texts(short), "Both are booked."),
        (texts([*short, booked, user("Thanks")]), "You are welcome."),
    ]
    summary_id = next(response.id for response in graph.responses() if response.message["content"] == SUMMARY)
    assert kinds(graph) == ["compaction"]
    assert note(graph) == {"edge": "compaction", "signal": "quoted", "responses": [summary_id], "words": len(SUMMARY.split())}
    assert graph.verify()


async def test_a_digest_that_the_client_made_of_two_answers_is_a_compaction(house: House) -> None:
    long = " ".join(
        f"And {word} has a boat of its own on Sundays, if the wind allows it." for word in ("Lombok", "Penida", "Sanur", "Amed")
    )
    await talk(house, ("A ferry?", f"{FERRY} {long}"), ("A room?", f"{HOTEL} {long[::-1]}"))
    await house.say([SYSTEM, user(f"Earlier you said: {FERRY[:90]}…; and: {HOTEL[:90]}… Now a taxi, please.")], "A taxi comes at seven.")
    graph = await house.chat()
    assert (len(sampled(graph)), kinds(graph), note(graph)["edge"]) == (3, ["compaction"], "compaction")


async def test_tool_calls_that_a_client_rewrites_as_text_are_a_continuation(house: House) -> None:
    """As smolagents does: it sends our call as an assistant's text, and the result as a user's message."""
    messages: list[dict[str, Any]] = [SYSTEM, user("Find the ferry and the room.")]
    for step, what in enumerate(("ferry", "room", "taxi")):
        house.vendors.vllm.say(tool_calls=[ToolCall("look", {"what": what})])
        [call] = (await house.say(messages, tools=[TOOL]))["tool_calls"]
        function = {"name": "look", "arguments": {"what": what}}
        text = f"Calling tools:\n{[{'id': call['id'], 'type': 'function', 'function': function}]}"
        messages = [*messages, {"role": "assistant", "content": text}, user(f"Observation {step}: there is one.")]
    await house.say(messages, "All found.")
    graph = await house.chat()
    assert len(sampled(graph)) == 4
    assert kinds(graph) == ["continuation"] * 3
    evidence = [dict(message["metadata"]["joined_by"]) for message in graph if "joined_by" in (message.get("metadata") or {})]
    assert [(one["edge"], one["signal"]) for one in evidence] == [("continuation", "rewritten")] * 3
    assert graph.verify()


async def sessions(house: House) -> int:
    return len(await house.graphs())


async def test_no_chat_swallows_another_without_evidence(house: House) -> None:
    count = 0

    async def expect(more: int, why: str) -> None:
        nonlocal count
        count += more
        assert await sessions(house) == count, why

    for _ in range(2):
        await talk(house, ("hi", "Hello! What can I do for you today?"))
    await expect(2, "two chats that begin with the same greeting")
    for question in ("Find a boat", "Find a bed"):
        await house.say(
            [SYSTEM, user("hi"), {"role": "assistant", "content": "Hello! What can I do for you today?"}, user(question)], question
        )
    await expect(0, "each goes on in a chat of its own")
    assert sorted(len(sampled(graph)) for graph in (await house.graphs()).values()) == [2, 2]
    await talk(house, ("Is it far?", "yes"), ("Is it dear?", "no"))
    await expect(1, "short answers")
    for item in ("rain", "sun"):
        examples = [user("wet?"), {"role": "assistant", "content": "yes"}, user("dry?"), {"role": "assistant", "content": "no"}]
        await house.say([SYSTEM, *examples, user(item)], "yes")
    await expect(2, "examples that the client wrote, with answers like ours")
    await house.say([SYSTEM, user(f"One more: {'yes and no, ' * 10}")], "ok")
    await expect(1, "short answers, repeated")
    for _ in range(2):
        await talk(house, ("Write my will", BOILERPLATE), ("Please!", "No."))
    await expect(2, "two chats with the same refusal")
    await house.say([SYSTEM, user(f"Why did you say: {BOILERPLATE}")], "Because.")
    await expect(1, "what several chats said is a quote of none of them")
    await talk(house, ("Plan it", PLAN))
    for step in (1, 2):
        await house.say([SYSTEM, user(f"Do step {step} of this plan: {PLAN}")], f"Step {step} is done.")
    await expect(3, "workers that quote the plan of a planner with a single answer")
    parent = await talk(house, ("A ferry?", FERRY))
    house.vendors.vllm.say(tool_calls=[ToolCall("look", {"what": "the room"})])
    parent = [*parent, user("And a room?")]
    call = await house.say(parent, tools=[TOOL])
    await house.say([SYSTEM, user(f"You know this: {FERRY} Find a room.")], HOTEL)
    await expect(2, "a subagent that quotes the chat which waits for it")
    [tool_call] = call["tool_calls"]
    result = {"role": "tool", "tool_call_id": tool_call["id"], "content": HOTEL}
    await house.say([*parent, call, result], "There is one.")
    await expect(0, "the parent goes on")
    await house.say([{"role": "system", "content": "You are another."}, user(f"Check this: {FERRY}")], "Right.")
    await expect(1, "a quote under another system prompt")
    await house.say([SYSTEM, user(f"Check this: {FERRY}")], "Right.", user="bob")
    await expect(1, "a quote by another user")
    text = "Translate: the monkeys of the forest temple steal glasses, hats and bananas from every visitor who does not look."
    await talk(house, (text, f"Here is what you sent. {text} It is English."), ("And now?", "Now it is French."))
    await house.say([SYSTEM, user(f"{text} Into German, please.")], "Die Affen.")
    await expect(2, "what the answer itself had repeated from its prompt")


async def test_a_summary_is_quoted_once(house: House) -> None:
    """The first chat that quotes a summary goes on with it. A second one, with the same summary and another task, is a chat of its own."""
    before = await talk(house, ("A ferry?", FERRY), ("A room?", HOTEL))
    await house.say([*before, user("Sum up what we have.")], SUMMARY)
    for task in ("Book it.", "Cancel it."):
        await house.say([SYSTEM, user(f"Summary so far: {SUMMARY} {task}")], f"{task} Done.")
    first = [SYSTEM, user(f"Summary so far: {SUMMARY} Book it.")]
    await house.say(first, "Booked again.")
    graphs = list((await house.graphs()).values())
    assert [len(sampled(graph)) for graph in graphs] == [5, 1]
    assert [answer for _, answer in sampled(graphs[0])][-2:] == ["Book it. Done.", "Booked again."], "the same request is another sample"


async def test_a_name_of_the_chat_in_the_request_is_enough(house: House) -> None:
    key, other = "0199c0de-0000-7000-8000-00000000000a", "0199c0de-0000-7000-8000-00000000000b"
    for text, body in (
        ("one", {"metadata": {"hermes_session": "trip"}}),
        ("two", {"metadata": {"hermes_session": "trip"}}),
        ("three", {"prompt_cache_key": key}),
        ("four", {"prompt_cache_key": key}),
        ("five", {"prompt_cache_key": other}),
        ("six", {"prompt_cache_key": "my-app-v1"}),
        ("seven", {"prompt_cache_key": "my-app-v1"}),
    ):
        await house.say([SYSTEM, user(text)], f"{text} it is", **body)
        await house.service.hermes.gateway.wait_settled()  # so that the chats begin in this order
    await house.say([{"role": "system", "content": "Another."}, user("eight")], "eight it is", prompt_cache_key=key)
    graphs = await house.graphs()
    answers = [[answer.partition(" ")[0] for _, answer in sampled(graph)] for graph in graphs.values()]
    assert answers == [["one", "two"], ["three", "four"], ["five"], ["six"], ["seven"], ["eight"]]
    assert [note(graph)["signal"] for graph in list(graphs.values())[1:2]] == ["prompt_cache_key"]
