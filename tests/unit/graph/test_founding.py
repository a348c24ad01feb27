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


def test_the_sketchs_name_for_the_list_is_the_list_itself() -> None:
    chat = MessageGraph()
    chat.messages.append({"role": "user", "content": "q"})
    chat.messages.append({"role": "assistant", "content": "a"})
    chat.messages[0]["content"] = "edited"
    assert [message["content"] for message in chat] == ["edited", "a"]
    assert chat.prev_graph is not None
    assert [message["content"] for message in chat.prev_graph.messages] == ["q", "a"]
    assert [response.message["content"] for response in chat.responses()] == ["a"]


def test_the_sketchs_list_can_be_assigned_as_one_edit() -> None:
    chat = MessageGraph([{"role": "user", "content": "q"}])
    chat.append({"role": "assistant", "content": "a"})
    chat.messages = [{"role": "user", "content": "other"}]
    assert chat == [{"role": "user", "content": "other"}]
    assert chat.prev_graph is not None
    assert len(chat.prev_graph.messages) == 2
