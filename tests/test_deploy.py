"""The files in deploy/ agree with the product: commands, settings, ports and pinned versions are those that exist."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hermes.cli import build_app
from hermes.config.declarations import known_settings
from hermes.config.load import load

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
SYSTEMD_ANALYZE = shutil.which("systemd-analyze")
SERVICES = ("web1", "web2", "worker1", "worker2", "worker3", "postgres", "valkey", "caddy", "prometheus", "grafana", "migrate")


def pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[[^\]]*\])?==([^ ;\\]+)", lock.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    composed: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))
    return composed


def test_the_image_has_the_versions_that_the_tests_ran_with_and_no_tools_of_developers() -> None:
    ours, all_of_them = pins(DEPLOY / "requirements.lock"), pins(ROOT / "requirements.lock")
    assert len(ours) > 50
    assert {name: version for name, version in ours.items() if all_of_them.get(name) != version} == {}
    assert not {"pytest", "mypy", "ruff", "hypothesis"} & ours.keys()


def test_neither_lock_names_an_index() -> None:
    assert "://" not in (DEPLOY / "requirements.lock").read_text(encoding="utf-8")


def test_the_image_is_built_from_all_that_the_package_needs() -> None:
    copied = {
        name
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
        for name in line.split()
    }
    tried = set(re.findall(r"\S+", re.findall(r"^cp -r (.*) \S+$", (DEPLOY / "check").read_text(), re.MULTILINE)[0]))
    let_in = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert copied <= let_in
    links = {path.resolve().relative_to(ROOT).parts[0] for path in (ROOT / "src").rglob("*") if path.is_symlink()}
    assert links
    assert links <= copied & tried, "what files of the package point to"


def test_the_services_of_compose_are_closed_and_pinned(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == set(SERVICES)
    assert all(re.fullmatch(r"[a-z/-]+:(latest|v?\d[\w.-]+)", service["image"]) for service in services.values())
    assert {name for name, service in services.items() if "ports" in service} == {"caddy", "grafana"}, "the stores are not reachable"
    assert services["grafana"]["ports"] == ["127.0.0.1:3000:3000"]
    hermes = [service for service in services.values() if service["image"].startswith("hermes:")]
    assert all(each["read_only"] and each["cap_drop"] == ["ALL"] for each in hermes)
    assert all(int(each["stop_grace_period"].removesuffix("s")) > 30 for each in hermes), "a worker drains for work.drain_s, 30 s"


def test_every_command_and_option_of_the_deployment_exists(compose: dict[str, Any]) -> None:
    described = (ROOT / "tests" / "contract_names.txt").read_text(encoding="utf-8")
    words = [service["command"] for service in compose["services"].values() if service["image"].startswith("hermes:")]
    docker = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    words += [re.findall(r'"([^"]+)"', line)[1:] for line in re.findall(r"HEALTHCHECK.*CMD (\[.*\])", docker)]
    words += [re.findall(r'"([^"]+)"', line) for line in re.findall(r"^CMD (\[.*\])", docker, re.MULTILINE)]
    words += [line.split()[1:] for line in units(r"^ExecStart=(.*)$")]
    assert len(words) >= 9
    for command, *options in words:
        known = re.search(rf"^command hermes {command}\b(.*)$", described, re.MULTILINE)
        assert known, f"there is no command {command}"
        assert {word for word in options if word.startswith("--")} <= {*known[1].split()}, command
    assert build_app(["migrate"]) is not None


def test_every_variable_of_the_deployment_is_a_setting(compose: dict[str, Any]) -> None:
    texts = [(DEPLOY / name).read_text(encoding="utf-8") for name in ("hermes.env.example", "Dockerfile")] + units(r"^Environment=(.*)$")
    named = {name for text in texts for name in re.findall(r"\bHERMES_[A-Z_]+\b(?==)", text)}
    settings = {setting.variable for setting in known_settings()} | {"HERMES_HOME"}
    assert {name for name in named if not name.startswith("HERMES_BACKENDS_")} <= settings
    assert len(named) >= 8
    assert compose["services"]["caddy"]["environment"]["DOMAIN"].startswith("${DOMAIN")


def test_hermes_starts_with_the_variables_of_the_example(compose: dict[str, Any], tmp_path: Path) -> None:
    """Every process gets the whole file: an unknown variable that begins with HERMES_ would stop each of them."""
    text = (DEPLOY / "hermes.env.example").read_text(encoding="utf-8")
    environ = dict(re.findall(r"^#?([A-Z][A-Z_]+)=(.*)$", text, re.MULTILINE))
    for service in compose["services"].values():
        asked = re.findall(r"\$\{([A-Z_]+)", str(service.get("environment", "")))
        assert environ.keys() >= set(asked), "what compose asks for is in the example"
    settings = load(environ, cwd=tmp_path)
    assert settings.redis_url is not None
    assert settings.redis_url.reveal() == "redis://valkey:6379/0"


def units(pattern: str) -> list[str]:
    files = sorted((DEPLOY / "systemd").glob("*.service"))
    assert len(files) == 2
    return [found for file in files for found in re.findall(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)]


@pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    program = tmp_path / "hermes"
    program.touch(mode=0o755)
    for file in sorted((DEPLOY / "systemd").iterdir()):
        text = file.read_text(encoding="utf-8").replace("/opt/hermes/bin/hermes", str(program))
        (tmp_path / file.name.replace("@.", "@1.")).write_text(text, encoding="utf-8")
    files = sorted(str(file) for file in tmp_path.glob("hermes*.*"))
    done = subprocess.run([SYSTEMD_ANALYZE or "", "verify", "--recursive-errors=no", *files], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "hermes" in line]) == (0, [])
