"""The recipe of `hermes batch`: a TOML file with every value of a run. `batch_recipe.toml` shows and explains all keys.

An unknown key, a value of the wrong type and keys that contradict each other are refused, in one line that names the key."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hermes.graph import MessageError, MessageGraph
from hermes.graph.context import KeepReasoning
from hermes.trajectories.batch.object_import import import_object
from hermes.trajectories.batch.prompt_file import PROMPT_FIELD, PromptFile
from hermes.trajectories.batch.recipe import BatchPace, BatchRecipe, all_toolsets, read_distribution
from hermes.trajectories.batch.rollout import Verifier
from hermes.trajectories.batch.run import MICRO_PER_USD, Budget
from hermes.trajectories.batch.statistics import DEFAULT_PASS_MARK
from hermes.trajectories.errors import SourceError, TrajectorySettingsError

MAX_PATH_CHARS = 1_000
"""A longer text cannot be the path of a file."""

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0.001)]
FilePath = Annotated[Path, Field(strict=False)]


class RecipeFile(BaseModel):
    """The values of a recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    prompts: FilePath
    run_name: str
    runs: FilePath = Path("runs")
    prompt_field: str = PROMPT_FIELD
    limit: Count | None = None
    groups: bool = False
    store: bool = False
    account: str = "batch"

    model: str | None = None
    rollouts: Count = 1
    max_turns: Count = 10
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Count | None = None
    sampling: dict[str, Any] = Field(default_factory=dict)
    seed: int = 0
    unseeded: bool = False
    system: str | None = None
    ephemeral: str | None = None
    prefill: FilePath | None = None
    keep_reasoning: KeepReasoning = "current_turn"

    tools: list[str] = Field(default_factory=list)
    distribution: str | None = None
    subagents: bool = False
    subagent_depth: Annotated[int, Field(ge=1, le=8)] = 1

    verify: str | None = None
    pass_mark: float = DEFAULT_PASS_MARK

    concurrency: Count = 8
    timeout: Seconds = 600.0
    call_timeout: Seconds | None = None
    tool_timeout: Seconds = 60.0
    verify_timeout: Seconds = 60.0
    retries: Annotated[int, Field(ge=0)] = 3
    budget_usd: Annotated[float, Field(ge=0, le=1e12)] | None = None
    budget_tokens: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if "subagent_depth" in self.model_fields_set and not self.subagents:
            raise ValueError("subagent_depth is set, but subagents is false; set subagents = true, or leave subagent_depth out")
        for name in ("temperature", "top_p", "max_tokens", "seed"):
            if name in self.sampling:
                raise ValueError(f"sampling.{name} is the key {name} of the recipe; write it there")
        if not self.run_name.strip() or self.run_name in (".", "..") or any(sign in self.run_name for sign in "/\\\0"):
            raise ValueError(f"run_name {self.run_name!r} cannot be the name of a folder")
        return self

    @property
    def folder(self) -> Path:
        return self.runs / self.run_name

    @property
    def items(self) -> PromptFile:
        return PromptFile(self.prompts, prompt=self.prompt_field)

    def batch_recipe(self, default_model: str) -> BatchRecipe:
        """Return what a rollout is made with. Reads the files that the recipe names. Raises TrajectorySettingsError."""
        toolsets = all_toolsets(self.tools) if self.distribution is None else read_distribution(self.distribution, self.tools)
        named = {"temperature": self.temperature, "top_p": self.top_p}
        return BatchRecipe(
            model=self.model or default_model,
            seed=self.seed,
            is_seeded=not self.unseeded,
            sampling={**{name: value for name, value in named.items() if value is not None}, **self.sampling},
            max_tokens=self.max_tokens,
            max_turns=self.max_turns,
            system=_text_or_file("system", self.system),
            ephemeral=_text_or_file("ephemeral", self.ephemeral),
            prefill=_read_messages(self.prefill) if self.prefill is not None else (),
            keep_reasoning=self.keep_reasoning,
            toolsets=toolsets,
            subagent_depth=self.subagent_depth if self.subagents else 0,
            verify=self.verify,
        )

    def pace(self) -> BatchPace:
        return BatchPace(
            concurrency=self.concurrency,
            timeout_s=self.timeout,
            call_timeout_s=self.call_timeout,
            tool_timeout_s=self.tool_timeout,
            verify_timeout_s=self.verify_timeout,
            retries=self.retries,
        )

    def budget(self) -> Budget:
        return Budget(None if self.budget_usd is None else round(self.budget_usd * MICRO_PER_USD), self.budget_tokens)

    def verifier(self) -> Verifier | None:
        """Import the function that scores rollouts. Raises TrajectorySettingsError."""
        if self.verify is None:
            return None
        if ":" not in self.verify:
            raise TrajectorySettingsError(f"verify {self.verify!r}: expected MODULE:FUNCTION, such as my_checks:is_right")
        found: Verifier = import_object(self.verify, "verify")
        if not callable(found):
            raise TrajectorySettingsError(f"verify {self.verify!r} is not a function")
        return found

    def to_toml(self) -> Iterator[str]:
        """Yield the lines of a recipe with the same values; keys that were not set are left out."""
        values = self.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        sampling = values.pop("sampling", {})
        yield from (f"{key} = {_toml(value)}\n" for key, value in values.items())
        if sampling:
            yield "\n[sampling]\n"
            yield from (f"{_toml(key)} = {_toml(value)}\n" for key, value in sampling.items() if value is not None)


def read_recipe(file: Path, values: Mapping[str, Any]) -> RecipeFile:
    """Read a recipe, or take a file of prompts with the default recipe; `values`, whose keys may be paths, go before those of the file.

    Raises TrajectorySettingsError with one line that names the wrong key."""
    known: dict[str, Any] = _read_toml(file) if file.suffix == ".toml" else {"prompts": str(file)}
    for path, value in values.items():
        key, _, name = path.partition(".")
        table = known.get(key)
        known[key] = {**(table if isinstance(table, dict) else {}), name: value} if name else value
    try:
        return RecipeFile.model_validate(known)
    except ValidationError as error:
        raise TrajectorySettingsError(f"{file}: {_describe_fault(error)}") from None


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SourceError(str(file), error.strerror or str(error)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TrajectorySettingsError(f"{file}: not TOML ({error})") from None


def _describe_fault(error: ValidationError) -> str:
    """Say in one line what is wrong with the first wrong key."""
    fault = error.errors(include_url=False)[0]
    key, message = ".".join(map(str, fault["loc"])), fault["msg"]
    match fault["type"]:
        case "extra_forbidden":
            [nearest] = get_close_matches(key, RecipeFile.model_fields, n=1, cutoff=0.0)
            return f"unknown key {key}; did you mean {nearest}?"
        case "missing":
            return f"{key} is missing; {'give --run-name, or write it into a recipe' if key == 'run_name' else 'write it into the recipe'}"
        case "value_error":
            return message.removeprefix("Value error, ")
    shown = repr(fault["input"])
    return f"{key} is {shown if len(shown) <= 60 else shown[:60] + '…'}; expected {message.removeprefix('Input should be ')}"


def _text_or_file(key: str, given: str | None) -> str | None:
    """Return the text; if it is the path of a file, the file's content."""
    if given is None:
        return None
    try:
        file = Path(given)
        return file.read_text(encoding="utf-8").removesuffix("\n") if len(given) < MAX_PATH_CHARS and file.is_file() else given
    except OSError as error:
        raise TrajectorySettingsError(f"{key}: cannot read {given}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TrajectorySettingsError(f"{key}: {given} is not UTF-8 text") from None


def _read_messages(file: Path) -> list[dict[str, Any]]:
    try:
        return [dict(message) for message in MessageGraph(json.loads(file.read_bytes()))]
    except OSError as error:
        raise TrajectorySettingsError(f"prefill: cannot read {file}: {error.strerror}") from None
    except (ValueError, MessageError) as error:
        raise TrajectorySettingsError(f"prefill: {file} is not a JSON list of messages ({error})") from None


def _toml(value: Any) -> str:
    """Return a JSON value as TOML. TOML has no null, so that is left out.

    The escapes of JSON are escapes of TOML too; TOML escapes the character DEL as well."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(each)}" for key, each in value.items() if each is not None) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value if each is not None) + "]"
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return text.encode("utf-8", "replace").decode()
