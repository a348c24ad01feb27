"""The recipe of a batch run: every key is shown, every mistake is one line that names the key, and a recorded recipe reads the same."""

import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from hermes.cli.batch_recipe import RecipeFile, read_recipe
from hermes.trajectories.errors import TrajectoryError

EXAMPLE = resources.files("hermes.cli").joinpath("batch_recipe.toml").read_text(encoding="utf-8")
REQUIRED = 'prompts = "p.jsonl"\nrun_name = "r"\n'


def recipe(folder: Path, text: str) -> Path:
    (folder / "recipe.toml").write_text(REQUIRED + text, encoding="utf-8")
    return folder / "recipe.toml"


def test_the_example_shows_every_key_with_its_default() -> None:
    shown = tomllib.loads(re.sub(r"^# (?=\w+ = |\[)", "", EXAMPLE, flags=re.MULTILINE))
    assert {*shown} == {*RecipeFile.model_fields}
    without_default = {"prompts", "run_name", "model", "sampling", "distribution"}
    usual = RecipeFile(prompts=Path("p"), run_name="r").model_dump(mode="json")
    assert all(shown[key] == value for key, value in usual.items() if key not in without_default and value is not None)
    RecipeFile.model_validate(shown | {"subagents": True})


def test_every_key_of_the_example_is_explained_above() -> None:
    lines = EXAMPLE.splitlines()
    for key in RecipeFile.model_fields:
        at = next(number for number, line in enumerate(lines) if re.match(rf"(# )?\[?{key}\b( =|\])", line))
        assert any(re.match(r"# (?!\w+ = )", line) for line in lines[max(0, at - 4) : at]), key


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("temprature = 1", "unknown key temprature; did you mean temperature?"),
        ('temperature = "hot"', "temperature is 'hot'; expected a valid number"),
        ("temperature = -1.0", "temperature is -1.0; expected greater than or equal to 0"),
        ("budget_usd = inf", "budget_usd is inf; expected a finite number"),
        ("budget_usd = 1e308", "budget_usd is 1e+308; expected less than or equal to"),
        ("rollouts = 1.5", "rollouts is 1.5; expected a valid integer"),
        ("rollouts = true", "rollouts is True; expected a valid integer"),
        ("groups = 1", "groups is 1; expected a valid boolean"),
        ('tools = "mine"', "tools is 'mine'; expected a valid list"),
        ("tools = [1]", "tools.0 is 1; expected a valid string"),
        ('keep_reasoning = "some"', "keep_reasoning is 'some'; expected 'none', 'current_turn' or 'all'"),
        ("subagent_depth = 2", "subagent_depth is set, but subagents is false; set subagents = true"),
        ("[sampling]\ntemperature = 1", "sampling.temperature is the key temperature of the recipe; write it there"),
        ("top_k = 40", "unknown key top_k; did you mean top_p?"),
        ("rollouts = ", "not TOML (Invalid value (at end of document))"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(tmp_path: Path, text: str, says: str) -> None:
    file = recipe(tmp_path, text)
    with pytest.raises(TrajectoryError) as refused:
        read_recipe(file, {})
    assert (str(refused.value).startswith(f"{file}: {says}"), str(refused.value).count("\n")) == (True, 0), str(refused.value)


def test_what_must_be_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").touch()
    with pytest.raises(TrajectoryError, match=r"empty.toml: prompts is missing; write it into the recipe$"):
        read_recipe(tmp_path / "empty.toml", {})
    with pytest.raises(TrajectoryError, match=r"^p.jsonl: run_name is missing; give --run-name, or write it into a recipe$"):
        read_recipe(Path("p.jsonl"), {})
    with pytest.raises(TrajectoryError, match=r"none.toml: No such file or directory$"):
        read_recipe(Path("none.toml"), {})


def test_values_of_the_command_go_before_those_of_the_file(tmp_path: Path) -> None:
    file = recipe(tmp_path, "rollouts = 2\nseed = 3\n[sampling]\ntop_k = 40\n")
    found = read_recipe(file, {"rollouts": 4, "sampling.min_p": 0.1, "runs": "elsewhere"})
    assert (found.rollouts, found.seed, found.sampling, found.folder) == (4, 3, {"top_k": 40, "min_p": 0.1}, Path("elsewhere/r"))
    assert read_recipe(Path("p.jsonl"), {"run_name": "r"}).prompts == Path("p.jsonl")


def test_a_recorded_recipe_reads_the_same(tmp_path: Path) -> None:
    hard = {"system": 'Say "no" \\ or\nyes\x7f\t✓', "sampling.stop": ["a", {"b c": [1, None]}], "sampling.null": None, "top_p": 1}
    found = read_recipe(recipe(tmp_path, 'tools = ["mine", "mcp:x"]\nbudget_usd = 1e-7\nunseeded = true\n'), hard)
    recorded = tmp_path / "recorded.toml"
    recorded.write_text("".join(found.to_toml()), encoding="utf-8")
    again = read_recipe(recorded, {})
    assert again.model_dump(exclude={"sampling"}) == found.model_dump(exclude={"sampling"})
    assert again.sampling == {"stop": ["a", {"b c": [1]}]}, "TOML has no null"
