"""The command `hermes`: what it shows, what it says when something is wrong, and its exit codes: 0, 1 for altered, 2 for bad input.

Most tests call the commands in this process. Whatever depends on a real process (streams, signals, a terminal) starts one."""

import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hermes import CallRecord, MessageGraph, __version__
from hermes.cli import build_app
from hermes.console.graph_svg import svg_of_graph
from tests.unit.graph.sessions import rich_session

SRC = Path(__file__).parents[2] / "src"
CONSOLE_SCRIPT = Path(sysconfig.get_path("scripts")) / "hermes"
PLAIN = {"COLUMNS": "100", "FORCE_COLOR": None, "TTY_COMPATIBLE": None, "PYTHONIOENCODING": "utf-8"}
"""The settings of whoever runs the tests do not count."""
TIMEOUT_S = 60


def hermes(*arguments: str | Path, typed: str | bytes | None = None) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code, its output and its complaints."""
    result = CliRunner(env=PLAIN).invoke(build_app(), list(map(str, arguments)), input=typed, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def environment(**changes: str) -> dict[str, str]:
    merged = {**os.environ, **PLAIN, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def process(
    *arguments: str | Path, command: tuple[str | Path, ...] = (sys.executable, "-m", "hermes"), **options: Any
) -> tuple[int, str, str]:
    """Run a command in a process of its own."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment()}
    if "input" in options:
        del streams["stdin"]
    done = subprocess.run([*command, *arguments], check=False, timeout=TIMEOUT_S, **{**streams, **options})
    return done.returncode, (done.stdout or b"").decode(), done.stderr.decode()


def small() -> MessageGraph:
    chat = MessageGraph([{"role": "user", "content": "Capital of France?"}], seed="small")
    chat.append({"role": "assistant", "content": "Paris."}, call=CallRecord(sample_id="one"))
    chat[0]["content"] = "Capital of Italy?"
    return chat


SMALL_PICTURE = """\
{title}  2 messages, 2 versions, 1 response
├── now
│   ├── 👤 user      Capital of Italy?
│   └── 🤖 assistant Paris.  ○ context only
└── version 1 ┄ edit ┄▶ now
    ├── 👤 user      Capital of France?
    └── 🤖 assistant Paris.  ● sampled
verify: {status}
"""


@pytest.fixture
def in_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder to work in, so that names of files are short and stay on one line of the picture."""
    (tmp_path / "small.json").write_text(small().to_json(), encoding="utf-8")
    with chdir(tmp_path):
        yield tmp_path


def altered(**message: str) -> str:
    """A document in which somebody has changed what the model saw."""
    document = json.loads(small().to_json())
    (graph,) = document["graphs"]
    graph["messages"][-1].update(message)
    return json.dumps(document)


# --- hermes graph: what it shows


def test_graph_draws_the_picture_and_says_that_every_id_holds(in_folder: Path) -> None:
    assert hermes("graph", "small.json") == (0, SMALL_PICTURE.format(title="small.json", status="ok"), "")


def test_graph_reads_standard_input(in_folder: Path) -> None:
    picture = SMALL_PICTURE.format(title="standard input", status="ok")
    assert hermes("graph", "-", typed=small().to_json()) == (0, picture, "")
    assert process("graph", "-", input=small().to_json().encode()) == (0, picture, "")


def test_graph_prints_the_mermaid_source_that_the_library_draws(in_folder: Path) -> None:
    Path("rich.json").write_text(rich_session().to_json(), encoding="utf-8")
    assert hermes("graph", "rich.json", "--mermaid") == (0, rich_session().to_mermaid(), "")


def test_graph_prints_counts_as_one_line_of_json(in_folder: Path) -> None:
    code, shown, complaints = hermes("graph", "small.json", "--json")
    assert (code, shown.count("\n"), complaints) == (0, 1, "")
    counts = {"messages": 2, "versions": 2, "responses": 1, "status": "ok"}
    assert json.loads(shown) == {**counts, "root": small().root, "is_sealed": True, "redacted": [], "problems": []}


def test_graph_writes_one_image_and_never_over_a_file(in_folder: Path) -> None:
    assert hermes("graph", "small.json", "--svg", "small.svg") == (0, "Wrote small.json to small.svg.\n", "")
    assert Path("small.svg").read_text(encoding="utf-8") == svg_of_graph(small(), "small.json")
    assert hermes("graph", "small.json", "--svg", "small.svg") == (2, "", "hermes: small.svg exists already\n")
    assert hermes("graph", "small.json", "--svg", "no/where.svg")[::2] == (
        2,
        "hermes: cannot write no/where.svg: No such file or directory\n",
    )


def test_graph_lists_the_graphs_of_a_file(in_folder: Path) -> None:
    Path("many.jsonl").write_text(f"{small().to_json()}\n{rich_session().to_json()}\n", encoding="utf-8")
    code, shown, complaints = hermes("graph", "many.jsonl", "--list", "--json")
    rich = rich_session()
    assert (code, complaints) == (0, "")
    assert json.loads(shown) == [
        {"line": 1, "messages": 2, "versions": 2, "responses": 1},
        {"line": 2, "messages": len(rich), "versions": len(rich.versions), "responses": len(list(rich.responses()))},
    ]
    assert hermes("graph", "many.jsonl", "--list")[1].split() == [
        *("LINE", "MESSAGES", "VERSIONS", "RESPONSES", "1", "2", "2", "1"),
        *("2", str(len(rich)), str(len(rich.versions)), str(len(list(rich.responses())))),
    ]
    assert json.loads(hermes("graph", "small.json", "--list", "--json")[1]) == [{"line": 1, "messages": 2, "versions": 2, "responses": 1}]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "which graph? Give a FILE, --conversation, --session or --turn; --list shows what there is"),
        (("small.json", "--session", "x"), "which graph? Give one of FILE, --conversation, --session and --turn"),
        (("--session", "x", "--conversation", "y"), "which graph? Give one of FILE, --conversation, --session and --turn"),
        (("--session", "x", "--mermaid"), "--line, --mermaid and --whole need a FILE; --svg draws a stored conversation too"),
        (("small.json", "--closed"), "--reason, --closed and --config need a conversation of the store"),
        (("--list", "--session", "x"), "--list draws nothing: leave out --conversation, --session, --turn and --svg"),
    ],
)
def test_graph_refuses_what_does_not_go_together(in_folder: Path, words: tuple[str, ...], complaint: str) -> None:
    assert hermes("graph", *words) == (2, "", f"hermes: {complaint}\n")


def test_graph_counts_a_sample_that_two_chats_hold_once(in_folder: Path) -> None:
    agent = MessageGraph([{"role": "user", "content": "q"}])
    chat = MessageGraph()
    for answer in ("one", "two"):
        agent.append({"role": "assistant", "content": answer})
        chat.append({"role": "tool", "content": answer, "metadata": {"chat": agent}})
    Path("twice.json").write_text(chat.to_json(), encoding="utf-8")
    assert json.loads(hermes("graph", "twice.json", "--json")[1])["responses"] == 2
    assert hermes("graph", "twice.json")[1].startswith("twice.json  2 messages, 1 version, 2 responses\n")


def test_a_redacted_graph_holds(in_folder: Path) -> None:
    chat = small()
    chat.redact(chat.versions[0][0])
    code, shown, complaints = hermes("graph", "-", "--json", typed=chat.to_json())
    (response,) = chat.responses()
    assert (code, complaints) == (0, "")
    assert (json.loads(shown)["status"], json.loads(shown)["redacted"]) == ("redacted", [response.id])
    assert "👤 user      [redacted]" in hermes("graph", "-", typed=chat.to_json())[1]


def test_a_graph_with_the_mark_that_some_editors_write_in_front_is_read(in_folder: Path) -> None:
    Path("marked.json").write_text(small().to_json(), encoding="utf-8-sig")
    assert hermes("graph", "marked.json") == (0, SMALL_PICTURE.format(title="marked.json", status="ok"), "")


def test_texts_are_shown_as_they_are_and_cannot_steer_the_terminal(in_folder: Path) -> None:
    chat = MessageGraph([{"role": "user", "content": "[bold]x[/] [/nope] :smile: \x1b[31mred\x07 \ud800 a\nb"}])
    chat.append({"role": "assistant", "content": "[link=file:///]y[/]"})
    chat.replace(0, {"role": "user", "content": "z"}, kind="[red]k[/] :smile:\x1b[2J")
    Path("[bold]f[] :smile:.json").write_text(chat.to_json(), encoding="utf-8")
    code, shown, complaints = process("graph", "[bold]f[] :smile:.json")
    assert (code, complaints) == (0, "")
    for line in (
        "[bold]f[] :smile:.json  2 messages, 2 versions, 1 response",
        "└── version 1 ┄ [red]k[/] :smile:�[2J ┄▶ now",
        "    ├── 👤 user      [bold]x[/] [/nope] :smile: �[31mred� � a b",
        "    └── 🤖 assistant [link=file:///]y[/]  ● sampled",
    ):
        assert line in shown.splitlines()
    assert "\x1b" not in shown


def test_an_older_file_without_a_root_is_drawn_and_says_so() -> None:
    code, shown, complaints = hermes("graph", str(Path(__file__).parent / "graph" / "rich_session_version_1.json"))
    assert (code, complaints) == (0, "")
    assert "\nverify: ok  (an older file without a root: " in shown


# --- hermes graph: what is wrong


def test_an_altered_graph_is_drawn_all_the_same_and_the_exit_code_says_so(in_folder: Path) -> None:
    code, shown, complaints = hermes("graph", "-", typed=altered(content="Capital of Spain?"))
    assert (code, shown) == (1, SMALL_PICTURE.format(title="standard input", status="broken").replace("France", "Spain"))
    assert complaints == f"hermes: altered after it was saved: its root is not {small().root[:12]}, as the document said\n"


@pytest.mark.parametrize("option", ["--json", "--mermaid"])
def test_an_altered_graph_is_told_beside_the_other_outputs_too(option: str) -> None:
    code, shown, complaints = hermes("graph", "-", option, typed=altered(content="Capital of Spain?"))
    assert (code, complaints.count("\n"), complaints.startswith("hermes: altered after it was saved: ")) == (1, 1, True)
    if option == "--json":
        assert (json.loads(shown)["status"], json.loads(shown)["problems"]) == ("broken", [complaints.removeprefix("hermes: ").strip()])
    else:
        assert "Capital of Spain?" in shown


def test_a_complaint_is_one_line_whatever_the_document_holds() -> None:
    document = json.loads(small().to_json())
    document["graphs"][0]["responses"][0]["id"] = "0" * 64
    document["graphs"][0]["responses"][0]["sample_id"] = "a\nb\x1b[31m [bold]c[/] :smile: " + "long " * 50
    code, _, complaints = hermes("graph", "-", typed=json.dumps(document))
    assert (code, complaints.count("\n"), "\x1b" in complaints) == (1, 2, False)  # the root, and the response
    assert "(sample a b�[31m [bold]c[/] :smile: long long" in complaints


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not a message graph: document: not JSON (Expecting value: line 1 column 1 (char 0))"),
        (b"hello", "is not a message graph: document: not JSON (Expecting value: line 1 column 1 (char 0))"),
        (b"[1]", "is not a message graph: document: expected an object, got list"),
        (b'{"form\\nat": 1}', "is not a message graph: format: expected 'hermes.graph', got None"),
        (
            b'{"format": "hermes.graph", "version": 9}',
            "is not a message graph: version: this reader knows versions 1 and 2, the document says 9",
        ),
        (b'{"format": "hermes.graph", "version": 1, "a\\nb": 1}', "is not a message graph: document.a b: unknown field"),
        (b'"caf\xe9"', "is not a message graph: not UTF-8 text"),
        (small().to_json().encode("utf-16"), "is not a message graph: not UTF-8 text"),
    ],
)
def test_what_is_not_a_graph_is_refused_in_one_line(in_folder: Path, content: bytes, complaint: str) -> None:
    Path("it").write_bytes(content)
    assert hermes("graph", "it") == (2, "", f"hermes: it {complaint}\n")
    assert hermes("graph", "-", typed=content) == (2, "", f"hermes: standard input {complaint}\n")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("missing.json", "cannot read missing.json: No such file or directory"),
        (".", "cannot read .: Is a directory"),
        ("small.json/x", "cannot read small.json/x: Not a directory"),
        ("two\nlines", "cannot read two lines: No such file or directory"),
    ],
)
@pytest.mark.parametrize("option", [[], ["--json"], ["--mermaid"]])
def test_what_cannot_be_read_is_refused_in_one_line(in_folder: Path, name: str, complaint: str, option: list[str]) -> None:
    assert hermes("graph", name, *option) == (2, "", f"hermes: {complaint}\n")


def test_two_kinds_of_output_at_once_are_refused(in_folder: Path) -> None:
    assert hermes("graph", "small.json", "--json", "--mermaid") == (
        2,
        "",
        "hermes: --mermaid, --json and --svg exclude each other; give one of them\n",
    )


# --- hermes demo


def test_the_demo_plays_to_its_end_without_waiting_when_nobody_watches() -> None:
    code, shown, complaints = hermes("demo")
    assert (code, complaints) == (0, "")
    assert [f"{number}. " in shown for number in range(1, 8)] == [True] * 6 + [False]
    assert shown.endswith("verify(): ok (4 responses, every id computed again)\n")
    assert "Enter to go on" not in shown


def test_the_demo_saves_a_graph_and_the_line_that_it_prints_draws_it(in_folder: Path) -> None:
    name = "my [bold]tour[] :smile:.json"
    code, shown, _ = hermes("demo", "--save", name)
    line = shown.splitlines()[-1]
    assert (code, line) == (0, f"Saved. Look at it again: hermes graph '{name}'")
    again = hermes(*shlex.split(line.partition(": hermes ")[2]))
    assert (again[0], again[2]) == (0, "")
    title, *rows, verdict = again[1].splitlines()
    assert (title, verdict) == (f"{name}  5 messages, 4 versions, 4 responses", "verify: ok")
    assert "\n".join(rows) in shown  # the picture of the last scene


@pytest.mark.parametrize(
    ("target", "why"),
    [(".", "Is a directory"), ("nowhere/tour.json", "No such file or directory"), ("small.json/x", "Not a directory")],
)
def test_a_tour_that_cannot_be_saved_says_so_in_one_line(in_folder: Path, target: str, why: str) -> None:
    code, shown, complaints = hermes("demo", "--save", target)
    assert (code, complaints) == (2, f"hermes: cannot write {target}: {why}\n")
    assert "Saved" not in shown
    assert list(in_folder.iterdir()) == [in_folder / "small.json"]


def test_the_demo_waits_for_enter_when_told_to() -> None:
    code, shown, _ = hermes("demo", "--pause", typed="\n" * 5)
    assert (code, shown.count("Enter to go on…")) == (0, 5)
    assert shown.endswith("verify(): ok (4 responses, every id computed again)\n")


def test_the_end_of_input_ends_the_demo_politely() -> None:
    code, shown, complaints = hermes("demo", "--pause", typed="\n")
    assert (code, complaints, shown.count("Enter to go on…")) == (0, "", 2)
    assert shown.endswith("\nUntil next time.\n")


def test_a_tour_that_ends_early_does_not_pretend_to_have_saved(in_folder: Path) -> None:
    code, shown, complaints = hermes("demo", "--pause", "--save", "tour.json", typed="")
    assert (code, complaints) == (2, "hermes: the tour ended early; nothing was written to tour.json\n")
    assert shown.endswith("\nUntil next time.\n")
    assert not Path("tour.json").exists()


# --- the command itself


def test_version_is_the_one_that_was_installed() -> None:
    assert hermes("--version") == (0, f"hermes {__version__}\n", "")
    assert version("hermes-graph") == __version__


@pytest.mark.parametrize("command", [[], ["demo"], ["graph"]])
def test_every_command_has_help(command: list[str]) -> None:
    code, shown, complaints = hermes(*command, "--help")
    assert (code, complaints) == (0, "")
    for word in ("Usage", *(command or ["demo", "graph"])):
        assert word in shown


def test_no_command_at_all_shows_the_help_and_an_unknown_one_is_bad_input() -> None:
    code, shown, complaints = hermes()
    assert (code, "Usage" in shown + complaints, "Traceback" in complaints) == (2, True, False)
    code, shown, complaints = hermes("draw")
    assert (code, shown, "draw" in complaints) == (2, "", True)


@pytest.mark.parametrize("command", [(sys.executable, "-m", "hermes"), (CONSOLE_SCRIPT,)], ids=["python -m hermes", "hermes"])
def test_both_ways_to_start_it_are_the_same_command(in_folder: Path, command: tuple[str | Path, ...]) -> None:
    Path("altered.json").write_text(altered(content="Capital of Spain?"), encoding="utf-8")
    assert process("--version", command=command) == (0, f"hermes {__version__}\n", "")
    assert process("graph", "small.json", command=command) == (0, SMALL_PICTURE.format(title="small.json", status="ok"), "")
    assert process("graph", "altered.json", "--json", command=command) == hermes("graph", "altered.json", "--json")
    assert process("graph", "nope", command=command) == (2, "", "hermes: cannot read nope: No such file or directory\n")


BARE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from hermes.cli import main; main()"


@pytest.mark.parametrize("arguments", [[], ["demo"], ["graph", "small.json"], ["--version"]])
def test_without_its_extra_the_command_says_what_to_install(arguments: list[str]) -> None:
    complaint = "hermes: the command line needs typer; install it: pip install 'hermes-graph[cli]'\n"
    assert process(SRC, *arguments, command=(sys.executable, "-I", "-S", "-c", BARE)) == (2, "", complaint)


def test_a_fault_of_hermes_is_not_taken_for_a_missing_extra(tmp_path: Path) -> None:
    (tmp_path / "hermes" / "cli").mkdir(parents=True)
    (tmp_path / "hermes" / "__init__.py").touch()
    (tmp_path / "hermes" / "cli" / "__init__.py").write_text((SRC / "hermes" / "cli" / "__init__.py").read_text(encoding="utf-8"))
    code, shown, complaints = process(tmp_path, command=(sys.executable, "-I", "-c", BARE))
    assert (code, shown) == (1, "")
    assert complaints.endswith("ModuleNotFoundError: No module named 'hermes.cli.command_table'\n")


# --- streams


def test_standard_input_is_utf8_whatever_the_locale_says(in_folder: Path) -> None:
    chat = MessageGraph([{"role": "user", "content": "café"}], seed="s")
    document = json.dumps(json.loads(chat.to_json()), ensure_ascii=False).encode()
    for encoding in ("latin-1", "ascii:surrogateescape"):
        env = environment(PYTHONIOENCODING=encoding)
        code, shown, complaints = process("graph", "-", "--json", input=document, env=env)
        assert (code, json.loads(shown)["status"], complaints) == (0, "ok", "")
        refused = (2, "", "hermes: standard input is not a message graph: not UTF-8 text\n")
        assert process("graph", "-", input=b'"caf\xe9"', env=env) == refused


def test_a_terminal_without_emojis_gets_everything_else(in_folder: Path) -> None:
    for arguments in (["graph", "small.json"], ["graph", "small.json", "--mermaid"], ["demo"]):
        code, shown, complaints = process(*arguments, env=environment(PYTHONIOENCODING="latin-1"))
        assert (code, complaints, shown.isascii()) == (0, "", True)
        assert "Capital of Italy?" in shown
        assert "\\U0001f464" in shown


def test_a_reader_that_leaves_early_does_not_make_the_graph_look_altered(in_folder: Path) -> None:
    for arguments in (["graph", "small.json"], ["graph", "small.json", "--json"], ["demo"]):
        reader, writer = os.pipe()
        os.close(reader)
        assert process(*arguments, stdout=writer) == (-signal.SIGPIPE, "", "")
        os.close(writer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_is_told_in_one_line_and_does_not_make_the_graph_look_altered(in_folder: Path) -> None:
    for arguments in (["graph", "small.json"], ["graph", "small.json", "--json"], ["demo"]):
        for env in (environment(PYTHONUNBUFFERED="1"), environment(PYTHONUNBUFFERED="")):
            with Path("/dev/full").open("w") as full:
                assert process(*arguments, stdout=full, env=env) == (2, "", "hermes: cannot write the output: No space left on device\n")


def test_closed_standard_input_is_no_terminal_and_no_graph(in_folder: Path) -> None:
    closed = ("sh", "-c", 'exec "$0" -m hermes "$@" <&-', sys.executable)
    code, shown, complaints = process("demo", command=closed)
    assert (code, complaints, "Enter to go on" in shown) == (0, "", False)
    assert process("graph", "-", command=closed) == (2, "", "hermes: cannot read standard input: it is closed\n")


# --- a terminal


def test_the_demo_does_not_wait_for_an_input_that_stays_silent() -> None:
    reader, writer = os.pipe()  # open until the demo is over, and nothing is ever written
    code, shown, complaints = process("demo", stdin=reader)
    os.close(reader)
    os.close(writer)
    assert (code, complaints, "Enter to go on" in shown) == (0, "", False)


def test_the_demo_does_not_wait_when_its_output_goes_to_a_file() -> None:
    keyboard, stdin = os.openpty()
    code, shown, complaints = process("demo", stdin=stdin)
    os.close(stdin)
    os.close(keyboard)
    assert (code, complaints, "Enter to go on" in shown) == (0, "", False)


class Terminal:
    """A command in a terminal of its own. What is typed arrives as keys, so Ctrl-C is a signal and Ctrl-D the end of input."""

    def __init__(self, running: "subprocess.Popen[bytes]") -> None:
        self.running = running
        self.shown = b""

    def read_until(self, text: str, times: int = 1) -> None:
        while self.shown.count(text.encode()) < times:
            assert self._read(), f"ended before it showed {text!r} {times} times:\n{self.shown.decode()}"

    def type(self, keys: str) -> None:
        assert self.running.stdin is not None
        self.running.stdin.write(keys.encode())
        self.running.stdin.flush()

    def end(self) -> tuple[int, str]:
        while self._read():
            pass
        return self.running.wait(TIMEOUT_S), self.text()

    def text(self) -> str:
        """What a reader sees: without colours."""
        return re.sub("\x1b\\[[0-9;]*m", "", self.shown.decode())

    def _read(self) -> bytes:
        assert self.running.stdout is not None
        output = self.running.stdout.fileno()
        assert select.select([output], [], [], TIMEOUT_S)[0], f"silent for {TIMEOUT_S} s after:\n{self.shown.decode()}"
        data = os.read(output, 65_536)
        self.shown += data
        return data


@contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    # A process in between, because forking a terminal from one that has threads is a warning, and warnings fail.
    spawn = """
import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
"""
    command = [sys.executable, "-c", spawn, sys.executable, "-m", "hermes", *arguments]
    env = environment(TERM="xterm-256color")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as running:
        try:
            yield Terminal(running)
        finally:
            running.kill()


def test_in_a_terminal_the_demo_waits_for_enter_between_scenes() -> None:
    with terminal("demo") as screen:
        for scene in range(1, 6):
            screen.read_until("Enter to go on", times=scene)
            assert (f"{scene}. " in screen.text(), f"{scene + 1}. " in screen.text()) == (True, False)
            screen.type("\n")
        code, shown = screen.end()
    assert (code, "6. What you get out of it" in shown, "Until next time." in shown) == (0, True, False)


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_in_a_terminal_ctrl_c_and_ctrl_d_end_the_demo_politely(key: str) -> None:
    with terminal("demo") as screen:
        screen.read_until("Enter to go on")
        screen.type("\n")
        screen.read_until("Enter to go on", times=2)
        screen.type(key)
        code, shown = screen.end()
    assert (code, "Until next time." in shown, "3. A compaction" in shown, "Traceback" in shown) == (0, True, False, False)


def test_in_a_terminal_the_demo_can_be_told_not_to_wait() -> None:
    with terminal("demo", "--no-pause") as screen:
        code, shown = screen.end()
    assert (code, "6. What you get out of it" in shown, "Enter to go on" in shown) == (0, True, False)
