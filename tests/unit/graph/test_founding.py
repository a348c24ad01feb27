"""The founding sketch: its own usage example runs unchanged, and its class agrees with ours where the design does."""

from hermes import MessageGraph


def test_the_founding_usage_example_runs_unchanged() -> None:
    # in use
    messages = MessageGraph()
    messages.append({"role": "system", "content": "Hello, I am a system message"})
    messages[0] = {"role": "user", "content": "Hello, I am a user message"}

    assert len(messages) == 1
    assert messages == [{"role": "user", "content": "Hello, I am a user message"}]
    assert messages.prev_graph is None


def test_an_edit_before_an_assistant_message_keeps_the_graph_as_the_sketch_did() -> None:
    message_history = MessageGraph()
    message_history.append({"role": "system", "content": "s"})
    message_history.append({"role": "user", "content": "q"})
    message_history.append({"role": "assistant", "content": "a"})
    my_edit = "edited"
    message_history[1]["content"] = my_edit
    assert message_history.prev_graph is not None
    assert [message["content"] for message in message_history.prev_graph] == ["s", "q", "a"]
    assert [message["content"] for message in message_history.messages] == ["s", "edited", "a"]
