"""While a vendor may have a session's prompt in its cache, the session keeps its tools: not longer, and not for a short prompt."""

from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

import pytest

from hermes.ports.session import Session
from hermes.ports.sessions import RecentHistory
from hermes.ports.tools import GatedTools, ToolCall, ToolResult, ToolUser
from hermes.ports.users import Agent
from hermes.router.pipeline import handle_message
from hermes.router.services import Services
from hermes.router.steps.build_messages import Prompt
from hermes.router.steps.gate_tools import gate_tools
from hermes.router.steps.load_history import LoadedHistory
from hermes.router.steps.resolve_user import ResolvedUser
from hermes.router.sticky_tools import StickyTools
from hermes.testing.memory import RouterHarness
from tests.unit.router.test_pipeline import Does, house


@dataclass
class Watch:
    """The time, which a test sets."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Sticky:
    """Sticky tools with a watch, and sessions by name."""

    watch: Watch = field(default_factory=Watch)
    sessions: dict[str, UUID] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tools = StickyTools(clock=self.watch)

    def send(self, session: str, name: str, *, chars: int = 8_000, tools: int = 0, at: float | None = None) -> None:
        self.watch.now = self.watch.now if at is None else at
        self.tools.note(self.sessions.setdefault(session, uuid4()), name, prompt_chars=chars, tools=tools)

    def kept(self, session: str, *, at: float | None = None) -> str | None:
        self.watch.now = self.watch.now if at is None else at
        return self.tools.set_of(self.sessions.setdefault(session, uuid4()))


def test_a_session_keeps_its_tools_for_five_minutes_after_the_last_prompt() -> None:
    sticky = Sticky()
    sticky.send("a", "venue", at=1_000.0)
    assert [sticky.kept("a", at=at) for at in (1_000.0, 1_299.9, 1_300.0, 5_000.0)] == ["venue", "venue", None, None]
    sticky.send("a", "venue", at=1_200.0)
    assert [sticky.kept("a", at=at) for at in (1_499.9, 1_500.0)] == ["venue", None]


def test_a_process_that_has_just_started_keeps_nothing() -> None:
    assert [Sticky().kept("a", at=at) for at in (0.0, 10.0, 1_000.0)] == [None, None, None]


def test_the_last_set_counts_and_each_session_has_its_own() -> None:
    sticky = Sticky()
    for session, name in (("a", "venue"), ("b", "memory"), ("a", "full")):
        sticky.send(session, name)
    assert [sticky.kept(session) for session in "abc"] == ["full", "memory", None]


@pytest.mark.parametrize(("chars", "tools", "kept"), [(8_000, 0, "x"), (7_999, 0, None), (7_040, 2, "x"), (7_039, 2, None), (0, 17, "x")])
def test_a_vendor_keeps_no_prompt_that_is_shorter_than_2_000_tokens_with_its_tools(chars: int, tools: int, kept: str | None) -> None:
    sticky = Sticky()
    sticky.send("a", "x", chars=chars, tools=tools)
    assert sticky.kept("a") == kept


def test_a_short_prompt_ends_what_a_long_one_began() -> None:
    sticky = Sticky()
    sticky.send("a", "venue")
    sticky.send("a", "none", chars=100)
    assert sticky.kept("a") is None


def test_of_too_many_sessions_those_go_that_were_silent_longest() -> None:
    sticky = Sticky()
    for number in range(10_000):
        sticky.send(f"{number}", "venue")
    assert sticky.kept("0") == "venue", "ten thousand are remembered"
    sticky.send("0", "venue")
    sticky.send("new", "venue")
    assert [sticky.kept(session) for session in ("0", "1", "2", "9999", "new")] == ["venue", None, "venue", "venue", "venue"]


# --- in step gate_tools


def prompt_of(chars: int, **fields: object) -> Prompt:
    question = {"role": "user", "content": "x" * (chars - 20)}
    return replace(Prompt(system="s" * 20, history=[], question=question, head="", offset=0), **fields)


def gate(made: RouterHarness, services: Services, prompt: Prompt, session: Session, text: str = "a bar") -> Prompt:
    person = ResolvedUser(made.user, Agent(name="hermes"), "en", "free")
    return gate_tools(made.claim(text), prompt, person, LoadedHistory(session, RecentHistory((), "")), services)


def session_of(made: RouterHarness) -> Session:
    return Session(uuid4(), made.conversation_id, made.user.id, None, "", 0)


def warm(made: RouterHarness) -> list[str | None]:
    assert isinstance(made.tools, Does)
    return made.tools.warm


@pytest.mark.parametrize(("chars", "second"), [(7_520, "venue"), (7_519, None)])
def test_the_gate_is_told_the_set_of_a_prompt_that_is_long_enough_with_its_one_tool(chars: int, second: str | None) -> None:
    made = house()
    services, session = made.services, session_of(made)
    assert gate(made, services, prompt_of(chars), session).gate == "venue"
    gate(made, services, prompt_of(chars), session)
    gate(made, services, prompt_of(chars), session_of(made))
    assert warm(made) == [None, second, None], "another session has another prompt"


@dataclass
class Scans(Does):
    """Tools that have one for pictures, which words alone never need."""

    def gate(self, text: str, *, language: str, warm: str | None, has_tool_history: bool) -> GatedTools:
        self.warm.append(warm)
        scan = {"type": "function", "function": {"name": "calorie_scan"}}
        return GatedTools("full", [scan, scan]) if warm == "full" else GatedTools("none", [])

    async def run(self, call: ToolCall, index: int, user: ToolUser) -> ToolResult:
        raise NotImplementedError


def test_the_tools_of_a_picture_serve_one_message_and_the_set_before_them_stays() -> None:
    made = house(tools=Scans())
    services, session = made.services, session_of(made)
    gate(made, services, prompt_of(8_000), session)
    pictured = gate(made, services, prompt_of(8_000, picture_tools=("calorie_scan",)), session)
    assert (pictured.gate, len(pictured.tools)) == ("picture", 2)
    gate(made, services, prompt_of(8_000), session)
    assert warm(made) == [None, "none", "full", "none"], "the third question is which tools there are at all"


async def test_a_long_conversation_keeps_its_tools_from_turn_to_turn() -> None:
    made = house("one", "two", "three")
    services = made.services
    for text in ("a bar", "x" * 8_000, "hi"):
        await handle_message(made.claim(text), services)
    assert warm(made) == [None, None, "venue"]
