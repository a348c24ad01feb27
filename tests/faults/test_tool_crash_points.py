"""A worker is killed at every place of a round of tools. What the tool does happens once, and the user hears of it once.

The model has a reminder set for the second message of `a`. The next worker finds in the journal what the model wanted,
and beside the reminder the note that it was set."""

import signal

import pytest

from tests.faults.house import House
from tests.faults.worker import Trap
from tests.flows.echo import without_note

PLACES = ["tools.run", "outcomes.begin", "outcomes.finish", "commit:outcomes.begin"]
POINTS = [(place, is_after) for place in PLACES for is_after in (False, True)]


@pytest.mark.parametrize(("place", "is_after"), POINTS, ids=lambda value: {True: "after", False: "before"}.get(value, value))
async def test_a_worker_killed_there_sets_one_reminder(place: str, is_after: bool, house: House) -> None:
    _, struck, _ = await house.send_all("a1", "a2", "a3")
    doomed = house.worker(Trap(place, is_after=is_after, turn=2), environ={"HERMES_WORK_CONCURRENCY": "1"}, errand="a2")
    await house.until(lambda: not doomed.is_alive, f"dies at {place}", 20)
    assert (doomed.code, doomed.is_sprung) == (-signal.SIGKILL, True)
    healthy = house.worker(errand="a2")
    await house.until_quiet()
    await check(house, struck.turn_id)
    assert await house.dismiss(healthy) == 0


async def check(house: House, turn_id: object) -> None:
    [[reminders]] = await house.ask("select count(*) from reminders")
    assert reminders == 1
    effects = await house.ask(
        "select step, index, result is not null from run_events where turn_id = %s and type = 'effect' order by id", [turn_id]
    )
    assert effects == [("call_model", 0, True), ("run_tools", 0, True), ("call_model", 1, True)]
    calls = [call for call in house.calls() if call.text == "a2"]
    assert [call.answer is None for call in calls] == [True, False], "the model is asked twice, and never again"
    assert await house.ask("select kind from credit_entries where turn_id = %s and kind in ('post', 'refund')", [turn_id]) == [("post",)]
    [[meta]] = await house.ask("select meta from interactions where turn_id = %s", [turn_id])
    assert (meta["outcome"], [(tool["name"], tool["is_error"]) for tool in meta["tools"]]) == ("answered", [("set_reminder", False)])
    [[session]] = await house.ask("select id from sessions")
    async with house.hermes.database.begin() as tx:
        graph = await house.hermes.adapters.graphs.load(tx, session)
    assert [message["role"] for message in graph] == ["user", "assistant", "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert (without_note(graph[2]["content"]), graph[5]["content"]) == ("a2", calls[-1].answer)
    assert [call["function"]["name"] for call in graph[3]["tool_calls"]] == ["set_reminder"]
    assert not graph.verify().problems
    assert len(list(graph.responses())) == 4
