"""One graph that has everything in it, for the tests of codec, verify, redaction and drawing."""

from hermes import CallRecord, MessageGraph

TOOLS = [{"type": "function", "function": {"name": "ask", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}}]


def rich_session() -> MessageGraph:
    """A chat with an edit, a compaction, a nested subagent with versions of its own, twins, a late response and annotations."""
    deepest = MessageGraph([{"role": "user", "content": "deepest question"}], seed="deepest")
    deepest.append(
        {"role": "assistant", "content": "deepest answer"}, call=CallRecord(sample_id="deepest-1", token_ids=[9], logprobs=[-0.5])
    )
    agent = MessageGraph([{"role": "user", "content": "agent question"}], seed="agent")
    agent.append({"role": "tool", "content": "deep result", "metadata": {"chat": deepest}})
    agent.append({"role": "assistant", "content": "agent answer"}, call=CallRecord(sample_id="agent-1"))
    agent[0]["content"] = "agent question, edited"

    chat = MessageGraph([{"role": "system", "content": "Be brief.", "metadata": {"note": "side"}}], seed="session")
    chat.append({"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "u"}}]})
    chat.append({"role": "assistant", "content": "first", "reasoning": "hm"}, call=CallRecord(sample_id="1"))
    chat.append({"role": "user", "content": "my number is 555-1234"})
    turn = chat.prepare(tools=TOOLS, ephemeral="Secretly.", keep_reasoning="current_turn", template_id="chatml")
    chat.commit(
        turn,
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "ask", "arguments": '{"q": "555-1234?"}'}}]},
        call=CallRecord(
            model="m",
            sample_id="2",
            sampling={"temperature": 0.7},
            prompt_token_ids=[1, 2, 3],
            token_ids=[4, 5],
            logprobs=[-0.1, -0.2],
            raw_text="ask(555-1234?)",
        ),
    )
    chat.append({"role": "tool", "tool_call_id": "c", "content": "agent says", "metadata": {"chat": agent}})
    for name in ("3", "4"):
        chat.commit(turn, {"role": "assistant", "content": "late twin"}, call=CallRecord(sample_id=name, token_ids=[6], logprobs=[-0.3]))
    chat.append({"role": "assistant", "content": "second"}, call=CallRecord(sample_id="5"))
    chat.compact(slice(1, 3), "(summary)")
    chat.append({"role": "assistant", "content": "third"}, call=CallRecord(sample_id="6"))
    for response in chat.responses():
        chat.annotate(response, reward=0.5)
    return chat
