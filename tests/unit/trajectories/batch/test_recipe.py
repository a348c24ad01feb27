"""Toolsets by percentages: repeatable, each on its own, and files that say what is wrong with them."""

from collections import Counter
from pathlib import Path

import pytest

from hermes.trajectories.batch.recipe import Distribution, all_toolsets, read_distribution, seed_of
from hermes.trajectories.errors import TrajectorySettingsError


def test_each_toolset_is_drawn_by_its_own_percentage() -> None:
    drawing = Distribution({"always": 100, "often": 80, "half": 50, "never": 0})
    counts = Counter(name for item in range(4_000) for name in drawing.draw(1, str(item)))
    assert (counts["always"], counts["never"]) == (4_000, 0)
    assert 3_080 < counts["often"] < 3_320
    assert 1_850 < counts["half"] < 2_150
    both = sum({"often", "half"} <= {*drawing.draw(1, str(item))} for item in range(4_000))
    assert 1_450 < both < 1_750, "drawn independently of each other: 40 %"


def test_the_same_run_and_item_draw_the_same() -> None:
    drawing = Distribution({"a": 50, "b": 50, "c": 50})
    assert [drawing.draw(3, str(item)) for item in range(50)] == [drawing.draw(3, str(item)) for item in range(50)]
    assert [drawing.draw(3, str(item)) for item in range(50)] != [drawing.draw(4, str(item)) for item in range(50)]


def test_at_least_so_many_are_drawn_the_likeliest_first() -> None:
    drawing = Distribution({"rare": 0, "likely": 1}, least=1)
    assert {drawing.draw(0, str(item)) for item in range(100)} == {("likely",)}


def test_without_a_distribution_every_item_gets_all() -> None:
    assert all_toolsets(["b", "a"]).draw(0, "x") == ("b", "a")
    assert all_toolsets([]).draw(0, "x") == ()


def test_reads_files_and_names(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").write_text("toolsets: {concierge: 80, 'my:Tools': 12.5}\nleast: 1\n")
    (tmp_path / "d.json").write_text('{"concierge": 80}')
    assert read_distribution(str(tmp_path / "d.yaml"), ["base"]) == Distribution({"base": 100.0, "concierge": 80.0, "my:Tools": 12.5}, 1)
    assert read_distribution(str(tmp_path / "d.json"), []) == Distribution({"concierge": 80.0})
    assert read_distribution("balanced", ["a", "b"]) == Distribution({"a": 50.0, "b": 50.0})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("toolset: {a: 5}\nleast: 1", "unknown key 'toolset'; did you mean toolsets?"),
        ("toolsets: {a: 120}", "a is 120; expected a percentage from 0 to 100"),
        ("toolsets: {a: true}", "a is True; expected a percentage"),
        ("toolsets: {a: 5}\nleast: 2", "least is 2; expected a whole number, and not more than there are toolsets"),
        ("toolsets: {}", "expected toolsets with their percentages"),
        ("- a", "expected toolsets with their percentages"),
        ("a: [", "not YAML"),
    ],
)
def test_a_file_that_makes_no_sense_says_why(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "d.yaml").write_text(text)
    with pytest.raises(TrajectorySettingsError, match=reason.replace("?", r"\?")):
        read_distribution(str(tmp_path / "d.yaml"), [])


def test_a_file_that_is_no_text_says_so(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").write_bytes(b"caf\xe9: 5\n")
    with pytest.raises(TrajectorySettingsError, match=r"d\.yaml: not UTF-8 text"):
        read_distribution(str(tmp_path / "d.yaml"), [])


def test_a_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(TrajectorySettingsError, match="there is no distribution 'blanced'; give a file, or one of all, balanced, minimal"):
        read_distribution("blanced", ["a"])
    with pytest.raises(TrajectorySettingsError, match="applies to the toolsets of tools"):
        read_distribution("balanced", [])


def test_seeds_are_the_same_everywhere() -> None:
    assert seed_of(0, "a", 1) == 677_960_483
    assert len({seed_of(0, "a", rollout) for rollout in range(1_000)}) == 1_000
