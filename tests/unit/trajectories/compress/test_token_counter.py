"""Tokens: counted part by part as the whole would be, cut exactly, found in the local cache, or estimated by a stated rule."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hermes.trajectories.compress import TokenCounter, load_counter
from hermes.trajectories.compress.token_counter import TemplateCounter
from hermes.trajectories.errors import SessionError, TrajectorySettingsError
from tests.unit.trajectories.compress.chats import answer, conversations, result, system, user, words
from tests.unit.trajectories.compress.vocabularies import MISTRAL, PLAIN, TOOLS, save_letters, save_smollm2

SCHEMAS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="session", params=["smollm2", "tools", "plain", "letters"])
def counter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TokenCounter:
    folder = tmp_path_factory.mktemp("vocabularies") / request.param
    if request.param == "letters":
        return load_counter(save_letters(folder, PLAIN))
    return load_counter(save_smollm2(folder, {"tools": TOOLS, "plain": PLAIN}.get(request.param)))


def whole(counter: TokenCounter, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> int:
    """The tokens of the whole rendering, encoded in one piece."""
    assert isinstance(counter, TemplateCounter)
    text = counter._rendered(messages, tools)
    return len(counter._vocabulary.encode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), add_special_tokens=False).ids)


texts = st.text(st.sampled_from("ab 1é漢😀\n.") | st.sampled_from("<|>im_startendof"), max_size=40) | st.sampled_from(
    ["<|im_start|>", " <|im_end|> ", "<|im_end|>\n<|im_start|>assistant\n", "<|endoftext|><|im_end|>", "\ud83d", " \n "]
)


@given(st.lists(texts, min_size=1, max_size=6))
@hypothesis_settings(deadline=None)
def test_the_parts_have_as_many_tokens_as_the_whole(counter: TokenCounter, said: list[str]) -> None:
    messages = [user(text) if number % 2 == 0 else answer(text) for number, text in enumerate(said)]
    assert counter.count(messages, SCHEMAS) == whole(counter, messages, SCHEMAS)


@given(conversations())
@hypothesis_settings(deadline=None, max_examples=30)
def test_conversations_with_calls_too(counter: TokenCounter, messages: list[dict[str, Any]]) -> None:
    assert counter.count(messages) == whole(counter, messages)


def test_counts_what_the_model_itself_counts(tmp_path: Path) -> None:
    """The server of tests/contract/test_llama_cpp.py counts 23 for these two, with the four that ask for an answer."""
    hello = [system("You are a helpful assistant."), user("Say hello.")]
    assert load_counter(save_smollm2(tmp_path / "smollm2")).count(hello) == 23 - 4


@given(st.text(st.sampled_from("ab 1é漢😀\n."), max_size=80) | st.integers(0, 60).map(words), st.integers(0, 40))
@hypothesis_settings(deadline=None)
def test_heads_and_tails_are_as_long_as_they_may_be(counter: TokenCounter, text: str, tokens: int) -> None:
    head, tail = counter.head(text, tokens), counter.tail(text, tokens)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert max(counter.count_text(head), counter.count_text(tail)) <= tokens
    if counter.count_text(text) <= tokens:
        assert head == tail == text
    else:
        assert counter.count_text(head) >= tokens - 4, "but for a character of several tokens"


def test_the_estimate_is_three_bytes_to_a_token_and_eight_for_a_message() -> None:
    estimate = load_counter("estimate")
    assert (estimate.name, estimate.is_estimate) == ("estimate", True)
    assert [estimate.count_text(text) for text in ("", "a", "abc", "abcd", "é", "漢字")] == [0, 1, 1, 2, 1, 2]
    assert estimate.count([user("abc"), answer("abcd")]) == 1 + 8 + 2 + 8
    assert estimate.count([user("abc")], [{"a": 1}]) == 1 + 8 + 3
    assert (estimate.head("abcdefgh", 2), estimate.tail("abcdefgh", 2), estimate.head("漢字", 1), estimate.tail("ab", 0)) == (
        "abcdef",
        "cdefgh",
        "漢",
        "",
    )


@given(conversations())
@hypothesis_settings(deadline=None, max_examples=30)
def test_the_estimate_is_rather_too_many(messages: list[dict[str, Any]]) -> None:
    plain = [message for message in messages if str(message["content"]).isascii()]
    assert load_counter("estimate").count(plain) >= sum(len(str(message["content"] or "")) for message in plain) / 4


def test_a_counter_remembers_but_not_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = load_counter(save_letters(tmp_path / "letters", PLAIN))
    assert isinstance(counter, TemplateCounter)
    monkeypatch.setattr("hermes.trajectories.compress.token_counter.MAX_CACHED_CHARS", 100)
    for number in range(50):
        assert counter.count_text(words(5, f"{number}-")) == len(words(5, f"{number}-"))
    assert len(counter._known) < 10


# --- templates


def test_arguments_are_given_as_objects_and_nulls_as_nothing(tmp_path: Path) -> None:
    counter = load_counter(save_smollm2(tmp_path / "tools", TOOLS))
    assert isinstance(counter, TemplateCounter)
    text = counter._rendered([answer(None, ("c", "look", '{"at":1}')), answer("x", ("c", "look", "not json"))], ())
    assert '"arguments": {"at": 1}' in text
    assert '"arguments": "not json"' in text
    assert "None" not in text
    without, with_tools = counter.count([user("x")]), counter.count([user("x")], SCHEMAS)
    assert with_tools > without + counter.count_text(json.dumps(SCHEMAS[0]))


def test_parts_and_odd_roles_are_put_plainly_where_a_template_wants_text(tmp_path: Path) -> None:
    known = "{% if m.role not in ['system', 'user', 'tool'] %}{{ raise_exception('role') }}{% endif %}"
    template = f"{{% for m in messages %}}{known}{{{{ m.content + '|' }}}}{{% endfor %}}"
    counter = load_counter(save_letters(tmp_path / "strict", template))
    parts = {"role": "user", "content": [{"type": "text", "text": "ab"}, {"type": "image_url", "image_url": {"url": "x"}}]}
    assert counter.count([{"role": "developer", "content": "be"}, parts]) == len("be|") + len("ab\n[image_url]|")
    with pytest.raises(SessionError, match=r"the chat template refuses a conversation: TemplateError: role"):
        counter.count([answer("no")])


def test_a_strict_template_refuses_what_it_refuses(tmp_path: Path) -> None:
    counter = load_counter(save_smollm2(tmp_path / "mistral", MISTRAL))
    assert counter.count([user("a"), answer("b")]) > 0
    with pytest.raises(SessionError, match="roles must alternate"):
        counter.count([user("a"), user("b")])
    assert counter.count_text("still works") > 0


def test_the_default_of_several_named_templates_is_taken(tmp_path: Path) -> None:
    folder = save_letters(tmp_path / "named", PLAIN)
    (folder / "chat_template.jinja").unlink()
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "{% for m in messages %}{{ m.content }}{% endfor %}"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert load_counter(folder).count([user("abc")]) == 3


# --- where tokenizers lie


def cached(home: Path, name: str, revision: str, *, is_main: bool = True) -> Path:
    repository = home / "hub" / f"models--{name.replace('/', '--')}"
    folder = save_letters(repository / "snapshots" / revision, PLAIN)
    if is_main:
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(revision)
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HF_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf"


def test_a_name_is_looked_up_in_the_local_cache(home: Path) -> None:
    cached(home, "some/model", "abc123")
    cached(home, "plain", "r1", is_main=False)
    assert load_counter("some/model").count([user("x")]) == len("user: x\n")
    assert load_counter("plain").count([user("x")]) == len("user: x\n")


def test_the_revision_that_is_main_is_taken(home: Path) -> None:
    other = cached(home, "some/model", "aaa", is_main=False)
    (other / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    cached(home, "some/model", "bbb")
    assert load_counter("some/model").count([user("x")]) == len("user: x\n")


def test_other_places_of_the_cache_are_known(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached(tmp_path / "elsewhere", "some/model", "abc123")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere" / "hub"))
    assert load_counter("some/model").name == "abc123"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (
            "moonshotai/Kimi-K2-Thinking",
            "is not in .*hub, and nothing is downloaded; fetch it with `hf download moonshotai/Kimi-K2-Thinking",
        ),
        ("./nowhere", "no such folder; give a folder with tokenizer.json, a Hugging Face name, or estimate"),
        ("half/one", "has no tokenizer.json in .*; give another with --tokenizer, or estimate"),
    ],
)
def test_a_tokenizer_that_is_not_there_is_refused_with_the_way_out(home: Path, name: str, complaint: str) -> None:
    (home / "hub" / "models--half--one" / "snapshots" / "abc").mkdir(parents=True)
    with pytest.raises(TrajectorySettingsError, match=complaint) as refused:
        load_counter(name)
    assert "\n" not in str(refused.value)


def test_a_file_stands_for_its_folder(tmp_path: Path) -> None:
    folder = save_letters(tmp_path / "letters", PLAIN)
    assert load_counter(folder / "tokenizer.json").count([result("c", "x")]) == len("tool: x\n")
