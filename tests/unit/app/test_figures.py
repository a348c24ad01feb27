"""The money of today as figures: what each scope spent, and its cap."""

from hermes.app.figures import MAX_AGENTS, spend_figures
from hermes.ops.store_gauges import MAX_GAUGES
from hermes.ports.credits import DaySpend, SpendToday


def figures_of(spend: SpendToday) -> dict[tuple[str, str], float]:
    return {(figure.name, figure.labels[0]): figure.value for figure in spend_figures(spend)}


def test_all_users_the_fleet_and_each_agent_have_what_they_spent_and_their_cap() -> None:
    agents = {"ada": DaySpend(1_250_000, 2_000_000), "ben": DaySpend(250_000, None), "cid": DaySpend(0, 0)}
    assert figures_of(SpendToday(DaySpend(3_000_000, 5_000_000), DaySpend(1_500_000, None), agents)) == {
        ("spend", "all"): 3.0,
        ("spend_cap", "all"): 5.0,
        ("spend", "fleet"): 1.5,
        ("spend", "agent:ada"): 1.25,
        ("spend_cap", "agent:ada"): 2.0,
        ("spend", "agent:ben"): 0.25,
        ("spend", "agent:cid"): 0.0,
        ("spend_cap", "agent:cid"): 0.0,
    }


def test_with_many_agents_those_near_their_cap_and_the_sums_stay() -> None:
    agents = {f"a{number:04}": DaySpend(number, None) for number in range(1_000)}
    agents |= {"near": DaySpend(9, 10), "far": DaySpend(1, 10)}
    found = figures_of(SpendToday(DaySpend(1, 2), DaySpend(3, 4), agents))
    scopes = {scope for _, scope in found}
    assert len(scopes) == MAX_AGENTS + 2 < MAX_GAUGES, "a gauge shows no more, and leaves out the last by their names"
    assert {"all", "fleet", "agent:near", "agent:far", "agent:a0999"} <= scopes
    assert "agent:a0001" not in scopes
