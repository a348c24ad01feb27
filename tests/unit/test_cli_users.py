"""`hermes users` on the real stores: what it does, what it says, and with which code it ends."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import structlog
from click.testing import Result
from typer.testing import CliRunner

from hermes.app.master_keys import new_master_key
from hermes.app.root import Hermes, open_hermes
from hermes.cli import build_app
from hermes.config import load
from hermes.ports.memories import Dream, DreamDepth, DreamKind, DreamReview, FactChange, FactOrigin, NewFact
from hermes.ports.users import UserState
from hermes.turn import Envelope, MessageEvent, Platform
from tests.flows.my_data import MONDAY, NOW

SETTINGS = """
[credits]
signup_grant = 50
referral_reward = 7

[tiers.gold]
chain = ["scripted"]
day_tokens = 1
"""

NO_RECORDS = "0 bookings, 0 reminders, 0 price watchers, 0 meals, 0 orders"


class Console:
    """The command line on stores of this test's own, and Hermes itself on the same."""

    def __init__(self, folder: Path, database_url: str, redis_url: str) -> None:
        self.folder = folder
        self.environ = {"HERMES_HOME": str(folder / "home"), "HERMES_DATABASE_URL": database_url, "HERMES_REDIS_URL": redis_url}

    def __call__(self, *words: object) -> Result:
        arguments = ["users", *map(str, words)]
        return CliRunner().invoke(build_app(arguments), arguments, env={**self.environ, "COLUMNS": "250"})

    def said(self, *words: object) -> str:
        """What a command that went well said."""
        result = self(*words)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def read(self, *words: object) -> Any:
        return json.loads(self.said(*words, "--json"))

    def refused(self, *words: object) -> str:
        """The one line of a command that ended with bad input, and said nothing else."""
        result = self(*words)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.stderr
        return result.stderr.removeprefix("hermes: ").removesuffix("\n")

    def inside(self, act: Callable[[Hermes], Awaitable[Any]]) -> Any:
        """Do something with Hermes itself."""

        async def opened() -> Any:
            async with open_hermes(load(self.environ, file=self.folder / "hermes.toml")) as hermes:
                return await act(hermes)

        return asyncio.run(opened())

    def writes(self, sender: str, text: str = "hello") -> UUID:
        """Somebody whom nobody knows writes on Telegram; return who that is."""

        async def accept(hermes: Hermes) -> UUID:
            event = MessageEvent(platform=Platform.TELEGRAM, sender_id=sender, text=text)
            envelope = Envelope(event=event, account="bali", channel_id=sender, event_key=str(uuid4()))
            receipt = await hermes.intake.accept(envelope, newcomer=UserState.STRANGER)
            async with hermes.database.begin() as tx:
                claim: Any = await hermes.adapters.inbox.claim(tx, receipt.turn_id)
                await hermes.adapters.inbox.finish(tx, claim)
            return UUID(str(claim.user_id))

        found: UUID = self.inside(accept)
        return found

    def learns(self, user_id: str) -> None:
        """Know that somebody is vegan, and was vegetarian; and dream of it."""

        async def learn(hermes: Hermes) -> None:
            who, memories = UUID(user_id), hermes.adapters.memories
            async with hermes.database.begin() as tx:
                [old] = await memories.change(
                    tx, who, [FactChange(fact=NewFact(text="vegetarian", key="diet", origin=FactOrigin.RULE, source_turn=TURN))], now=NOW
                )
                new = NewFact(text="vegan \x1b[31m[bold]", key="diet", origin=FactOrigin.TOOL, confidence=0.5)
                await memories.change(tx, who, [FactChange(fact=new, supersedes=(old.id,))], now=NOW)
                lines = [Dream(kind=DreamKind.INSIGHT, text="owns a boat", review=DreamReview.REJECTED, reason="no evidence")]
                await hermes.adapters.dreams.add(tx, who, DreamDepth.DEEP, MONDAY, lines, now=NOW)

        self.inside(learn)


NO_CHANNEL = "channels none; link one: hermes users link"
TURN = UUID("11111111-1111-4111-8111-111111111111")


@pytest.fixture
def users(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hermes.toml").write_text(SETTINGS)
    handlers = logging.getLogger().handlers[:]
    yield Console(tmp_path, database_url, redis_url)
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers  # the commands set up a log of their own


# --- from signing up to the first credit


def test_somebody_is_signed_up_linked_and_let_in(users: Console) -> None:
    made = users.read("create", "--tier", "gold", "--language", "id")
    expected = {"state": "invited", "tier": "gold", "language": "id", "referred_by": None, "credits": {"available": 0, "reserved": 0}}
    assert {name: made[name] for name in expected} == expected
    who = made["id"]
    linked = users.said("link", who[:8], "whatsapp", "bali", "628123456")
    assert linked == f"{who} writes from whatsapp:bali/628123456.\n"
    assert users.said("link", who, "whatsapp", "bali", "628123456") == "whatsapp:bali/628123456 is theirs already; nothing changed.\n"
    assert users.said("activate", made["referral_code"]) == f"{who} was invited and is active now, with 50 credits.\n"
    assert users.said("activate", "whatsapp:bali/628123456") == f"{who} is active already, with 50 credits.\n"
    shown = users.read("show", who)
    assert (shown["state"], shown["credits"], shown["known"]) == (
        "active",
        {"available": 50, "reserved": 0},
        {"facts": 0, "superseded": 0, "dreams": 0},
    )
    assert shown["channels"] == [{"account": "bali", "platform": "whatsapp", "sender_id": "628123456"}]


def test_a_stranger_is_found_by_where_they_write_from_and_let_in(users: Console) -> None:
    stranger = users.writes("42")
    [listed] = users.read("list", "--state", "stranger")
    assert (listed["id"], listed["channels"]) == (str(stranger), ["telegram:bali/42"])
    activated = users.read("activate", "telegram:bali/42")
    assert (activated["id"], activated["state"], activated["credits"]["available"]) == (str(stranger), "active", 50)
    assert users.read("list", "--state", "stranger") == []


def test_a_stranger_makes_room_for_a_user(users: Console) -> None:
    stranger, made = users.writes("42"), users.read("create", "--active")
    linked = users.read("link", made["id"], "telegram", "bali", "42")
    assert (linked["channel"], linked["is_new"], linked["replaced"]) == ("telegram:bali/42", True, str(stranger))
    assert users.refused("show", stranger) == "this user was erased; Hermes has no data about them"
    users.writes("43")
    assert "is the channel of another user" in users.refused("link", users.read("create")["id"], "telegram", "bali", "42")
    said = users.said("link", made["id"], "telegram", "bali", "43")
    assert said.startswith(f"{made['id']} writes from telegram:bali/43; the stranger ")
    assert said.endswith(" who wrote from there is erased.\n")


def test_a_friend_is_rewarded_once(users: Console) -> None:
    friend = users.read("create", "--active")
    brought = users.read("create", "--active", "--referred-by", friend["referral_code"])
    assert (brought["referred_by"], brought["credits"]["available"]) == (friend["id"], 57)
    assert users.read("show", friend["id"])["credits"]["available"] == 57
    assert users.refused("activate", friend["id"], "--referred-by", brought["referral_code"]) == (
        f"{friend['id']} is active already; only a user who is not active yet can be referred"
    )
    assert users.refused("create", "--referred-by", "nobody") == "there is no referral code 'nobody'"
    assert len(users.read("list")) == 2, "who could not be brought was not signed up either"


def test_credits_are_given_once_for_a_key_and_never_taken(users: Console) -> None:
    who, other = users.read("create")["id"], users.read("create")["id"]
    assert users.said("credit", who, 10) == f"{who} got 10 credits, and has 10 now.\n"
    given = users.read("credit", who, 100, "--reason", "purchase", "--idempotency-key", "order-17")
    assert (given["event"], given["is_new"], given["credits"]) == ("purchase:order-17", True, {"available": 110, "reserved": 0})
    assert users.said("credit", who, 100, "--reason", "purchase", "--idempotency-key", "order-17") == (
        f"{who} got the credits of purchase:order-17 before; nothing changed, and has 110 now.\n"
    )
    assert users.refused("credit", other, 100, "--reason", "purchase", "--idempotency-key", "order-17") == (
        f"the event purchase:order-17 gave credits to another user, {who}"
    )
    for amount in ("-5", "0", "1.5", "many", "1000000000"):
        assert users.refused("credit", who, amount) == (
            f"'{amount}' is not a number of credits; expected 1 to 999999999: this command gives credits and cannot take them away"
        )
    for reason in ("signup", "Two words", ""):
        assert users.refused("credit", who, 1, "--reason", reason).startswith(
            f"'{reason}' is not a reason; expected one word such as purchase"
        )
    assert users.read("show", who)["credits"]["available"] == 110


# --- tiers and languages


def test_a_tier_is_one_of_the_settings(users: Console) -> None:
    who = users.read("create")["id"]
    assert users.said("tier", who, "gold") == f"{who} is in the tier gold now; before, in free.\n"
    assert users.refused("tier", who, "god") == "there is no tier 'god'; did you mean gold?"
    assert users.refused("create", "--tier", "platinum").startswith("there is no tier 'platinum'; ")
    assert users.read("tier", who, "venue-growth")["tier"] == "venue-growth"


def test_a_users_word_on_training_is_recorded_and_taken_back(users: Console) -> None:
    who = users.read("create")["id"]
    assert users.said("training", who, "yes") == f"The messages of {who} may be used for training.\n"
    assert users.read("show", who)["trains"] is True
    assert users.said("training", who, "no") == f"The messages of {who} may not be used for training.\n"


def test_a_language_is_one_of_sixteen_or_what_they_write_in(users: Console) -> None:
    who = users.read("create")["id"]
    assert users.said("language", who, "th") == f"Hermes answers {who} in th.\n"
    assert users.said("language", who, "auto") == f"Hermes answers {who} in the language they write in.\n"
    sixteen = "en id es fr de it pt nl ru zh ja ko ar hi th tr"
    assert users.refused("language", who, "klingon") == f"Hermes does not speak 'klingon'; it speaks {sixteen}"
    assert users.refused("create", "--language", "pt-BR") == f"Hermes does not speak 'pt-BR'; it speaks {sixteen}"


# --- who is meant


def test_nobody_is_meant_by_what_means_nobody(users: Console) -> None:
    users.read("create")
    for command in (["show"], ["memory"], ["activate"], ["forget"], ["tier"], ["language"], ["link"], ["credit"]):
        rest = {"tier": ["pro"], "language": ["en"], "link": ["telegram", "bali", "1"], "credit": ["1"]}.get(command[0], [])
        assert users.refused(*command, "zzzz", *rest) == (
            "there is no user 'zzzz'; expected an id, its beginning, a referral code, or platform:account/sender"
        )
        assert users.refused(*command, uuid4(), *rest).startswith("there is no user ")
    assert users.refused("link", users.read("list")[0]["id"], "telegramm", "bali", "1") == (
        "there is no platform 'telegramm'; did you mean telegram?"
    )
    assert users.refused("link", users.read("list")[0]["id"], "telegram", "bali", "a\nb").endswith(
        "is not a name; expected text on one line"
    )


def test_an_empty_house_says_what_to_do(users: Console) -> None:
    assert users.said("list") == "There is no user; sign one up: hermes users create\n"
    assert users.read("list") == []


# --- what is known, and the way out


def test_all_that_is_known_is_shown_with_where_it_comes_from(users: Console) -> None:
    who = users.read("create")["id"]
    assert users.said("memory", who) == f"Hermes knows nothing about {who}.\n"
    users.learns(who)
    found = users.read("memory", who)
    old, new = found["facts"]
    assert (found["id"], old["text"], old["superseded_by"], old["source_turn"], new["confidence"]) == (
        who,
        "vegetarian",
        new["id"],
        str(TURN),
        0.5,
    )
    assert [dream["text"] for dream in found["dreams"]] == ["owns a boat"]
    header, first, second, third = (" ".join(line.split()) for line in users.said("memory", who).splitlines())
    assert header == "since key what how confidence state turn id"
    assert first == f"2026-11-15 12:00 diet vegetarian said 100% ended 2026-11-15 {TURN} {old['id']}"
    assert second == f"2026-11-15 12:00 diet vegan \N{REPLACEMENT CHARACTER}[31m[bold] by a tool 50% current {new['id']}"
    assert third == f"2026-11-09 owns a boat deep dream rejected: no evidence {found['dreams'][0]['id']}"
    shown = [" ".join(line.split()) for line in users.said("show", who).splitlines()]
    assert shown[1:6] == ["state invited", "tier free", "language what they write in", "credits 0 available, 0 reserved", NO_CHANNEL]
    assert shown[-3:] == [
        "known 1 fact, 1 older, 1 line of dreams",
        "kept 0 messages in 0 conversations",
        "0 bookings, 0 reminders, 0 price watchers, 0 meals, 0 orders",
    ]


def test_who_is_forgotten_is_gone_after_a_second_word(users: Console) -> None:
    stranger = str(users.writes("42"))
    users.learns(stranger)
    assert users.refused("forget", stranger[:8]) == (
        f"nothing was deleted; {stranger} (stranger, 1 message, 2 facts, {NO_RECORDS}) is erased for good with: "
        f"hermes users forget {stranger[:8]} --yes"
    )
    assert users.read("show", stranger)["state"] == "stranger"
    assert users.said("forget", stranger[:8], "--yes") == f"{stranger} is erased: 1 message, 2 facts, {NO_RECORDS}.\n"
    other = users.read("create")["id"]
    assert users.read("forget", other, "--yes") == {
        "id": other,
        "state": "deleted",
        "forgotten": dict.fromkeys(("facts", "conversations", "messages", "bookings", "reminders", "price_watchers", "meals", "orders"), 0),
    }
    for command in (["show"], ["memory"], ["activate"], ["forget"], ["forget", "--yes"], ["credit", "1"]):
        words = [command[0], stranger, *command[1:]]
        assert users.refused(*words) == "this user was erased; Hermes has no data about them"
    assert users.read("list") == []
    assert [user["id"] for user in users.read("list", "--state", "deleted")] == [other, stranger]


def test_what_is_done_to_users_is_in_the_audit_log_and_memory_is_opened_with_a_reason_in_production(users: Console) -> None:
    users.environ |= {"HERMES_ENVIRONMENT": "production", "HERMES_MASTER_KEYS": new_master_key()}
    who = users.read("create")["id"]
    users.said("credit", who, 10)
    users.said("tier", who, "gold")
    assert users.refused("memory", who) == "say in a few words why you open this; the words go into the audit log: --reason"
    assert users.said("memory", who, "--reason", "they asked") == f"Hermes knows nothing about {who}.\n"
    users.said("forget", who, "--yes")
    with psycopg.connect(users.environ["HERMES_DATABASE_URL"]) as connection:
        rows = connection.execute("select action, subject, allowed, reason, face, role from audit order by id").fetchall()
    assert rows == [
        (action, who, allowed, reason, "cli", "owner")
        for action, allowed, reason in (
            ("user.credit", True, ""),
            ("user.tier", True, ""),
            ("content.open", False, ""),
            ("content.open", True, "they asked"),
            ("user.forget", True, ""),
        )
    ]


def test_help_teaches_with_examples(users: Console) -> None:
    page = users.said("--help")
    for line in ("hermes users activate telegram:bali/42", "hermes users link 3f2a whatsapp bali 628123456", "USER is an id"):
        assert line in page
    for command in ("create", "activate", "credit", "tier", "language", "link", "show", "list", "memory", "forget"):
        assert users(command, "--help").exit_code == 0
