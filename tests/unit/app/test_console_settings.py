"""The settings as the console shows them: values, origins, and no secret."""

from pathlib import Path

from hermes.app.catalogue import catalogue_from, prices_from
from hermes.app.console_settings import show_models, show_settings, show_tiers
from hermes.config import Settings, load
from hermes.console.settings import SettingOrigin

FILE = """\
[web]
port = 9000
[backends.vllm]
base_url = "http://gpu:8000/v1"
api_key = "word-of-the-file"
[models.mistral]
backend = "vllm"
[[models.mistral.prices]]
input = 1.5
output = 2
[tiers.free]
chain = ["mistral"]
"""
ENVIRON = {
    "HERMES_WEB_HOST": "::1",
    "HERMES_ALERTS_SLACK_URL": "https://hooks.slack.com/word-of-the-variable",
    "ANTHROPIC_API_KEY": "word-of-another-program",
    "HERMES_DATABASE_URL": "postgresql://hermes:word-of-the-database@db/hermes",
}


def read(tmp_path: Path) -> Settings:
    file = tmp_path / "hermes.toml"
    file.write_text(FILE)
    return load(ENVIRON, file=file, cwd=tmp_path)


def test_each_value_has_its_origin_and_a_secret_is_only_set_or_not(tmp_path: Path) -> None:
    lines = show_settings(read(tmp_path), ENVIRON)
    shown = {(line.section, line.name): (line.value, str(line.origin)) for line in lines}
    assert shown["web", "host"] == ('"::1"', "variable")
    assert shown["web", "port"] == ("9000", "file")
    assert shown["web", "chat"] == ("not set", "default")
    assert shown["", "database_url"] == ("set", "variable")
    assert shown["", "redis_url"] == ("not set", "default")
    assert shown["backends.vllm", "api_key"] == ("set", "file")
    assert shown["backends.vllm", "base_url"] == ('"http://gpu:8000/v1"', "file")
    assert shown["backends.anthropic", "api_key"] == ("set", "variable")
    assert shown["alerts.slack", "url"] == ("set", "variable")
    assert shown["models.mistral", "prices"] == ("1 table", "file")
    assert not [line for line in lines if "word-of" in repr(line)]


def test_every_setting_is_there_with_its_meaning() -> None:
    lines = show_settings(Settings(), {})
    assert {line.origin for line in lines} == {SettingOrigin.DEFAULT}
    assert [line for line in lines if not line.meaning] == []
    assert [line.variable for line in lines if (line.section, line.name) == ("web", "port")] == ["HERMES_WEB_PORT"]


def test_models_have_the_price_of_today_and_tiers_their_chain(tmp_path: Path) -> None:
    settings = read(tmp_path)
    catalogue, prices = catalogue_from(settings), prices_from(settings)
    day = max(price.since for known in prices.table().values() for price in known)
    [mistral] = [line for line in show_models(catalogue, prices, day) if line.name == "mistral"]
    assert (mistral.backend, mistral.tokens_in, mistral.tokens_out) == ("vllm", 1_500_000, 2_000_000)
    assert {line.name: line.chain for line in show_tiers(catalogue)}["free"] == ("mistral",)
