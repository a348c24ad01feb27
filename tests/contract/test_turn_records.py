"""Everything of one turn, for operators: what is known without a key, and what only a key opens."""

import json
from dataclasses import asdict
from uuid import UUID, uuid4

from hermes.console.turn_content import build_content
from hermes.ports.backends import Usage
from hermes.ports.models import CallAttempt, CallOutcome, CallPurpose, CallSource, ModelCall
from hermes.ports.outbox import OutboxState
from hermes.ports.tools import ToolResult
from hermes.ports.turn_record import CreditRecord, StoredText, TurnRecord, WhyHidden
from hermes.router.effects import JournaledAnswer
from hermes.router.steps.build_messages import Prompt
from hermes.router.steps.run_tools import MAX_TOOL_CALLS, TOO_MANY_CALLS
from hermes.stores.postgres.credits import PostgresCredits
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.journal import PostgresJournal
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.postgres.outbox import PostgresOutbox
from hermes.stores.postgres.turn_record import PostgresTurnRecords, PostgresTurnWords
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.turn import Platform
from tests.contract.turns import claim_turn, new_claim, new_turn

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def find(database: Database, turn_id: UUID, accounts: frozenset[str] | None = None) -> TurnRecord:
    async with database.begin() as tx:
        found = await PostgresTurnRecords().find(tx, turn_id, accounts, live_s=10)
    assert found is not None
    return found


async def test_a_turn_knows_its_neighbours_and_what_it_waits_behind(database: Database, keyring: Keyring) -> None:
    first, second, third = [await new_turn(database, keyring) for _ in range(3)]
    await new_turn(database, keyring, channel="another")
    found = [await find(database, turn_id) for turn_id in (first, second, third)]
    assert [(turn.previous_id, turn.next_id, turn.behind) for turn in found] == [
        (None, second, None),
        (first, third, first),
        (second, None, first),
    ]
    claim = await claim_turn(database, keyring, first)
    inbox = PostgresInbox(keyring)
    async with database.begin() as tx:
        await inbox.join(tx, claim, await inbox.waiting_behind(tx, claim, 1))
        await inbox.finish(tx, claim)
    found = [await find(database, turn_id) for turn_id in (first, second, third)]
    assert [(turn.state, turn.joined, turn.joined_to, turn.behind) for turn in found] == [
        ("done", [second], None, None),
        ("done", [], first, None),
        ("waiting", [], None, None),
    ]
    assert found[2].previous_id == first, "a joined message has no turn of its own"


async def test_a_revived_message_waits_behind_those_that_came_since(database: Database, keyring: Keyring) -> None:
    """As the queue has it: its job is newer than theirs."""
    revived, newer = [await new_turn(database, keyring) for _ in range(2)]
    async with database.begin() as tx:
        await connection_of(tx).execute(
            "update inbox set attempts = 3, revived_after = 3, revived_at = now() + interval '1 second' where turn_id = %s", [revived]
        )
    found = [await find(database, turn_id) for turn_id in (revived, newer)]
    assert [turn.behind for turn in found] == [newer, None]
    assert found[0].revived_at is not None


async def test_what_is_known_without_a_key(database: Database, keyring: Keyring) -> None:
    claim = await new_claim(database, keyring, "a secret word")
    attempts = [CallAttempt("haiku", "anthropic", "claude-haiku", "answered", 5)]
    call = ModelCall(
        id=uuid4(),
        day=(await find(database, claim.turn_id)).now.date(),
        account_id="shop",
        source=CallSource.ROUTER,
        purpose=CallPurpose.ANSWER,
        tier="free",
        model="claude-haiku",
        outcome=CallOutcome.ANSWERED,
        latency_ms=800,
        turn_id=claim.turn_id,
        user_id=claim.user_id,
        platform=Platform.REST,
        attempts=attempts,
        usage=Usage(tokens_in=100, tokens_out=20, cache_read=10),
        micro_usd=7,
        rate={"tokens_in": 1, "tokens_out": 2},
    )
    async with database.begin() as tx:
        await connection_of(tx).execute("update inbox set traceparent = %s", [TRACE])
        await PostgresModelCalls().add(tx, call)
        await PostgresCredits().grant(tx, claim.user_id, 5, "gift")
        await PostgresCredits().reserve(tx, claim.user_id, claim.turn_id)
        await PostgresOutbox(keyring).put(tx, claim, ["a secret answer"], OutboxState.SENT)
    turn = await find(database, claim.turn_id, frozenset({"shop"}))
    [recorded] = turn.calls
    assert (recorded.call, turn.micro_usd, turn.tokens) == (call, 7, 120)
    assert [(part.part, part.state, part.tries, part.rank) for part in turn.deliveries] == [(0, "sent", 0, None)]
    assert [(line.kind, line.amount, line.attempt) for line in turn.credits] == [("reserve", 1, 1)]
    assert isinstance(turn.credits[0], CreditRecord)
    assert (turn.trace_id, turn.sender_id, turn.platform, turn.meta) == (TRACE.split("-")[1], "c1", Platform.REST, {})
    assert "secret" not in repr(turn)
    async with database.begin() as tx:
        assert await PostgresTurnRecords().find(tx, claim.turn_id, frozenset({"another"}), live_s=10) is None
        assert await PostgresTurnRecords().find_call(tx, call.id, frozenset({"another"})) is None
        found = await PostgresTurnRecords().find_call(tx, call.id, None)
    assert found is not None
    assert (found.recorded.call, found.conversation_id, found.is_erased) == (call, None, False)


async def test_a_text_that_cannot_be_opened_says_why(database: Database, keyring: Keyring) -> None:
    claim = await new_claim(database, keyring, "a secret word")
    journal, words = PostgresJournal(keyring), PostgresTurnWords(keyring)
    async with database.begin() as tx:
        await journal.begin(tx, claim, "call_model", 0, b"asked")
        await PostgresOutbox(keyring).put(tx, claim, ["an answer"], OutboxState.SENT)
        running = await words.read(tx, claim.turn_id)
        await journal.finish(tx, claim, "call_model", 0, b"answered", facts={})
        ended = await words.read(tx, claim.turn_id)
        locked = await PostgresTurnWords(Keyring(MasterKeys.parse([new_master_key()]))).read(tx, claim.turn_id)
        await connection_of(tx).execute("update run_events set request = null, result = null")
        expired = await words.read(tx, claim.turn_id)
        prompt = await words.read_prompt(tx, claim.turn_id)
        await PostgresUsers(keyring).forget(tx, claim.user_id)
        erased = await words.read(tx, claim.turn_id)
    assert [(effect.request, effect.result) for effect in running.effects] == [(StoredText(b"asked"), StoredText(None, WhyHidden.RUNNING))]
    assert [(effect.request, effect.result) for effect in ended.effects] == [(StoredText(b"asked"), StoredText(b"answered"))]
    assert ([message.text for message in ended.messages], [part.body.body for part in ended.parts]) == (["a secret word"], [b"an answer"])
    hidden = [
        {
            *(part.body.hidden for part in read.parts),
            *(effect.result.hidden for effect in read.effects),
            *(each.hidden for each in read.messages),
        }
        for read in (locked, erased)
    ]
    assert hidden == [{WhyHidden.UNREADABLE}, {WhyHidden.ERASED}]
    assert [effect.result.hidden for effect in expired.effects] == [prompt.hidden] == [WhyHidden.EXPIRED]


async def test_the_context_after_too_many_tools_has_the_results_that_the_journal_does_not_keep(
    database: Database, keyring: Keyring
) -> None:
    claim, journal = await new_claim(database, keyring), PostgresJournal(keyring)
    asked = MAX_TOOL_CALLS + 1
    calls = [{"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}} for number in range(asked)]
    facts = {"backend": "own", "finish_reason": "tool_calls", "tokens_in": 1, "tokens_out": 1, "micro_usd": 1, "rate": {}, "latency_ms": 1}
    answer = JournaledAnswer(message={"role": "assistant", "tool_calls": calls}, call_id="a", model="small", attempts=(), **facts)
    prompt = Prompt(system="Be brief.", history=(), question={"role": "user", "content": "look around"}, head="", offset=0)
    async with database.begin() as tx:
        await journal.begin(tx, claim, "call_model", 0, prompt.to_bytes())
        await journal.finish(tx, claim, "call_model", 0, answer.to_bytes(), facts={})
        for number in range(MAX_TOOL_CALLS):
            await journal.begin(
                tx, claim, "run_tools", number, json.dumps({"id": f"c{number}", "name": "look", "arguments": "{}"}).encode()
            )
            result = ToolResult(f"c{number}", "look", "nothing", is_error=False, ms=1)
            await journal.finish(tx, claim, "run_tools", number, json.dumps(asdict(result)).encode(), facts={})
        await journal.begin(tx, claim, "call_model", 1, b"{}")
        content = build_content(await PostgresTurnWords(keyring).read(tx, claim.turn_id), StoredText(None))
    first, second = content.contexts
    assert [each.message["role"] for each in first.messages] == ["system", "user"]
    assert [each.message["role"] for each in second.messages] == ["system", "user", "assistant", *["tool"] * asked]
    assert [each.message["content"] for each in second.messages[-2:]] == ["nothing", TOO_MANY_CALLS]
    assert [each.is_new for each in second.messages] == [False, False, *[True] * (1 + asked)]
    assert (second.answer_hidden, len(content.tools)) == (WhyHidden.RUNNING, MAX_TOOL_CALLS)
