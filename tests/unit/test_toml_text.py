"""Settings are written as TOML that reads back the same, whatever the values hold; and the file is replaced whole."""

import stat
import tomllib
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.config import SettingsError, find_settings_file
from hermes.config.settings_file import HEADER, has_comments
from hermes.config.toml_text import toml_text

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
PLAIN = st.one_of(TEXT, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.dates(), st.times())
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=12)
HOSTILE = ['"', "'''", "a = 1\n[web]\nport = 1", "\\", "\x7f\x00\x1f", "ключ=🔑", "#no comment", "\r\n", "a.b", " ", "{}", "]]"]


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_every_table_reads_back_as_it_was(table: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(table)) == table


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_stays_one_value(text: str) -> None:
    table = {"backends": {text: {"api_key": text}}, "tiers": {"free": {"chain": [text, text]}}, "list": [{text: {"x": [{text: 1}, 2]}}]}
    assert tomllib.loads(toml_text(table)) == table


def test_it_looks_as_a_person_would_write_it() -> None:
    price = {"input": 0.5, "output": 2}
    table = {
        "environment": "production",
        "web": {"port": 80},
        "models": {"Qwen/Qwen3-8B": {"backend": "vllm", "prices": [price]}},
        "empty": {},
    }
    assert toml_text(table) == (
        'environment = "production"\n\n[web]\nport = 80\n\n[models."Qwen/Qwen3-8B"]\nbackend = "vllm"\n\n'
        '[[models."Qwen/Qwen3-8B".prices]]\ninput = 0.5\noutput = 2\n\n[empty]\n'
    )
    when = {"when": datetime(2026, 11, 16, 1, 2, 3, tzinfo=UTC), "day": date(2026, 11, 16), "at": time(1, 2)}
    assert tomllib.loads(toml_text(when)) == when
    assert toml_text({}) == ""


@pytest.mark.parametrize("value", [None, object(), "\ud800"])
def test_what_is_no_toml_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"TOML has no|not UTF-8"):
        toml_text({"x": value})


# --- the file


def test_the_new_file_is_for_its_owner_alone_and_the_old_one_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    old = "# mine\n[web]\nport = 1\n"
    (tmp_path / "hermes.toml").write_text(old)
    found = find_settings_file({}, None)
    assert (found.path, found.table, found.exists) == (tmp_path / "hermes.toml", {"web": {"port": 1}}, True)
    backup = found.replace_with({"web": {"port": 2}})
    assert backup == tmp_path / "hermes.toml.bak"
    assert (backup.read_text(), found.path.read_text()) == (old, f"{HEADER}\n\n[web]\nport = 2\n")
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    assert len(list(tmp_path.iterdir())) == 2
    assert (has_comments(backup), has_comments(found.path)) == (True, False)


def test_a_link_stays_a_link_and_a_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_settings_file({}, Path("etc/own.toml")).replace_with({"web": {"port": 2}}) is None
    (tmp_path / "hermes.toml").symlink_to("etc/own.toml")
    find_settings_file({}, None).replace_with({"web": {"port": 3}})
    assert (tmp_path / "hermes.toml").is_symlink()
    assert (tmp_path / "etc" / "own.toml").read_text() == f"{HEADER}\n\n[web]\nport = 3\n"
    assert (tmp_path / "etc" / "own.toml.bak").read_text() == f"{HEADER}\n\n[web]\nport = 2\n"


def test_a_value_that_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hermes.toml").write_text("[web]\nport = 1\n")
    with pytest.raises(ValueError, match="TOML has no NoneType"):
        find_settings_file({}, None).replace_with({"web": None})
    assert [path.name for path in tmp_path.iterdir()] == ["hermes.toml"]
    assert (tmp_path / "hermes.toml").read_text() == "[web]\nport = 1\n"


def test_a_file_with_faults_is_not_changed_but_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hermes.toml").write_text("[web\n")
    with pytest.raises(SettingsError, match=r"hermes\.toml: not valid TOML"):
        find_settings_file({}, None)
