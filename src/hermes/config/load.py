"""Read the settings: find the file, hold it and the variables against what is known, and say everything that is wrong at once.

Environment over file over defaults. A fault is one line that names its place and what is expected there. No fault
shows the value of a secret."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hermes.config.kinds import INTEGER_LIMIT, Place, Refused
from hermes.config.known import Known, known_settings, sections
from hermes.config.settings import Settings, contradictions

FILE_NAME = "hermes.toml"
FILE_VARIABLE = "HERMES_CONFIG"
PREFIX = "HERMES_"
LONGEST_SHOWN = 60


class SettingsError(ValueError):
    """The settings cannot be used. `faults` has one line for each thing that is wrong; the message is these lines."""

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def load(environ: Mapping[str, str], *, file: Path | None = None, cwd: Path | None = None) -> Settings:
    """The settings of this process, out of one file and the variables of `environ`, which win.

    The file is `file`, else what HERMES_CONFIG names, else `hermes.toml` in `cwd` (by default the working directory), else `hermes.toml`
    in the data folder. Only the first two must exist. A relative path counts from the folder of the file that it stands in, in a variable
    from `cwd`. A variable that is empty counts as not set. Raises SettingsError with all faults, not just the first."""
    here = cwd or Path.cwd()
    variables = read_variables(environ, here)
    written = read_file(environ, file, here, home=variables.values.get("home"))
    if faults := written.faults + variables.faults:
        raise SettingsError(*faults)
    settings = assemble(written.values | variables.values)
    if faults := list(contradictions(settings)):
        raise SettingsError(*faults)
    return settings


@dataclass(slots=True)
class Reading:
    """What one source gave: values by the names of their settings, and what is wrong with it."""

    values: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def take(self, setting: Known, read: Callable[[Any], object], given: object, place: str, folder: Path) -> None:
        """Keep the value of one setting, or the fault."""
        try:
            value = read(given)
        except Refused:
            shown = in_words(given) if setting.kind.is_secret else in_full(given)
            self.faults.append(f"{place} is {shown}; expected {setting.kind.words}")
        else:
            self.values[setting.name] = folder / value if isinstance(value, Path) else value


# --- variables


def read_variables(environ: Mapping[str, str], here: Path) -> Reading:
    """Every variable with our prefix, in the order of their names."""
    known = {setting.variable: setting for setting in known_settings()}
    reading = Reading()
    for variable in sorted(name for name in environ if name.startswith(PREFIX)):
        text = environ[variable].strip()
        if (setting := known.get(variable)) is not None:
            if text:
                reading.take(setting, setting.kind.from_text, text, variable, here)
        elif variable != FILE_VARIABLE:
            reading.faults.append(f"unknown variable {one_line(variable)}; did you mean {nearest(variable, [*known, FILE_VARIABLE])}?")
    return reading


# --- the file


def read_file(environ: Mapping[str, str], named: Path | None, here: Path, *, home: Path | None) -> Reading:
    """The file that is named, or else the first one found, or else nothing."""
    name = str(named) if named is not None else environ.get(FILE_VARIABLE, "").strip()
    try:
        places = [here / Place().from_toml(name)] if name else usual_places(environ, here, home)
    except Refused:
        return Reading(faults=[f"{'the settings file' if named else FILE_VARIABLE} is {in_full(name)}; expected {Place.words}"])
    for path in places:
        title = str(path.relative_to(here) if path.is_relative_to(here) else path)
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except (FileNotFoundError, NotADirectoryError) as error:
            if name:
                return Reading(faults=[f"{title}: cannot be read ({error.strerror})"])
        except OSError as error:
            return Reading(faults=[f"{title}: cannot be read ({error.strerror})"])
        except (ValueError, RecursionError) as error:  # also for bytes that are no text, and numbers and lists beyond Python's limits
            return Reading(faults=[f"{title}: not valid TOML: {error}"])
        else:
            return read_table(table, title, path.parent)
    return Reading()


def usual_places(environ: Mapping[str, str], here: Path, home: Path | None) -> list[Path]:
    places = [here / FILE_NAME]
    with suppress(RuntimeError):  # a user without a home folder has no file there
        places.append((home or platform_home(environ)) / FILE_NAME)
    return places


def platform_home(environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """The place where the platform keeps the data of its users.

    XDG_DATA_HOME counts only as an absolute path, as its specification says."""
    if platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "hermes"
    if (data := Path(environ.get("XDG_DATA_HOME", ""))).is_absolute():
        return data / "hermes"
    return Path.home() / ".local" / "share" / "hermes"


def read_table(table: Mapping[str, object], title: str, folder: Path) -> Reading:
    """A file's values."""
    known = {(setting.section, setting.key): setting for setting in known_settings()}
    reading = Reading()
    for section, key, value in flattened(table):
        if (setting := known.get((section, key))) is not None:
            reading.take(setting, setting.kind.from_toml, value, f"{title}: {setting.name}", folder)
        else:
            reading.faults.append(f"{title}: {not_a_setting(section, key, value)}")
    return reading


def flattened(table: Mapping[str, object]) -> Iterator[tuple[str, str, object]]:
    """Section, key and value of everything in a file. An unknown section is one value, so that it is named once and not key by key."""
    for key, value in table.items():
        if key in sections() and isinstance(value, dict):
            yield from ((key, inner_key, inner) for inner_key, inner in value.items())
        else:
            yield "", key, value


def not_a_setting(section: str, key: str, value: object) -> str:
    if not section and key in sections():
        # Its value is not shown: `database = "postgresql://…"` is an easy slip.
        return f"{key} is a section; write [{key}] above its settings"
    if not section and isinstance(value, dict):
        return f"unknown section [{one_line(key)}]; did you mean [{nearest(key, sections())}]?"
    prefix = f"{section}." if section else ""
    guess = nearest(prefix + key, [setting.name for setting in known_settings()])
    return f"unknown setting {prefix}{one_line(key)}; did you mean {guess}?"


# --- together


def assemble(values: Mapping[str, Any]) -> Settings:
    """Settings out of values by name; what is not there keeps its default."""

    def of(section: str) -> dict[str, Any]:
        return {name.rpartition(".")[2]: value for name, value in values.items() if name.rpartition(".")[0] == section}

    return Settings(**of(""), **{section: owner(**of(section)) for section, owner in sections().items()})


# --- words for faults


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that looks most like this one. There always is one: a bad guess still shows what names look like."""
    spelled = {other.lower(): other for other in known}
    return spelled[get_close_matches(name.lower(), spelled, n=1, cutoff=0.0)[0]]


def in_full(value: object) -> str:
    """A value as its owner wrote it, if that fits in a line."""
    match value:
        case str() if value:
            return shortened(repr(value))
        case bool():
            return str(value).lower()
        case int() if abs(value) >= INTEGER_LIMIT:  # Python refuses to write very long ones down
            return "a number of more than 64 bits"
        case int() | float():
            return str(value)
    return in_words(value)


def in_words(value: object) -> str:
    """What sort of value it is, without the value."""
    if value == "":
        return "empty"
    sorts = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return sorts.get(type(value), "a date or time")


def one_line(name: str) -> str:
    """A name as it is, or quoted where it holds more than names usually do: TOML allows a line break in a key."""
    return shortened(name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else repr(name))


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
