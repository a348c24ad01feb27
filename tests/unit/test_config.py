"""Settings: where they are found, who wins, what is refused and in which words, and that no secret ever shows."""

import copy
import dataclasses
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.config import (
    BackendKind,
    BackendSettings,
    DatabaseSettings,
    Environment,
    LlmSettings,
    LogFormat,
    LogLevel,
    LogSettings,
    LongPromptSettings,
    ModelSettings,
    NamedTables,
    PriceSettings,
    Secret,
    SettingDescription,
    Settings,
    SettingsError,
    TierSettings,
    WebSettings,
    WorkSettings,
    describe,
    load,
    platform_home,
    settings_page,
)
from hermes.config.declarations import keys_of, known_settings, sections, table_of, tables
from hermes.config.describe import describe_table
from hermes.config.value_reader import read_text
from hermes.config.values import Address, Flag, HostName, LocalPath, Network

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
NAMES = [setting.name for setting in known_settings()]
VARIABLES = [setting.variable for setting in known_settings()]
HUSH = "correct horse battery staple"


@pytest.fixture(autouse=True, scope="module")
def nobodys_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The settings of whoever runs the tests do not count: ~ is an empty folder."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        patch.setenv("HOME", str(home))
        yield home


def write(path: Path, toml: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(toml, encoding="utf-8")
    return path


def faults(cwd: Path, toml: str = "", environ: Mapping[str, str] | None = None) -> list[str]:
    """What is refused in a file `hermes.toml` and in variables, line by line."""
    write(cwd / "hermes.toml", toml)
    with pytest.raises(SettingsError) as refused:
        load(environ or {}, cwd=cwd)
    lines = str(refused.value).split("\n")
    assert tuple(lines) == refused.value.faults, "a fault is one line"
    return lines


# --- where values come from


def test_without_a_file_and_variables_everything_has_its_default(tmp_path: Path) -> None:
    assert load({"PATH": "/bin", "LOG_LEVEL": "debug"}, cwd=tmp_path) == Settings()


def test_a_variable_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    write(tmp_path / "hermes.toml", 'environment = "production"\n[web]\nport = 9000\nhost = "0.0.0.0"\n[log]\nlevel = "debug"')
    assert load({"HERMES_WEB_PORT": "9001", "HERMES_LOG_FORMAT": "json"}, cwd=tmp_path) == Settings(
        environment=Environment.PRODUCTION,
        web=WebSettings(host="0.0.0.0", port=9001),  # noqa: S104 nothing listens here
        log=LogSettings(format=LogFormat.JSON, level=LogLevel.DEBUG),
    )


def test_the_first_file_found_is_read_and_no_other(tmp_path: Path) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    named, by_variable = write(tmp_path / "a.toml", "web.port = 1"), write(here / "b.toml", "web.port = 2\nweb.chat = false")
    write(here / "hermes.toml", "web.port = 3\nweb.chat = false")
    write(home / "hermes.toml", "web.port = 4\nweb.chat = false")
    everything = {"HERMES_CONFIG": "b.toml", "HERMES_HOME": str(home)}
    in_the_data_folder = {"XDG_DATA_HOME": str(tmp_path), "HERMES_HOME": ""}

    assert load(everything, file=named, cwd=here) == Settings(home=home, web=WebSettings(port=1))
    assert load(everything, cwd=here) == Settings(home=home, web=WebSettings(port=2, chat=False))
    by_variable.unlink()
    assert load({**everything, "HERMES_CONFIG": ""}, cwd=here) == Settings(home=home, web=WebSettings(port=3, chat=False))
    (here / "hermes.toml").unlink()
    assert load({"HERMES_HOME": "../home"}, cwd=here) == Settings(home=here / "../home", web=WebSettings(port=4, chat=False))
    (home / "hermes.toml").unlink()
    assert load({"HERMES_HOME": str(home)}, cwd=here) == Settings(home=home)
    assert load(in_the_data_folder, cwd=here) == Settings()


def test_the_platforms_data_folder_is_searched_too(nobodys_home: Path, tmp_path: Path) -> None:
    found = write(platform_home({}) / "hermes.toml", "web.port = 5")
    assert found.is_relative_to(nobodys_home)
    assert load({}, cwd=tmp_path) == Settings(web=WebSettings(port=5))
    found.unlink()
    assert load({}, cwd=tmp_path) == Settings()


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({"XDG_DATA_HOME": "/xdg"}, "linux", "/xdg/hermes"),
        ({"XDG_DATA_HOME": "relative"}, "linux", "~/.local/share/hermes"),
        ({"XDG_DATA_HOME": ""}, "linux", "~/.local/share/hermes"),
        ({}, "linux", "~/.local/share/hermes"),
        ({"XDG_DATA_HOME": "/xdg"}, "darwin", "~/Library/Application Support/hermes"),
    ],
)
def test_the_home_is_where_the_platform_keeps_data(environ: dict[str, str], platform: str, expected: str) -> None:
    assert platform_home(environ, platform) == Path(expected).expanduser()


def test_a_user_without_a_home_folder_has_no_file_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert load({}, cwd=tmp_path) == Settings()


def test_a_relative_path_counts_from_its_file_or_else_from_the_working_directory(tmp_path: Path, nobodys_home: Path) -> None:
    file = write(tmp_path / "etc" / "h.toml", 'home = "data"')
    assert load({}, file=file, cwd=tmp_path).home == tmp_path / "etc" / "data"
    assert load({}, file=Path("etc/h.toml"), cwd=tmp_path).home == tmp_path / "etc" / "data"
    assert load({"HERMES_HOME": "data"}, file=file, cwd=tmp_path).home == tmp_path / "data"
    assert load({"HERMES_HOME": "~/data"}, file=file, cwd=tmp_path).home == nobodys_home / "data"


def test_a_file_may_have_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "hermes.toml").write_bytes(b"\xef\xbb\xbf[web]\r\nport = 1\r\n")
    assert load({}, cwd=tmp_path) == Settings(web=WebSettings(port=1))


@pytest.mark.parametrize(
    ("yes", "no"), [("true", "false"), ("1", "0"), ("yes", "no"), ("on", "off"), ("TRUE", "False"), (" on ", "\toff\n")]
)
def test_a_variable_says_true_or_false_in_many_ways(tmp_path: Path, yes: str, no: str) -> None:
    write(tmp_path / "hermes.toml", "web.chat = false")
    assert load({"HERMES_WEB_CHAT": yes}, cwd=tmp_path).web.chat is True
    write(tmp_path / "hermes.toml", "web.chat = true")
    assert load({"HERMES_WEB_CHAT": no}, cwd=tmp_path).web.chat is False


def test_master_keys_keep_their_order_and_lose_the_space_around_them(tmp_path: Path) -> None:
    keys = (Secret("new"), Secret("old"))
    assert load({"HERMES_MASTER_KEYS": " new , old,\n"}, cwd=tmp_path) == Settings(master_keys=keys)
    write(tmp_path / "hermes.toml", 'master_keys = ["new", "old"]')
    assert load({}, cwd=tmp_path) == Settings(master_keys=keys)


def test_an_empty_variable_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "hermes.toml", "web.port = 1")
    assert load({"HERMES_WEB_PORT": "", "HERMES_DATABASE_URL": " \n"}, cwd=tmp_path) == Settings(web=WebSettings(port=1))


def test_settings_cannot_be_changed() -> None:
    settings = Settings()
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.web.port = 1  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.web = WebSettings()  # type: ignore[misc]
    assert all(not hasattr(part, "__dict__") for part in (settings, *(getattr(settings, name) for name in sections())))
    assert {settings: 1}[Settings()] == 1


IMPORT = """
import os, sys

class Watched(type(os.environ)):
    def __getitem__(self, key):
        touched.append(key)
        return super().__getitem__(key)
    def __iter__(self):
        touched.append("HERMES_*")
        return super().__iter__()

touched, real = [], os.environ
os.environ = Watched(real._data, real.encodekey, real.decodekey, real.encodevalue, real.decodevalue)
sys.addaudithook(lambda event, args: touched.append(str(args[0])) if event == "open" else None)
import hermes.config
print([name for name in touched if name.startswith("HERMES_") or name.endswith(".toml")])
"""


def test_importing_the_settings_reads_neither_file_nor_variables(tmp_path: Path) -> None:
    write(tmp_path / "hermes.toml", "web.port = 1")
    imported = subprocess.run([sys.executable, "-c", IMPORT], cwd=tmp_path, env={"HERMES_WEB_PORT": "2"}, capture_output=True, check=True)
    assert (imported.stdout, imported.stderr) == (b"[]\n", b"")


# --- every value makes the trip

TEXTS = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters=","), min_size=1, max_size=20)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    Secret: TEXTS.map(Secret),
    Flag: st.booleans(),
    Address: st.from_regex(r"https?://[a-z]{1,9}\.example(:[1-9][0-9]{1,3})?(/[a-z]{1,5})?", fullmatch=True),
    HostName: st.from_regex(r"[a-z]{1,9}(\.[a-z]{1,5})?", fullmatch=True),
    Network: st.ip_addresses().map(str),
    LocalPath: st.lists(st.from_regex(r"[a-z ]{0,5}[a-z]", fullmatch=True), max_size=3).map(lambda parts: Path("/", *parts)),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Anything that a setting of this type can hold."""
    if hint in VALUES:
        return VALUES[hint]
    if get_origin(hint) is tuple:
        return st.lists(values_of(get_args(hint)[0]), min_size=1, max_size=3).map(tuple)
    if get_origin(hint) is not Annotated:
        return st.sampled_from(list(hint))
    number, allowed = get_args(hint)
    if number is int:
        return st.integers(allowed.minimum, 2**63 - 1 if allowed.maximum is None else allowed.maximum)
    return st.floats(allowed.minimum, 1e9, exclude_min=allowed.is_above)


@st.composite
def some_values(draw: st.DrawFn) -> dict[str, Any]:
    """Values for any number of settings, by name, that do not contradict each other."""
    values = draw(st.fixed_dictionaries({}, optional={setting.name: values_of(setting.hint) for setting in known_settings()}))
    values["database.pool_min"] = draw(st.integers(0, values.get("database.pool_max", 8)))
    values["delivery.timeout_s"] = draw(st.floats(1e-3, 1e6))
    values["delivery.cut_off_s"] = 3 * values["delivery.timeout_s"] + draw(st.floats(1e-3, 1e6))
    values["work.heartbeat_s"] = draw(st.floats(1e-3, 1e6))
    values["work.stalled_after_s"] = 2 * values["work.heartbeat_s"] + draw(st.floats(1e-3, 1e6))
    return values


def settings_with(values: Mapping[str, Any]) -> Settings:
    """The same without reading: the defaults, with these values in their places."""
    settings = Settings()
    for name, value in values.items():
        section, _, key = name.rpartition(".")
        if section:
            key, value = section, dataclasses.replace(getattr(settings, section), **{key: value})  # noqa: PLW2901 one level up
        settings = dataclasses.replace(settings, **{key: value})
    return settings


def as_toml(value: Any) -> str:
    match value:
        case Secret():
            return as_toml(value.reveal())
        case Path():
            return as_toml(str(value))
        case tuple():
            return f"[{', '.join(as_toml(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False)  # for text, numbers and flags TOML writes what JSON writes


def as_text(value: Any) -> str:
    match value:
        case Secret():
            return value.reveal()
        case tuple():
            return ",".join(as_text(item) for item in value)
    return str(value)


@given(some_values())
def test_every_value_comes_through_a_file(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    file = write(tmp_path_factory.getbasetemp() / "trip.toml", "\n".join(f"{name} = {as_toml(value)}" for name, value in values.items()))
    assert load({}, file=file) == settings_with(values)


@given(some_values())
def test_every_value_comes_through_a_variable(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    variables = dict(zip(NAMES, VARIABLES, strict=True))
    environ = {variables[name]: as_text(value) for name, value in values.items()}
    nowhere = write(tmp_path_factory.getbasetemp() / "empty.toml", "")
    assert load(environ, file=nowhere) == settings_with(values)


def test_the_items_of_a_list_in_a_variable_are_separated_by_commas(tmp_path: Path) -> None:
    assert read_text(tuple[str, ...], "a, b c,", tmp_path) == ("a", "b c")
    assert load({"HERMES_DELIVERY_QUEUE_S": " 1, 2.5,"}, cwd=tmp_path).delivery.queue_s == (1.0, 2.5)
    assert faults(tmp_path, environ={"HERMES_DELIVERY_QUEUE_S": "1, soon"}) == [
        "HERMES_DELIVERY_QUEUE_S is '1, soon'; expected a list of a number above 0 (in a variable: separated by commas)"
    ]


# --- names that do not exist


@pytest.mark.parametrize(
    ("toml", "fault"),
    [
        ("[web]\nprot = 8080", "unknown setting web.prot; did you mean web.port?"),
        ("web.prot = 8080", "unknown setting web.prot; did you mean web.port?"),
        ("port = 8080", "unknown setting port; did you mean web.port?"),
        ("database-url = 'x'", "unknown setting database-url; did you mean database_url?"),
        (f"[database]\nurl = '{HUSH}'", "unknown setting database.url; did you mean database_url?"),
        ("[WEB]\nport = 1\nhost = 'x'", "unknown section [WEB]; did you mean [web]?"),
        ("[wbe]\nport = 1\nhost = 'x'", "unknown section [wbe]; did you mean [web]?"),
        ("[web.tls]\nport = 1", "unknown setting web.tls; did you mean web.port?"),
        ("web = 8080", "web is a section; write [web] above its settings"),
        ("[[web]]\nport = 1", "web is a section; write [web] above its settings"),
        (f"database = '{HUSH}'", "database is a section; write [database] above its settings"),
        ("'web.port' = 1", "unknown setting 'web.port'; did you mean web.port?"),
        ('"web\\nport" = 1', r"unknown setting 'web\nport'; did you mean web.port?"),
        ("config = 'other.toml'", "unknown setting config; did you mean links.signup?"),
    ],
)
def test_an_unknown_name_in_a_file_is_refused_with_the_nearest_known_one(tmp_path: Path, toml: str, fault: str) -> None:
    assert faults(tmp_path, toml) == [f"hermes.toml: {fault}"]


@pytest.mark.parametrize(
    ("variable", "guess"),
    [
        ("HERMES_WEB_PROT", "HERMES_WEB_PORT"),
        ("HERMES_web_port", "HERMES_WEB_PORT"),
        ("HERMES_PORT", "HERMES_WEB_PORT"),
        ("HERMES_MASTER_KEY", "HERMES_MASTER_KEYS"),
        ("HERMES_CONFG", "HERMES_CONFIG"),
        ("HERMES_DATABASE__URL", "HERMES_DATABASE_URL"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_known_one(tmp_path: Path, variable: str, guess: str) -> None:
    assert faults(tmp_path, environ={variable: HUSH}) == [f"unknown variable {variable}; did you mean {guess}?"]


@st.composite
def typos(draw: st.DrawFn, names: list[str], letters: str) -> str:
    """A known name with one character lost, added or changed."""
    name = draw(st.sampled_from(names))
    at = draw(st.integers(0, len(name) - 1))
    letter, lost = draw(st.sampled_from(["", *letters])), draw(st.booleans())
    return name[:at] + letter + name[at + lost :]


@given(typos(NAMES, "abcxyz_.-0"))
def test_a_typo_in_a_file_is_refused_and_a_known_name_is_offered(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    section, dot, key = name.partition(".")
    header = f'["{section}"]\n"{key}"' if dot else f'"{section}"'
    file = write(tmp_path_factory.getbasetemp() / "typo.toml", f"{header} = 1")
    if name in NAMES:
        return
    with pytest.raises(SettingsError) as refused:
        load({}, file=file, cwd=file.parent)
    [offered] = re.findall(r"^typo\.toml: unknown (?:setting|section) .*; did you mean (.*)\?$", str(refused.value))
    assert offered in {*NAMES, *(f"[{known}]" for known in [*sections(), *tables()])}


@given(typos([name.removeprefix("HERMES_") for name in VARIABLES], "ABCXYZ_0"))
def test_a_typo_in_a_variable_is_refused_and_a_known_one_is_offered(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    if (variable := f"HERMES_{name}") in VARIABLES:
        return
    with pytest.raises(SettingsError) as refused:
        load({variable: "1"}, cwd=tmp_path_factory.getbasetemp())
    [offered] = re.findall(rf"^unknown variable {variable}; did you mean (.*)\?$", str(refused.value))
    assert offered in VARIABLES


# --- values that cannot be


@pytest.mark.parametrize(
    ("toml", "fault"),
    [
        ("web.port = 65_536", "web.port is 65536; expected a whole number from 0 to 65535"),
        ("web.port = -1", "web.port is -1; expected a whole number from 0 to 65535"),
        ("web.port = '8080'", "web.port is '8080'; expected a whole number from 0 to 65535"),
        ("web.port = 80.0", "web.port is 80.0; expected a whole number from 0 to 65535"),
        ("web.port = true", "web.port is true; expected a whole number from 0 to 65535"),
        ("web.port = [80]", "web.port is a list; expected a whole number from 0 to 65535"),
        ("web.port.a = 80", "web.port is a table; expected a whole number from 0 to 65535"),
        ("web.port = 1979-05-27", "web.port is a date or time; expected a whole number from 0 to 65535"),
        ("inbox.max_waiting = 0", "inbox.max_waiting is 0; expected a whole number of at least 1"),
        (
            "inbox.max_waiting = 9223372036854775808",
            "inbox.max_waiting is a number of more than 64 bits; expected a whole number of at least 1",
        ),
        (
            f"inbox.max_waiting = 0x{'f' * 9000}",
            "inbox.max_waiting is a number of more than 64 bits; expected a whole number of at least 1",
        ),
        (f"work.poll_s = 0x{'f' * 9000}", "work.poll_s is a number of more than 64 bits; expected a number above 0"),
        ("work.poll_s = 0", "work.poll_s is 0; expected a number above 0"),
        ("work.poll_s = nan", "work.poll_s is nan; expected a number above 0"),
        ("work.poll_s = inf", "work.poll_s is inf; expected a number above 0"),
        ("work.poll_s = false", "work.poll_s is false; expected a number above 0"),
        ("web.chat = 1", "web.chat is 1; expected true or false"),
        ("web.chat = 'yes'", "web.chat is 'yes'; expected true or false"),
        ("web.host = ''", "web.host is empty; expected text"),
        ("web.host = 127", "web.host is 127; expected text"),
        (f"web.host = ['{HUSH}']", "web.host is a list; expected text"),
        (f"web.port = '{'9' * 100}'", f"web.port is '{'9' * 59}…; expected a whole number from 0 to 65535"),
        ('web.port = "8\\n0"', r"web.port is '8\n0'; expected a whole number from 0 to 65535"),
        ("log.level = 'loud'", "log.level is 'loud'; expected debug, info, warning or error"),
        ("log.level = 3", "log.level is 3; expected debug, info, warning or error"),
        ("environment = ''", "environment is empty; expected development or production"),
        ("home = ''", "home is empty; expected a path"),
        ("home = '~nobody-of-this-name/x'", "home is '~nobody-of-this-name/x'; expected a path"),
        ('home = "a\\u0000b"', r"home is 'a\x00b'; expected a path"),
        ("database_url = ''", "database_url is empty; expected secret text"),
        ("database_url = 5432", "database_url is a number; expected secret text"),
        ("database_url = true", "database_url is true or false; expected secret text"),
        (f"database_url = ['{HUSH}']", "database_url is a list; expected secret text"),
        (f"[database_url]\npassword = '{HUSH}'", "database_url is a table; expected secret text"),
        (f"master_keys = '{HUSH}'", "master_keys is text; expected a list of secret text (in a variable: separated by commas)"),
        (f"master_keys = ['{HUSH}', '']", "master_keys[2] is empty; expected secret text"),
        ("delivery.queue_s = [1, 'soon']", "delivery.queue_s[2] is 'soon'; expected a number above 0"),
    ],
)
def test_a_wrong_value_in_a_file_is_refused_and_shown_unless_it_is_secret(tmp_path: Path, toml: str, fault: str) -> None:
    assert faults(tmp_path, toml) == [f"hermes.toml: {fault}"]


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("HERMES_WEB_PORT", "tcp://10.0.0.1:80", "a whole number from 0 to 65535"),
        ("HERMES_WEB_PORT", "80.5", "a whole number from 0 to 65535"),
        ("HERMES_WEB_PORT", "65536", "a whole number from 0 to 65535"),
        ("HERMES_WORK_POLL_S", "nan", "a number above 0"),
        ("HERMES_WORK_POLL_S", "1e999", "a number above 0"),
        ("HERMES_WORK_POLL_S", "5s", "a number above 0"),
        ("HERMES_WEB_CHAT", "maybe", "true or false"),
        ("HERMES_WEB_CHAT", "2", "true or false"),
        ("HERMES_LOG_FORMAT", "xml", "auto, json or console"),
        ("HERMES_HOME", "~nobody-of-this-name", "a path"),
        ("HERMES_CONFIG", "~nobody-of-this-name", "a path"),
    ],
)
def test_a_wrong_value_in_a_variable_is_refused(tmp_path: Path, variable: str, text: str, expected: str) -> None:
    assert faults(tmp_path, environ={variable: text}) == [f"{variable} is {text!r}; expected {expected}"]


def test_the_ends_of_a_range_belong_to_it(tmp_path: Path) -> None:
    write(tmp_path / "hermes.toml", "web.answer_timeout_s = 0\ninbox.max_waiting = 1\nhistory.idle_s = 9223372036854775807")
    read = [load({"HERMES_WEB_PORT": port}, cwd=tmp_path) for port in ("0", "65535")]
    assert [(s.web.port, s.web.answer_timeout_s, s.inbox.max_waiting, s.history.idle_s) for s in read] == [
        (0, 0.0, 1, 2**63 - 1),
        (65535, 0.0, 1, 2**63 - 1),
    ]


def test_choices_may_be_written_in_upper_case(tmp_path: Path) -> None:
    write(tmp_path / "hermes.toml", "log.format = 'JSON'")
    expected = Settings(log=LogSettings(format=LogFormat.JSON, level=LogLevel.WARNING))
    assert load({"HERMES_LOG_LEVEL": "Warning"}, cwd=tmp_path) == expected


def test_values_that_contradict_each_other_are_refused_wherever_they_come_from(tmp_path: Path) -> None:
    assert faults(tmp_path, "work.heartbeat_s = 5\ndatabase.pool_min = 3", {"HERMES_DATABASE_POOL_MAX": "2"}) == [
        "database.pool_max is 2; expected at least database.pool_min, which is 3",
        "work.stalled_after_s is 10.0; expected more than twice work.heartbeat_s, which is 5.0",
    ]
    write(tmp_path / "hermes.toml", "work.heartbeat_s = 4.9\ndatabase.pool_min = 8")
    expected = Settings(database=DatabaseSettings(pool_min=8), work=WorkSettings(heartbeat_s=4.9))
    assert load({}, cwd=tmp_path) == expected


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    toml = "hoem = 'x'\n[web]\nport = 'a'\nhots = 'b'\n[lop]\nblocked_after_s = 1"
    environ = {"HERMES_WEB_PORT": "b", "HERMES_LOG_LEVEL": "debug", "HERMES_HOST": "c"}
    assert faults(tmp_path, toml, environ) == [
        "hermes.toml: unknown setting hoem; did you mean home?",
        "hermes.toml: web.port is 'a'; expected a whole number from 0 to 65535",
        "hermes.toml: unknown setting web.hots; did you mean web.hosts?",
        "hermes.toml: unknown section [lop]; did you mean [loop]?",
        "unknown variable HERMES_HOST; did you mean HERMES_WEB_HOST?",
        "HERMES_WEB_PORT is 'b'; expected a whole number from 0 to 65535",
    ]


# --- files that cannot be read


def test_a_file_that_is_named_must_exist(tmp_path: Path) -> None:
    write(tmp_path / "hermes.toml", "web.port = 1")
    elsewhere = tmp_path.parent / "elsewhere.toml"
    for environ, file, title in [({}, Path("a.toml"), "a.toml"), ({"HERMES_CONFIG": "b.toml"}, None, "b.toml"), ({}, elsewhere, elsewhere)]:
        with pytest.raises(SettingsError) as refused:
            load(environ, file=file, cwd=tmp_path)
        assert str(refused.value) == f"{title}: cannot be read (No such file or directory)"


def test_a_missing_file_does_not_hide_a_wrong_variable(tmp_path: Path) -> None:
    assert faults(tmp_path, environ={"HERMES_CONFIG": "b.toml", "HERMES_WEB_PORT": "x"}) == [
        "b.toml: cannot be read (No such file or directory)",
        "HERMES_WEB_PORT is 'x'; expected a whole number from 0 to 65535",
    ]


def test_a_file_that_is_there_and_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "hermes.toml").mkdir()
    with pytest.raises(SettingsError, match=r"^hermes\.toml: cannot be read \(Is a directory\)$"):
        load({}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"[web]\nport = ", r"Invalid value \(at end of document\)|Invalid value \(at line 2, column 8\)"),
        (b"[web\nport = 1", r"Expected '\]' at the end of a table declaration \(at line 1, column 5\)"),
        (b"web.port = 1\nweb.port = 2", r"Cannot overwrite a value \(at (?:line 2, column 13|end of document)\)"),
        (b"web.host = '\xff'", "'utf-8' codec can't decode byte 0xff in position 12: invalid start byte"),
        (b"web.port = " + b"9" * 5000, "Exceeds the limit .*"),
        (b"web.port = " + b"[" * 100_000, ".*recursion.*|.*nest.*|Invalid value.*"),
    ],
)
def test_what_is_not_toml_is_refused_with_its_place(tmp_path: Path, content: bytes, fault: str) -> None:
    (tmp_path / "hermes.toml").write_bytes(content)
    with pytest.raises(SettingsError) as refused:
        load({}, cwd=tmp_path)
    assert re.fullmatch(rf"hermes\.toml: not valid TOML: (?:{fault})", str(refused.value))


# --- secrets


def test_a_secret_is_given_away_by_reveal_alone() -> None:
    secret = Secret(HUSH)
    assert secret.reveal() == HUSH
    assert [repr(secret), str(secret), f"{secret}", f"{secret!r}", f"{secret:>5}", "%s %r" % (secret, secret)] == [  # noqa: UP031 all the ways
        "***",
        "***",
        "***",
        "***",
        "  ***",
        "*** ***",
    ]
    assert repr({"keys": [secret]}) == "{'keys': [***]}"


def test_equal_secrets_are_equal_and_nothing_else_is() -> None:
    assert Secret("ключ") == Secret("ключ")
    assert Secret("ключ") != Secret("ключи")
    assert Secret(HUSH) != HUSH
    assert Secret("\udcff") == Secret("\udcff") != Secret("\udcfe")
    assert {Secret("a"), Secret("a"), Secret("b")} == {Secret("a"), Secret("b")}
    assert hash(Secret(HUSH)) != hash(HUSH)


@pytest.mark.parametrize("leak", [pickle.dumps, copy.copy, copy.deepcopy, json.dumps, vars, iter, len])
def test_a_secret_does_not_leave_by_accident(leak: Any) -> None:
    with pytest.raises(TypeError) as refused:
        leak(Secret(HUSH))
    assert HUSH not in str(refused.value)


SECRET_SETTINGS = Settings(
    database_url=Secret(f"postgresql://u:{HUSH}@h/d"),
    redis_url=Secret(f"redis://:{HUSH}@h"),
    master_keys=(Secret(HUSH), Secret(HUSH[::-1])),
)


def test_settings_are_shown_without_their_secrets() -> None:
    for shown in (repr(SECRET_SETTINGS), str(SECRET_SETTINGS)):
        assert HUSH not in shown
        assert HUSH[::-1] not in shown
    with pytest.raises(TypeError, match="neither pickled nor copied"):
        dataclasses.asdict(SECRET_SETTINGS)


@given(
    st.dictionaries(
        st.sampled_from(["database_url", "redis_url", "master_keys", "database", "redis", "databse_url", "passwords"]), st.booleans()
    )
)
def test_no_fault_shows_a_secret(tmp_path_factory: pytest.TempPathFactory, given: dict[str, bool]) -> None:
    written = "\n".join(f"{name} = [['{HUSH}']]" if nested else f"{name} = {{password = '{HUSH}'}}" for name, nested in given.items())
    file = write(tmp_path_factory.getbasetemp() / "secrets.toml", f"oops = 1\n{written}")
    environ = {f"HERMES_{name.upper()}": HUSH for name in given} | {"HERMES_OOPS": HUSH}
    with pytest.raises(SettingsError) as refused:
        load(environ, file=file)
    assert HUSH not in str(refused.value)
    assert HUSH not in repr(refused.value)
    assert (refused.value.__cause__, refused.value.__context__) == (None, None)


# --- tables by name

MODELS = f"""
[backends.my-gpu]
kind = "vllm"
base_url = "http://gpu:8000/v1"
api_key = "{HUSH}"
slots = 4

[backends.claude_local]
command = ["claude", "--model", "opus"]
cwd = "work"

[backends.local]

[models."llama3.2"]
backend = "my-gpu"
id = "meta/llama-3.2"
max_tokens = 500
tools = false
context = 8_192
prices = [{{input = 0, output = 0}}]

[[models.claude-haiku.prices]]
since = 2026-01-01
input = 1
output = 5.5
cache_read = 0.1

[[models.claude-haiku.prices]]
since = 2026-12-01
input = 0.1
output = 0.5
over = {{tokens = 100_000, input = 0.5, output = 2.5, cache_write_1h = 1}}

[tiers.gold]
chain = ["llama3.2", "claude-haiku"]
day_tokens = 0
month_tokens = 1_000
"""


def test_tables_have_the_names_that_their_owner_gives_them(tmp_path: Path) -> None:
    write(tmp_path / "hermes.toml", MODELS)
    assert load({}, cwd=tmp_path) == Settings(
        backends=NamedTables(
            {
                "my-gpu": BackendSettings(kind=BackendKind.VLLM, base_url="http://gpu:8000/v1", api_key=Secret(HUSH), slots=4),
                "claude_local": BackendSettings(command=("claude", "--model", "opus"), cwd=tmp_path / "work"),
                "local": BackendSettings(),
            }
        ),
        models=NamedTables(
            {
                "llama3.2": ModelSettings(
                    backend="my-gpu",
                    id="meta/llama-3.2",
                    max_tokens=500,
                    tools=False,
                    context=8_192,
                    prices=(PriceSettings(input=0.0, output=0.0),),
                ),
                "claude-haiku": ModelSettings(
                    prices=(
                        PriceSettings(since=date(2026, 1, 1), input=1.0, output=5.5, cache_read=0.1),
                        PriceSettings(
                            since=date(2026, 12, 1),
                            input=0.1,
                            output=0.5,
                            over=LongPromptSettings(tokens=100_000, input=0.5, output=2.5, cache_write_1h=1.0),
                        ),
                    )
                ),
            }
        ),
        tiers=NamedTables({"gold": TierSettings(chain=("llama3.2", "claude-haiku"), day_tokens=0, month_tokens=1_000)}),
    )


def test_tables_are_frozen_and_shown_without_their_secrets(tmp_path: Path) -> None:
    write(tmp_path / "hermes.toml", MODELS)
    settings, again = load({}, cwd=tmp_path), load({}, cwd=tmp_path)
    assert {settings: 1}[again] == 1
    with pytest.raises(TypeError):
        settings.backends["new"] = BackendSettings()  # type: ignore[index]
    assert HUSH not in repr(settings)
    with pytest.raises(TypeError, match="neither pickled nor copied"):
        dataclasses.asdict(settings)


NO_ADDRESS = "expected an address such as http://host:8000/v1, without a password or a query"


@pytest.mark.parametrize(
    ("toml", "fault"),
    [
        (
            "[models.claude-haiku]\nmax_token = 1",
            "unknown setting models.claude-haiku.max_token; did you mean models.claude-haiku.max_tokens?",
        ),
        ("[backends.x]\nkind = 'plain'\nbase_ulr = 'y'", "unknown setting backends.x.base_ulr; did you mean backends.x.base_url?"),
        ("[tiers.free]\ndaily_tokens = 1", "unknown setting tiers.free.daily_tokens; did you mean tiers.free.day_tokens?"),
        (
            "[[models.m.prices]]\ninptu = 1\ninput = 1\noutput = 1",
            "unknown setting models.m.prices[1].inptu; did you mean models.m.prices[1].input?",
        ),
        (
            "[models.m]\nprices = [{input = 1, output = 1, over = {token = 1, tokens = 1, input = 1, output = 1}}]",
            "unknown setting models.m.prices[1].over.token; did you mean models.m.prices[1].over.tokens?",
        ),
        ("[models.m]\nprices = [{input = 1}]", "models.m.prices[1].output is missing; expected a number of at least 0"),
        ("[models.m]\nprices = [{input = -1, output = 1}]", "models.m.prices[1].input is -1; expected a number of at least 0"),
        ("[models.m]\nprices = 1", "models.m.prices is 1; expected a list of tables, each as [[models.m.prices]]"),
        ("[models.m]\nprices = [1]", "models.m.prices[1] is 1; expected a table"),
        (
            "[models.m]\nprices = [{input = 1, output = 1, since = '2026-01-01'}]",
            "models.m.prices[1].since is '2026-01-01'; expected a date such as 2026-11-15, without quotes",
        ),
        (
            "[models.m]\nprices = [{input = 1, output = 1, since = 2026-01-01T00:00:00}]",
            "models.m.prices[1].since is a date or time; expected a date such as 2026-11-15, without quotes",
        ),
        ("[models.m]\nprices = [{input = 1, output = 1, over = 3}]", "models.m.prices[1].over is 3; expected a table"),
        ("[model.m]\nid = 'x'", "unknown section [model]; did you mean [models]?"),
        (f"models = '{HUSH}'", "models is a section; write [models.NAME] above its settings, with a name of your own"),
        ("[[models]]\nid = 'x'", "models is a section; write [models.NAME] above its settings, with a name of your own"),
        ("backends = 5", "backends is a section; write [backends.NAME] above its settings, with a name of your own"),
        ("backends = [1]", "backends is a section; write [backends.NAME] above its settings, with a name of your own"),
        (f"[[backends]]\napi_key = '{HUSH}'", "backends is a section; write [backends.NAME] above its settings, with a name of your own"),
        (f"[backends]\nanthropic = '{HUSH}'", "backends.anthropic is a table; write [backends.anthropic] above its settings"),
        (f"[backends.anthropic]\napi_key = ['{HUSH}']", "backends.anthropic.api_key is a list; expected secret text"),
        (f"[backends.anthropic]\nbase_url = 'http://u:{HUSH}@host'", f"backends.anthropic.base_url is text; {NO_ADDRESS}"),
        ("[backends.anthropic]\nbase_url = 'api.example.com'", f"backends.anthropic.base_url is text; {NO_ADDRESS}"),
        ("[backends.anthropic]\nbase_url = 'http://host:port/'", f"backends.anthropic.base_url is text; {NO_ADDRESS}"),
        ("[backends.anthropic]\nbase_url = 'http://host/?key=1'", f"backends.anthropic.base_url is text; {NO_ADDRESS}"),
        (
            "[backends.claude_local]\ncommand = []",
            "backends.claude_local.command is a list; expected a program, or a list of a program and its arguments",
        ),
        (
            "[backends.claude_local]\ncommand = ''",
            "backends.claude_local.command is empty; expected a program, or a list of a program and its arguments",
        ),
        ("[backends.claude_local]\ncommand = ['claude', 5]", "backends.claude_local.command[2] is 5; expected text"),
        ("[models.'a b']\nmax_tokens = 0", "models.'a b'.max_tokens is 0; expected a whole number of at least 1"),
    ],
)
def test_a_fault_in_a_table_is_named_with_its_whole_place(tmp_path: Path, toml: str, fault: str) -> None:
    assert faults(tmp_path, toml) == [f"hermes.toml: {fault}"]


def test_everything_that_is_wrong_in_tables_is_said_at_once(tmp_path: Path) -> None:
    prices = "[[models.m.prices]]\ninput = 'a'\n[[models.m.prices]]\noutput = 'b'"
    toml = f"{prices}\n[models.n]\nvison = true\n[tiers.t]\nchain = 'm'\n[web]\nport = 'x'"
    assert faults(tmp_path, toml, {"HERMES_LLM_SLOTS": "0"}) == [
        "hermes.toml: models.m.prices[1].input is 'a'; expected a number of at least 0",
        "hermes.toml: models.m.prices[1].output is missing; expected a number of at least 0",
        "hermes.toml: models.m.prices[2].output is 'b'; expected a number of at least 0",
        "hermes.toml: models.m.prices[2].input is missing; expected a number of at least 0",
        "hermes.toml: unknown setting models.n.vison; did you mean models.n.vision?",
        "hermes.toml: tiers.t.chain is 'm'; expected a list of text",
        "hermes.toml: web.port is 'x'; expected a whole number from 0 to 65535",
        "HERMES_LLM_SLOTS is '0'; expected a whole number of at least 1",
    ]


@pytest.mark.parametrize(
    ("toml", "fault"),
    [
        (
            "[backends.house]\napi_key = 'x'",
            f"backends.house.kind is missing; expected {', '.join(list(BackendKind)[:-1])} or codex_local",
        ),
        ("[backends.vllm]", "backends.vllm.base_url is missing; expected the address of the server, such as http://host:8000/v1"),
        ("[backends.openai]\nkind = 'anthropic'", "backends.openai.kind is anthropic; expected openai, or another name for the backend"),
        ("[backends.ollama]\ncommand = 'x'", "backends.ollama.command is set; a backend of kind ollama has none"),
        (f"[backends.scripted]\napi_key = '{HUSH}'", "backends.scripted.api_key is set; a backend of kind scripted has none"),
        (
            "[backends.a-b]\nkind = 'openai'\n[backends.a_b]\nkind = 'openai'",
            (
                "backends.a-b, backends.a_b would share the variable HERMES_BACKENDS_A_B_API_KEY; "
                "expected names that differ in letters or digits"
            ),
        ),
        ('[mcp."a\\nb"]', r"mcp.'a\nb' has neither a command and a url; expected one of them"),
        (
            "[models.m]\nprices = [{input = 1, output = 1}, {input = 2, output = 2}]",
            "models.m.prices has 2 prices since always; expected one",
        ),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(tmp_path: Path, toml: str, fault: str) -> None:
    assert faults(tmp_path, toml) == [fault]


def test_a_program_may_be_written_without_a_list(tmp_path: Path) -> None:
    write(tmp_path / "hermes.toml", "[backends.codex_local]\ncommand = '/opt/my codex'")
    assert load({}, cwd=tmp_path).backends["codex_local"].command == ("/opt/my codex",)


# --- backends in variables


def test_a_variable_has_the_key_and_the_address_of_a_backend(tmp_path: Path) -> None:
    write(tmp_path / "hermes.toml", "[backends.my-gpu]\nkind = 'vllm'\nbase_url = 'http://old:1'\nslots = 2")
    environ = {
        "HERMES_BACKENDS_MY_GPU_API_KEY": " k1 ",
        "HERMES_BACKENDS_MY_GPU_BASE_URL": "http://new:1",
        "HERMES_BACKENDS_SGLANG_BASE_URL": "http://other:1",
        "HERMES_BACKENDS_OLLAMA_BASE_URL": "",
    }
    assert load(environ, cwd=tmp_path).backends == NamedTables(
        {
            "my-gpu": BackendSettings(kind=BackendKind.VLLM, base_url="http://new:1", api_key=Secret("k1"), slots=2),
            "sglang": BackendSettings(base_url="http://other:1"),
        }
    )


@pytest.mark.parametrize(
    ("variable", "guess"),
    [
        ("HERMES_BACKENDS_MY_GUP_API_KEY", "HERMES_BACKENDS_MY_GPU_API_KEY"),
        ("HERMES_BACKENDS_ANTROPIC_API_KEY", "HERMES_BACKENDS_ANTHROPIC_API_KEY"),
        ("HERMES_BACKENDS_MY_GPU_KEY", "HERMES_BACKENDS_MY_GPU_API_KEY"),
    ],
)
def test_a_variable_of_no_backend_is_refused_with_the_nearest_one(tmp_path: Path, variable: str, guess: str) -> None:
    toml = "[backends.my-gpu]\nkind = 'vllm'\nbase_url = 'http://gpu:1'"
    assert faults(tmp_path, toml, {variable: HUSH}) == [f"unknown variable {variable}; did you mean {guess}?"]


def test_a_key_in_place_of_the_backends_names_no_variables(tmp_path: Path) -> None:
    found = faults(tmp_path, f"backends = '{HUSH}'", {"HERMES_BACKENDS_C_APY_KEY": "x"})
    assert found[1:] == ["unknown variable HERMES_BACKENDS_C_APY_KEY; did you mean HERMES_BACKENDS_VLLM_API_KEY?"]


def test_a_backend_that_only_variables_name_has_a_plain_name(tmp_path: Path) -> None:
    settings = load({"HERMES_BACKENDS_VLLM_BASE_URL": "http://gpu:1"}, cwd=tmp_path)
    assert repr(settings.backends).startswith("NamedTables({'vllm': BackendSettings(")


def test_a_table_with_a_fault_still_has_its_variables(tmp_path: Path) -> None:
    toml = "[backends.my-gpu]\nkind = 'vlm'"
    [fault] = faults(tmp_path, toml, {"HERMES_BACKENDS_MY_GPU_API_KEY": HUSH})
    assert fault.startswith("hermes.toml: backends.my-gpu.kind is 'vlm'; expected anthropic, ")


USUAL_VARIABLES = {
    "ANTHROPIC_API_KEY": "a",
    "ANTHROPIC_BASE_URL": "https://a.example",
    "OPENAI_API_KEY": "o",
    "OPENAI_BASE_URL": "https://o.example/v1",
    "LLM_GLOBAL_DAILY_BUDGET_USD": "12.5",
}


def test_the_variables_that_people_have_set_already_count_where_nothing_else_is_set(tmp_path: Path) -> None:
    assert load(USUAL_VARIABLES, cwd=tmp_path) == Settings(
        llm=LlmSettings(global_daily_budget_usd=12.5),
        backends=NamedTables(
            {
                "anthropic": BackendSettings(api_key=Secret("a"), base_url="https://a.example"),
                "openai": BackendSettings(api_key=Secret("o"), base_url="https://o.example/v1"),
            }
        ),
    )
    write(tmp_path / "hermes.toml", "[llm]\nglobal_daily_budget_usd = 1\n[backends.anthropic]\napi_key = 'file'\nbase_url = 'https://file'")
    ours = {"HERMES_BACKENDS_OPENAI_API_KEY": "ours", "HERMES_LLM_GLOBAL_DAILY_BUDGET_USD": "0"}
    assert load({**USUAL_VARIABLES, **ours}, cwd=tmp_path) == Settings(
        llm=LlmSettings(global_daily_budget_usd=0.0),
        backends=NamedTables(
            {
                "anthropic": BackendSettings(api_key=Secret("file"), base_url="https://file"),
                "openai": BackendSettings(api_key=Secret("ours"), base_url="https://o.example/v1"),
            }
        ),
    )
    assert load(dict.fromkeys(USUAL_VARIABLES, " "), cwd=tmp_path, file=write(tmp_path / "none.toml", "")) == Settings()


def test_a_borrowed_variable_is_refused_only_where_it_would_count(tmp_path: Path) -> None:
    environ = {"LLM_GLOBAL_DAILY_BUDGET_USD": "lots", "ANTHROPIC_BASE_URL": HUSH}
    assert faults(tmp_path, environ=environ) == [
        "LLM_GLOBAL_DAILY_BUDGET_USD is 'lots'; expected a number of at least 0",
        f"ANTHROPIC_BASE_URL is text; {NO_ADDRESS}",
    ]
    ours = {"HERMES_LLM_GLOBAL_DAILY_BUDGET_USD": "3", "HERMES_BACKENDS_ANTHROPIC_BASE_URL": "http://a"}
    assert load({**environ, **ours}, cwd=tmp_path).llm.global_daily_budget_usd == 3.0


# --- the reference


def test_the_reference_page_is_what_the_declarations_say() -> None:
    write_again = "the page is old; write it again: python -c 'from hermes.config import settings_page; print(settings_page(), end=\"\")'"
    assert PAGE.read_text(encoding="utf-8") == settings_page(), write_again


def test_the_example_of_the_reference_page_loads(tmp_path: Path) -> None:
    [example] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    write(tmp_path / "hermes.toml", example)
    assert load({}, cwd=tmp_path) == Settings(
        environment=Environment.PRODUCTION,
        database_url=Secret("postgresql://hermes:password@db.internal/hermes"),
        web=WebSettings(host="0.0.0.0", port=8080),  # noqa: S104 nothing listens here
        log=LogSettings(format=LogFormat.JSON),
        tiers=NamedTables({"free": TierSettings(chain=("claude-haiku",))}),
    )


def test_every_setting_and_every_section_says_what_it_is() -> None:
    keys = [key for owner in (*tables().values(), PriceSettings) for key in keys_of(owner).values()]
    inner = [table for key in keys if (table := table_of(key.hint)) is not None]
    named = [described for owner in (*tables().values(), *inner) for described in describe_table("x", owner)]
    assert [described.name for described in [*describe(), *named] if not described.doc.endswith(".")] == []
    owners = [*sections().values(), *tables().values(), *inner]
    assert [owner for owner in owners if (owner.__doc__ or f"{owner.__name__}(").startswith(f"{owner.__name__}(")] == []
    assert inner == [PriceSettings, LongPromptSettings]


def test_a_setting_is_described_by_its_declaration() -> None:
    described = {setting.name: setting for setting in describe()}
    assert list(described) == NAMES
    assert described["web.port"] == SettingDescription(
        name="web.port",
        env="HERMES_WEB_PORT",
        type="a whole number from 0 to 65535",
        default="8080",
        doc="The port to listen on; 0 takes a free one.",
    )
    words = ("environment", "home", "master_keys", "web.host", "web.chat", "redis.timeout_s", "inbox.max_waiting")
    assert [described[name].default for name in words] == [
        '"development"',
        "not set",
        "not set",
        '"127.0.0.1"',
        "not set",
        "0.25",
        "10_000",
    ]


def test_no_two_settings_share_a_variable() -> None:
    assert len({*VARIABLES, "HERMES_CONFIG"}) == len(VARIABLES) + 1


def test_the_defaults_could_have_been_written_down(tmp_path: Path) -> None:
    written = [f"{setting.name} = {setting.default}" for setting in describe() if setting.default != "not set"]
    write(tmp_path / "hermes.toml", "\n".join(written))
    assert load({}, cwd=tmp_path) == Settings()
