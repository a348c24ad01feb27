"""Models out of the settings: what is written lies over what is known, nothing that cannot work starts, and no user pays for a script."""

import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from hermes.app.catalogue import (
    catalogue_from,
    check_prices,
    missing_backends,
    prices_from,
    refuse_no_model,
    replaced_backends,
)
from hermes.app.models import BUILDERS, backends_from
from hermes.backends import HttpClient, ScriptedBackend
from hermes.config import BackendKind, Environment, Settings, load
from hermes.gateway.catalogue import DEFAULT_CATALOGUE, ModelSpec, Tier
from hermes.gateway.prices import EARLIEST_DAY, FREE_RATE, LIST_PRICES, Price, Prices, TokenRate
from hermes.ports.backends import Capabilities, FindingLevel, ModelRequest
from hermes.ports.errors import StartRefused
from hermes.ports.models import ModelAddress, UnknownPrice
from tests.fakes.vendors import vendors

TODAY = date(2026, 11, 15)
HELLO = ModelRequest(messages=({"role": "user", "content": "Hello!"},), max_tokens=100)
HAIKU = "claude-haiku-4-5-20251001"
KEY = {"ANTHROPIC_API_KEY": "a-key"}


def settings(tmp_path: Path, toml: str = "", **environ: str) -> Settings:
    (tmp_path / "hermes.toml").write_text(toml, encoding="utf-8")
    return load(environ, file=tmp_path / "hermes.toml", cwd=tmp_path)


def refusal(tmp_path: Path, toml: str) -> list[str]:
    """What is refused about models, line by line; whoever asks."""
    said = settings(tmp_path, toml)
    lines = []
    for ask in (catalogue_from, prices_from, lambda said: backends_from(said, HttpClient())):
        with pytest.raises(StartRefused) as refused:
            ask(said)
        lines.append(str(refused.value))
    assert len(set(lines)) == 1
    return lines[0].split("\n")


# --- the catalogue


def test_with_a_key_and_nothing_else_everything_is_as_usual(tmp_path: Path) -> None:
    said = settings(tmp_path, **KEY)
    assert catalogue_from(said) == DEFAULT_CATALOGUE
    assert prices_from(said).table() == Prices(LIST_PRICES).table()
    assert (missing_backends(said), replaced_backends(said)) == ({}, {})
    check_prices(catalogue_from(said), prices_from(said), TODAY)


def test_what_is_written_lies_over_what_is_known(tmp_path: Path) -> None:
    toml = """
        [models.claude-haiku]
        max_tokens = 300
        vision = false
        cache_floor = 5_000
        [models.ollama]
        id = "qwen3"
        tools = true
        prices = [{input = 0, output = 0}]
        [tiers.free]
        day_tokens = 10
        month_tokens = 100
        [tiers.starter]
        chain = ["ollama"]
    """
    catalogue = catalogue_from(settings(tmp_path, toml, **KEY))
    haiku, ollama = DEFAULT_CATALOGUE.models["claude-haiku"], DEFAULT_CATALOGUE.models["ollama"]
    assert catalogue.models == {
        **DEFAULT_CATALOGUE.models,
        "claude-haiku": replace(haiku, max_tokens=300, capabilities=replace(haiku.capabilities, vision=False, cache_floor=5_000)),
        "ollama": replace(ollama, id="qwen3", capabilities=replace(ollama.capabilities, tools=True)),
    }
    assert catalogue.tiers == {**DEFAULT_CATALOGUE.tiers, "free": Tier(("claude-haiku",), 10, 100), "starter": Tier(("ollama",), 200_000)}


def test_a_new_model_needs_only_a_backend_and_can_do_what_is_usual_there(tmp_path: Path) -> None:
    toml = """
        [backends.gpu]
        kind = "vllm"
        base_url = "http://gpu:8000"
        [models.qwen]
        backend = "gpu"
        [models."claude-next"]
        backend = "anthropic"
        id = "claude-6"
        [models.small]
        backend = "ollama"
        [tiers.gold]
        chain = ["qwen", "claude-haiku"]
        day_tokens = 5
    """
    catalogue = catalogue_from(settings(tmp_path, toml, **KEY))
    assert {name: model for name, model in catalogue.models.items() if name not in DEFAULT_CATALOGUE.models} == {
        "qwen": ModelSpec("gpu", "qwen", 2_048, Capabilities()),
        "claude-next": ModelSpec("anthropic", "claude-6", 2_048, Capabilities(vision=True, context=200_000)),
        "small": ModelSpec("ollama", "small", 2_048, Capabilities(tools=False)),
    }
    assert catalogue.tier("gold") == Tier(("qwen", "claude-haiku"), 5)


@pytest.mark.parametrize(
    ("toml", "lines"),
    [
        ("[tiers.free]\nchain = ['claude-haku']", ["tiers.free.chain: there is no model claude-haku; did you mean claude-haiku?"]),
        ("[tiers.free]\nchain = []", ["tiers.free.chain is missing; expected a list of models, such as claude-haiku, claude-sonnet"]),
        (
            "[tiers.gold]",
            [
                "tiers.gold.chain is missing; expected a list of models, such as claude-haiku, claude-sonnet",
                "tiers.gold.day_tokens is missing; expected a whole number of at least 0",
            ],
        ),
        (
            "[models.m]\nid = 'x'",
            ["models.m.backend is missing; expected one of anthropic, openai, ollama, scripted, local, claude_local, codex_local"],
        ),
        ("[models.m]\nbackend = 'olama'", ["models.m.backend: there is no backend olama; did you mean ollama?"]),
        ("[completions]\ntier = 'por'", ["completions.tier: there is no tier por; did you mean pro?"]),
        (
            "[models.m]\nbackend = 'olama'\n[tiers.free]\nchain = ['claude-haku']",
            [
                "models.m.backend: there is no backend olama; did you mean ollama?",
                "tiers.free.chain: there is no model claude-haku; did you mean claude-haiku?",
            ],
        ),
        (
            "\n".join(
                f"[models.{name}]\nbackend = 'ollama'\nid = 'x'\nprices = [{{input = {usd}, output = 1}}]" for name, usd in ("a1", "b2")
            ),
            ["models.a and models.b are one model, x at ollama, with two prices; expected one of them"],
        ),
    ],
)
def test_what_names_nothing_is_refused_before_anything_starts(tmp_path: Path, toml: str, lines: list[str]) -> None:
    assert refusal(tmp_path, toml) == lines


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "models.md"


@pytest.mark.parametrize("example", re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
def test_every_example_of_the_how_to_starts(tmp_path: Path, example: str) -> None:
    said = settings(tmp_path, example, **KEY, OPENAI_API_KEY="o-key")
    check_prices(catalogue_from(said), prices_from(said), TODAY)
    assert {model.backend for model in catalogue_from(said).models.values()} - {"claude_local", "codex_local"} <= backends_from(
        said, HttpClient()
    ).keys()
    assert said != settings(tmp_path, **KEY, OPENAI_API_KEY="o-key")


# --- prices


def test_written_prices_replace_the_known_ones_of_the_same_id(tmp_path: Path) -> None:
    toml = """
        [[models.claude-haiku.prices]]
        input = 0.8
        output = 4
        cache_read = 0.08
        [[models.claude-haiku.prices]]
        since = 2026-12-01
        input = 1
        output = 5
        over = {tokens = 100, input = 2, output = 10, cache_write = 2.5, cache_write_1h = 4}
    """
    prices = prices_from(settings(tmp_path, toml, **KEY))
    assert prices.table() == {
        **Prices(LIST_PRICES).table(),
        ("anthropic", HAIKU): [
            Price(HAIKU, EARLIEST_DAY, TokenRate.usd(0.8, 4, read=0.08), backend="anthropic"),
            Price(HAIKU, date(2026, 12, 1), TokenRate.usd(1, 5), (100, TokenRate.usd(2, 10, write=2.5, hour=4)), "anthropic"),
        ],
    }
    assert prices.rate(ModelAddress("anthropic", HAIKU), TODAY, 0) == TokenRate.usd(0.8, 4, read=0.08), "no list price comes through"


def test_one_model_at_two_backends_has_two_prices(tmp_path: Path) -> None:
    toml = """
        [backends.gpu]
        kind = "vllm"
        base_url = "http://gpu:8000/v1"
        [backends.rented]
        kind = "openai"
        base_url = "https://host.example/v1"
        [models.own]
        backend = "gpu"
        id = "qwen"
        prices = [{input = 0, output = 0}]
        [models.rented]
        backend = "rented"
        id = "qwen"
        prices = [{input = 0.3, output = 1.2}]
        [tiers.free]
        chain = ["own", "rented"]
    """
    said = settings(tmp_path, toml, **KEY, HERMES_BACKENDS_RENTED_API_KEY="k")
    prices = prices_from(said)
    check_prices(catalogue_from(said), prices, TODAY)
    assert [prices.rate(ModelAddress(backend, "qwen"), TODAY, 0) for backend in ("gpu", "rented")] == [FREE_RATE, TokenRate.usd(0.3, 1.2)]
    with pytest.raises(UnknownPrice, match="there is no price for qwen of elsewhere on 2026-11-15"):
        prices.rate(ModelAddress("elsewhere", "qwen"), TODAY, 0)


def test_the_founding_prices_of_haiku_are_an_override_with_a_name(tmp_path: Path) -> None:
    haiku, sonnet = ModelAddress("anthropic", HAIKU), ModelAddress("anthropic", "claude-sonnet-4-6")
    rates = {
        name: [prices_from(settings(tmp_path, f"[llm]\nprices = '{name}'", **KEY)).rate(model, TODAY, 0) for model in (haiku, sonnet)]
        for name in ("vendor", "founding")
    }
    assert [(rate.tokens_in, rate.tokens_out) for rate in rates["founding"]] == [(800_000, 4_000_000), (3_000_000, 15_000_000)]
    assert [(rate.tokens_in, rate.tokens_out) for rate in rates["vendor"]] == [(1_000_000, 5_000_000), (3_000_000, 15_000_000)]


def test_a_chain_with_a_model_without_a_price_does_not_start(tmp_path: Path) -> None:
    toml = "[backends.gpu]\nkind = 'vllm'\nbase_url = 'http://gpu:8000'\n[models.qwen]\nbackend = 'gpu'\n[tiers.free]\nchain = ['qwen']\n"
    said = settings(tmp_path, toml, **KEY)
    with pytest.raises(
        StartRefused, match=r"^tier free: there is no price for qwen \(qwen\) on 2026-11-15; add \[\[models.qwen.prices\]\]$"
    ):
        check_prices(catalogue_from(said), prices_from(said), TODAY)
    said = settings(tmp_path, f"{toml}[[models.qwen.prices]]\ninput = 0\noutput = 0", **KEY)
    check_prices(catalogue_from(said), prices_from(said), TODAY)


def test_what_nobody_bills_costs_nothing_under_any_id(tmp_path: Path) -> None:
    models = "[models.mine]\nbackend = 'local'\nid = 'my-weights'\n[models.opus]\nbackend = 'claude_local'\n"
    toml = f"{models}[tiers.free]\nchain = ['mine', 'opus']"
    said = settings(tmp_path, toml, **KEY)
    assert [prices_from(said).rate(ModelAddress(*at), TODAY, 0) for at in (("local", "my-weights"), ("claude_local", "opus"))] == [
        FREE_RATE,
        FREE_RATE,
    ]
    check_prices(catalogue_from(said), prices_from(said), TODAY)


# --- backends


async def test_backends_are_built_where_they_can_be_and_speak_as_their_kinds_do(tmp_path: Path) -> None:
    client = HttpClient()
    async with vendors() as v:
        toml = f"""
            [backends.anthropic]
            base_url = "{v.anthropic.url}"
            [backends.gpt]
            kind = "openai"
            base_url = "{v.openai.url}"
            [backends.gpu]
            kind = "vllm"
            base_url = "{v.vllm.url}"
            [backends.sglang]
            base_url = "{v.sglang.url}"
            [backends.llama_cpp]
            base_url = "{v.llama_cpp.url}"
            [backends.other]
            kind = "plain"
            base_url = "{v.vllm.url}"
            [backends.ollama]
            base_url = "{v.ollama.url}"
        """
        names = {"anthropic": v.anthropic, "gpt": v.openai, "gpu": v.vllm, "sglang": v.sglang, "llama_cpp": v.llama_cpp, "other": v.vllm}
        keys = {f"HERMES_BACKENDS_{name.upper()}_API_KEY": vendor.key for name, vendor in names.items()}
        said = settings(tmp_path, toml, **keys)
        backends = backends_from(said, client)
        assert set(backends) >= {*names, "ollama", "scripted"}
        assert "openai" not in backends
        for name, vendor in {**names, "ollama": v.ollama}.items():
            vendor.say(f"I am {name}.")
            answer = await backends[name].complete(HELLO, vendor.models[0], timeout_s=5)
            assert (answer.message["content"], backends[name].name) == (f"I am {name}.", name)
        await client.aclose()


async def test_a_health_check_looks_for_the_models_that_somebody_chose(tmp_path: Path) -> None:
    client = HttpClient()
    async with vendors() as v:
        v.anthropic.models[:] = [HAIKU]
        ours = {"HERMES_BACKENDS_ANTHROPIC_API_KEY": v.anthropic.key, "HERMES_BACKENDS_ANTHROPIC_BASE_URL": v.anthropic.url}
        chains = "\n".join(f"[tiers.{name}]\nchain = ['claude-haiku']" for name in DEFAULT_CATALOGUE.tiers)
        health = await backends_from(settings(tmp_path, chains, **ours), client)["anthropic"].health_check()
        assert [check.level for check in health] == [FindingLevel.INFO]
        chosen = f"{chains}\n[models.claude-opus-5-5]"
        health = await backends_from(settings(tmp_path, chosen, **ours), client)["anthropic"].health_check()
        assert [check.code for check in health if check.level is FindingLevel.ERROR] == ["model_missing"]
        await client.aclose()


async def test_what_a_model_can_do_is_known_to_its_backend(tmp_path: Path) -> None:
    backends = backends_from(
        settings(tmp_path, "[models.ollama]\ntools = true\n[models.claude-haiku]\nvision = false", **KEY), HttpClient()
    )
    assert backends["ollama"].capabilities("llama3.2") == Capabilities(tools=True, context=8_192)
    assert backends["anthropic"].capabilities(HAIKU).vision is False
    assert backends["anthropic"].capabilities("claude-opus-5-5").sampling is False


async def test_scripted_answers_from_its_script(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('otherwise = "Mine."', encoding="utf-8")
    scripted = backends_from(settings(tmp_path, "[llm]\nscript = 'mine.toml'"), HttpClient())["scripted"]
    assert (await scripted.complete(HELLO, "scripted", timeout_s=5)).message["content"] == "Mine."
    (tmp_path / "mine.toml").write_text("othewise = 'Mine.'", encoding="utf-8")
    with pytest.raises(StartRefused, match=r"^llm\.script: .*mine\.toml: othewise: unknown key; did you mean"):
        backends_from(settings(tmp_path, "[llm]\nscript = 'mine.toml'"), HttpClient())
    with pytest.raises(StartRefused, match=r"^llm\.script: .*none\.toml: cannot be read \(No such file or directory\)$"):
        backends_from(settings(tmp_path, "[llm]\nscript = 'none.toml'"), HttpClient())


def test_the_local_model_has_the_context_that_its_models_say(tmp_path: Path) -> None:
    toml = "[backends.local]\nmodel_path = 'w.gguf'\nthreads = 2\n[models.mine]\nbackend = 'local'\ncontext = 9_000"
    usual, mine = (backends_from(settings(tmp_path, said), HttpClient())["local"] for said in ("", toml))
    assert [usual.capabilities("m").context, mine.capabilities("m").context] == [4_096, 9_000]
    assert [usual.answers_as("mine"), mine.answers_as("mine")] == ["SmolLM2-135M-Instruct.Q4_1", "w"], "the weights that answer"
    assert usual.capabilities("m") == DEFAULT_CATALOGUE.models["smollm2"].capabilities


def test_every_kind_can_be_built(tmp_path: Path) -> None:
    assert BUILDERS.keys() == set(BackendKind)
    toml = f"[backends.claude_local]\ncommand = ['claude', '--x']\ncwd = '{tmp_path}'"
    found = backends_from(settings(tmp_path, toml), HttpClient())
    assert {"local", "claude_local", "codex_local", "ollama", "scripted"} <= found.keys()
    assert not any(found[name].supports_tools("m") for name in ("claude_local", "codex_local"))


# --- without a key


async def test_in_development_a_script_stands_in_for_a_backend_without_a_key_and_nobody_pays(tmp_path: Path) -> None:
    said = settings(tmp_path)
    catalogue, prices, backends = catalogue_from(said), prices_from(said), backends_from(said, HttpClient())
    assert replaced_backends(said) == missing_backends(said) == {"anthropic": "no key"}
    assert catalogue.models["claude-haiku"] == replace(DEFAULT_CATALOGUE.models["scripted"], stands_for=HAIKU), "it has a name of its own"
    assert {name: model.backend for name, model in catalogue.models.items() if name.startswith("claude-")} == dict.fromkeys(
        ["claude-haiku", "claude-sonnet", "claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5"], "scripted"
    )
    assert [prices.rate(model.address, TODAY, 0) for model in catalogue.models.values()] == [FREE_RATE] * len(catalogue.models)
    check_prices(catalogue, prices, TODAY)
    assert "anthropic" not in backends
    scripted = backends["scripted"]
    assert isinstance(scripted, ScriptedBackend)
    answer = await scripted.complete(HELLO, catalogue.models["claude-haiku"].id, timeout_s=5)
    assert (answer.message["content"], answer.model) == ("Hello! What can I find for you today?", "scripted")


def test_a_small_local_model_can_stand_in_with_the_script_behind_it_for_what_needs_tools(tmp_path: Path) -> None:
    said = settings(tmp_path, '[llm]\nstand_in = "local"')
    catalogue = catalogue_from(said)
    assert catalogue.tiers["starter"].chain == ("claude-haiku", "ollama", "scripted")
    assert catalogue.models["claude-haiku"] == replace(catalogue.models["smollm2"], stands_for=HAIKU)
    assert catalogue.models["ollama"].backend == "ollama", "it needs no key, so nobody stands in"
    check_prices(catalogue, prices_from(said), TODAY)


def test_written_prices_do_not_bill_a_script(tmp_path: Path) -> None:
    toml = "[[models.claude-haiku.prices]]\ninput = 1\noutput = 5\n"
    for stand_in in ("scripted", "local"):
        said = settings(tmp_path, f"{toml}[llm]\nstand_in = '{stand_in}'")
        catalogue, prices = catalogue_from(said), prices_from(said)
        assert [prices.rate(catalogue.models[name].address, TODAY, 0) for name in ("claude-haiku", "claude-sonnet")] == [
            FREE_RATE,
            FREE_RATE,
        ]
        assert prices.rate(ModelAddress("anthropic", HAIKU), TODAY, 0) == TokenRate.usd(1, 5), (
            "the price of the model itself stays what it is"
        )


def test_in_production_a_backend_without_a_key_is_missing_and_nobody_stands_in(tmp_path: Path) -> None:
    said = settings(tmp_path, 'environment = "production"')
    assert said.environment is Environment.PRODUCTION
    assert (missing_backends(said), replaced_backends(said)) == ({"anthropic": "no key"}, {})
    assert catalogue_from(said) == DEFAULT_CATALOGUE
    assert prices_from(said).rate(ModelAddress("anthropic", HAIKU), TODAY, 0) != FREE_RATE
    assert "anthropic" not in backends_from(said, HttpClient())


GPU = "[backends.gpu]\nkind = 'vllm'\nbase_url = 'http://gpu/v1'\n[models.mine]\nbackend = 'gpu'\nprices = [{input = 0.0, output = 0.0}]\n"


@pytest.mark.parametrize(
    ("toml", "environ", "is_refused"),
    [
        ("", {}, True),
        ("", KEY, False),
        ("environment = 'development'", {}, False),
        (GPU, {}, True),  # a server that no chain uses
        (f"{GPU}[tiers.free]\nchain = ['mine']", {}, False),
        ("[tiers.starter]\nchain = ['claude-haiku']", {}, True),
        ("[tiers.starter]\nchain = ['ollama']", {}, False),
        ("[backends.ollama]\nbase_url = 'http://gpu:11434'", {}, False),
        ("[tiers.free]\nchain = ['scripted']", {}, False),  # the operator's own choice
    ],
)
def test_production_needs_a_model_that_the_operator_has_set_up(
    tmp_path: Path, toml: str, environ: dict[str, str], *, is_refused: bool
) -> None:
    said = settings(tmp_path, toml if "environment" in toml else f"environment = 'production'\n{toml}", **environ)
    if not is_refused:
        refuse_no_model(said)
        return
    with pytest.raises(StartRefused, match=r"^no tier has a model that can be asked: set ANTHROPIC_API_KEY .* or a server in"):
        refuse_no_model(said)


def test_openai_needs_a_key_at_its_own_address_only(tmp_path: Path) -> None:
    toml = "[models.gpt]\nbackend = 'openai'\n[backends.openai]\nbase_url = '{}'"
    at_home, elsewhere = settings(tmp_path, toml.format("https://api.openai.com/v1")), settings(tmp_path, toml.format("http://gpu:8000/v1"))
    assert missing_backends(at_home) == {"anthropic": "no key", "openai": "no key"}
    assert missing_backends(elsewhere) == {"anthropic": "no key"}
    assert "openai" in backends_from(elsewhere, HttpClient())
