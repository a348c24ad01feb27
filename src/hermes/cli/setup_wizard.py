"""The questions of `hermes setup`, in their order. Each answer is tested at once, and changes the table of the settings file in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from urllib.parse import urlsplit

from hermes.app import setup_checks
from hermes.app.doctor import check_models
from hermes.app.doctor_basics import Health, HealthFinding
from hermes.app.setup_plan import (
    SERVER_PROVIDERS,
    ModelAnswer,
    ModelProvider,
    Table,
    answering_backends,
    default_provider,
    has_list_price,
    has_prices,
    other_variable_that_sets,
    variable_that_sets,
    with_backend,
    with_model,
    with_value,
)
from hermes.cli.output import fail
from hermes.cli.runtime import run
from hermes.cli.setup_questions import Question, Questions
from hermes.config import EditableSettings, Environment, Settings, SettingsError
from hermes.config.values import check_address

DEFAULT_CAP_USD = "20"
MAX_LISTED = 12
PROVIDERS: Mapping[ModelProvider, str] = {
    ModelProvider.KEEP: "what the settings say now",
    ModelProvider.ANTHROPIC: "Claude, with an API key from console.anthropic.com",
    ModelProvider.OPENAI: "OpenAI, with an API key from platform.openai.com",
    ModelProvider.SERVER: "a server of yours with OpenAI's API: vLLM, SGLang, llama.cpp, LM Studio and others",
    ModelProvider.OLLAMA: "an Ollama",
    ModelProvider.LOCAL: "a small model on this machine, to try Hermes",
    ModelProvider.NONE: "no model: a script answers, to try Hermes",
}
"""What the menu shows. `--provider` also takes the kinds of servers."""
SERVER_URLS: Mapping[ModelProvider, str] = {
    ModelProvider.OLLAMA: "http://127.0.0.1:11434",
    ModelProvider.SGLANG: "http://127.0.0.1:30000/v1",
    ModelProvider.LLAMA_CPP: "http://127.0.0.1:8081/v1",
}
DEFAULT_SERVER_URL = "http://127.0.0.1:8000/v1"
DEVELOPMENT_ONLY = frozenset({ModelProvider.NONE, ModelProvider.LOCAL})
"""Providers for trying Hermes: their answers are made up."""
NOTHING = "none"
CHANNELS = ("telegram", "whatsapp", "instagram", NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupOptions:
    """The answers that the command line gives; None: the setup asks."""

    provider: str | None = None
    model_key: str | None = None
    base_url: str | None = None
    model: str | None = None
    prices: str | None = None
    telegram_token: str | None = None
    is_open: bool | None = None
    port: int | None = None
    public_url: str | None = None
    is_production: bool = False
    database_url: str | None = None
    redis_url: str | None = None
    daily_usd: float | None = None


@dataclass(frozen=True, slots=True)
class ChosenBot:
    """A Telegram bot whose token Telegram knows. It is stored in the database, and not in the settings."""

    token: str
    base_url: str | None
    is_open: bool


@dataclass(slots=True)
class SetupWizard:
    """Asks for everything, and keeps the answers in `table`."""

    options: SetupOptions
    questions: Questions
    file: EditableSettings
    environ: Mapping[str, str]
    table: Table
    model: ModelAnswer = field(default_factory=lambda: ModelAnswer(ModelProvider.KEEP))
    bot: ChosenBot | None = None
    next_steps: list[str] = field(default_factory=list)
    """Commands that the user must run before `hermes up`."""

    def settings(self, table: Mapping[str, object] | None = None) -> Settings:
        """Return the settings of a table, by default of the answers so far. Raises ValueError with the first fault."""
        try:
            return self.file.settings_with(self.table if table is None else table, self.environ)
        except SettingsError as error:
            raise ValueError(error.faults[0]) from None

    def ask_all(self) -> None:
        if self.options.is_production:
            self.table = with_value(self.table, ("environment",), Environment.PRODUCTION.value)
        self.choose_model()
        if self.is_production:
            self.choose_store("database_url", "PostgreSQL", self.options.database_url)
            self.choose_store("redis_url", "Redis or Valkey", self.options.redis_url)
            self.choose_cap()
        self.choose_port()
        self.choose_public_url()
        self.choose_channel()

    @property
    def is_production(self) -> bool:
        return self.settings().environment is Environment.PRODUCTION

    # --- the model

    def choose_model(self) -> None:
        default = default_provider(self.table, self.settings())
        if default in DEVELOPMENT_ONLY and self.is_production:
            default = ModelProvider.ANTHROPIC
        if self.questions.is_asking and self.options.provider is None:
            self.questions.say("Where do the answers come from?", "bold")
            for provider, what in PROVIDERS.items():
                if provider is not ModelProvider.KEEP or default is ModelProvider.KEEP:
                    self.questions.say(f"  {provider:<10} {what}")
        question = Question("Model", "--provider", default.value)
        provider = read_provider(self.questions.settle(question, self.options.provider, self._refuse_provider))
        before = self.settings()
        match provider:
            case ModelProvider.KEEP:
                self._test_kept(before)
            case ModelProvider.LOCAL:
                self._test_local(before)
            case ModelProvider.ANTHROPIC | ModelProvider.OPENAI:
                self._choose_key(provider)
            case _ if provider in SERVER_PROVIDERS:
                self._choose_server(provider)
        if provider in SERVER_PROVIDERS or provider is ModelProvider.OPENAI:
            self._choose_name(run(setup_checks.list_models(self.settings(with_backend(self.table, self.model)), self.model.backend)))
        elif provider is ModelProvider.ANTHROPIC and self.options.model is not None:
            self._choose_name(setup_checks.ServedModels())
        self.model = self.model if self.model.provider is not ModelProvider.KEEP else ModelAnswer(provider)
        self.table = with_model(self.table, self.model, before)

    def _refuse_provider(self, text: str) -> None:
        provider = read_provider(text)
        is_none = provider is ModelProvider.KEEP and not answering_backends(self.settings())
        if self.is_production and (provider in DEVELOPMENT_ONLY or is_none):
            raise ValueError("production needs a model; choose one of anthropic, openai, server, ollama")

    def _test_kept(self, settings: Settings) -> None:
        async def collect() -> list[HealthFinding]:
            return [finding async for finding in check_models(settings)]

        for finding in run(collect()):
            self.questions.report(finding)

    def _test_local(self, settings: Settings) -> None:
        finding, code = run(setup_checks.check_backend(settings, ModelProvider.LOCAL.value))
        if code == "not_installed":
            self.next_steps.append("hermes local install")
            finding = HealthFinding("model", Health.WARNING, "the small model is not installed yet", "install it: hermes local install")
        self.questions.report(finding)

    def _choose_key(self, provider: ModelProvider) -> None:
        """Ask for the key of a vendor, unless a variable has it, and test it."""
        self.model = ModelAnswer(provider, base_url=self._given_address(provider), model=self.options.model)
        name = f"backends.{provider}.api_key"
        variable = variable_that_sets(name, self.environ)
        other = other_variable_that_sets(name, self.environ)
        written = self.table.get("backends", {}).get(provider.value, {}).get("api_key")
        if variable is not None:
            refuse_both("--model-key", self.options.model_key, variable)
        if variable is not None or (other is not None and written is None and self.options.model_key is None):
            self.questions.say(f"The key comes from {variable or other}; it is not written to the file.")
            self._test_without_question()
            return
        title = "Anthropic" if provider is ModelProvider.ANTHROPIC else "OpenAI"
        shown = "the key of the file" if written else None
        question = Question(f"API key of {title}", "--model-key", written or "", shown, is_secret=True)
        self.model = replace(self.model, api_key=self.questions.settle(question, self.options.model_key, self._test_key))

    def _test_key(self, key: str) -> HealthFinding:
        if not key:
            raise ValueError("a key is needed; Ctrl-C stops the setup")
        check_header(key)
        return self._test_backend(replace(self.model, api_key=key))[0]

    def _test_without_question(self) -> None:
        finding, _ = self._test_backend(self.model)
        self.questions.report(finding)
        if finding.health is Health.BAD and not self.questions.is_asking:
            fail(f"{finding.says}; {finding.advice}")

    def _test_backend(self, answer: ModelAnswer) -> tuple[HealthFinding, str]:
        return run(setup_checks.check_backend(self.settings(with_backend(self.table, answer)), answer.backend))

    def _given_address(self, provider: ModelProvider) -> str | None:
        if self.options.base_url is not None:
            refuse_both("--base-url", self.options.base_url, variable_that_sets(f"backends.{provider}.base_url", self.environ))
        return self.options.base_url

    def _choose_server(self, provider: ModelProvider) -> None:
        """Ask for the address of a server, then for a key if the server wants one."""
        self.model = ModelAnswer(provider, api_key=self.options.model_key)
        written = self.table.get("backends", {}).get(self.model.backend, {}).get("base_url")
        variable = variable_that_sets(f"backends.{self.model.backend}.base_url", self.environ)
        if variable is not None:
            self._given_address(provider)
            self.questions.say(f"The address comes from {variable}; it is not written to the file.")
            self._test_without_question()
            return
        default = written or SERVER_URLS.get(provider, DEFAULT_SERVER_URL)
        self.questions.settle(Question("Address of the server", "--base-url", default), self.options.base_url, self._test_address)
        if self._test_backend(self.model)[1] == "unauthorized":
            question = Question("Key of the server", "--model-key", is_secret=True)
            self.model = replace(self.model, api_key=self.questions.settle(question, None, self._test_key))

    def _test_address(self, url: str) -> HealthFinding:
        """Test the server at an address, and at /v1 below it: many servers have their API there, and users forget it."""
        try:
            check_address(url)
        except ValueError:
            raise ValueError("this is no address; expected one such as http://127.0.0.1:8000/v1") from None
        is_bare = self.model.provider is not ModelProvider.OLLAMA and not urlsplit(url).path.rstrip("/").endswith("/v1")
        finding = None
        for candidate in (url, f"{url.rstrip('/')}/v1") if is_bare else (url,):
            self.model = replace(self.model, base_url=candidate)
            found, code = self._test_backend(self.model)
            if code == "unauthorized":
                return HealthFinding("model", Health.WARNING, f"{candidate} wants a key") if not self.model.api_key else found
            if found.health is Health.GOOD:
                return replace(found, says=f"{candidate} answers")
            finding = finding or found
        self.model = replace(self.model, base_url=url)
        return finding or HealthFinding("model", Health.BAD, f"{url} does not answer")

    def _choose_name(self, served: setup_checks.ServedModels) -> None:
        """Ask which of the server's models, and what it costs."""
        if self.model.provider is ModelProvider.SERVER:
            self.model = replace(self.model, provider=served.kind)
        if self.questions.is_asking and len(served.names) > 1:
            more = f" and {len(served.names) - MAX_LISTED} more" if len(served.names) > MAX_LISTED else ""
            self.questions.say(f"It has: {', '.join(served.names[:MAX_LISTED])}{more}")
        default = served.names[0] if len(served.names) == 1 else ""
        check = partial(self._test_name, served=served.names)
        name = self.questions.settle(Question("Name of the model there", "--model", default), self.options.model, check)
        self.model = replace(self.model, model=name, prices=self._choose_prices(name))

    def _test_name(self, name: str, served: tuple[str, ...]) -> HealthFinding | None:
        if not name:
            raise ValueError("a name is needed" + (f"; the server has {', '.join(served[:MAX_LISTED])}" if served else ""))
        is_listed = not served or name in served or f"{name}:latest" in served
        if is_listed or self.model.provider is ModelProvider.LLAMA_CPP:
            return None
        return HealthFinding("model", Health.BAD, f"the server has no model {name}", f"it has {', '.join(served[:MAX_LISTED])}")

    def _choose_prices(self, name: str) -> tuple[float, float] | None:
        """Return what the model costs. Only a vendor's model is asked about: a server of one's own charges nothing."""
        if self.options.prices is None and (has_prices(self.table, name) or has_list_price(name)):
            return None
        is_vendor = self.model.provider in {ModelProvider.OPENAI, ModelProvider.PLAIN, ModelProvider.ANTHROPIC}
        if self.options.prices is None and not is_vendor:
            return 0.0, 0.0
        default = "0,0" if self.model.provider is ModelProvider.PLAIN else ""
        question = Question("Its price in US dollars for a million tokens, input,output", "--prices", default)

        def refuse(text: str) -> None:
            read_prices(text)

        return read_prices(self.questions.settle(question, self.options.prices, refuse))

    # --- stores and money, in production

    def choose_store(self, name: str, title: str, given: str | None) -> None:
        """Ask for the address of a store; without one it runs embedded in the data folder."""
        option = f"--{name.replace('_', '-')}"
        variable, written = variable_that_sets(name, self.environ), self.table.get(name)
        check = setup_checks.check_database if name == "database_url" else setup_checks.check_cache
        if variable is not None:
            refuse_both(option, given, variable)
            self.questions.say(f"The address of {title} comes from {variable}; it is not written to the file.")
            self.questions.report(run(check(self.settings())))
            return

        def test(url: str) -> HealthFinding:
            if url == NOTHING:
                return HealthFinding(name.removesuffix("_url"), Health.GOOD, "embedded in the data folder of this machine")
            return run(check(self.settings(with_value(self.table, (name,), url))))

        shown = "the address of the file" if written else None
        question = Question(f"Address of {title} ({NOTHING}: embedded on this machine)", option, written or NOTHING, shown)
        answer = self.questions.settle(question, given, test)
        self.table = with_value(self.table, (name,), None if answer == NOTHING else answer)

    def choose_cap(self) -> None:
        """Ask how much all models may cost in a day."""
        place = ("llm", "global_daily_budget_usd")
        name = ".".join(place)
        variable = variable_that_sets(name, self.environ) or other_variable_that_sets(name, self.environ)
        if variable is not None and self.options.daily_usd is None:
            self.questions.say(f"The daily cap comes from {variable}.")
            return
        written = self.settings().llm.global_daily_budget_usd
        default = DEFAULT_CAP_USD if written is None else f"{written:g}"
        question = Question("US dollars that all models together may cost in a day", "--daily-usd", default)
        given = None if self.options.daily_usd is None else str(self.options.daily_usd)

        def test(text: str) -> None:
            self.settings(with_value(self.table, place, read_dollars(text)))

        self.table = with_value(self.table, place, read_dollars(self.questions.settle(question, given, test)))

    # --- the web

    def choose_port(self) -> None:
        variable = variable_that_sets("web.port", self.environ)
        given = None if self.options.port is None else str(self.options.port)
        if variable is not None:
            refuse_both("--port", given, variable)
            self.questions.say(f"The port comes from {variable}; it is not written to the file.")
            self.questions.report(run(setup_checks.check_port(self.settings())))
            return

        def test(text: str) -> HealthFinding:
            return run(setup_checks.check_port(self.settings(with_value(self.table, ("web", "port"), read_port(text)))))

        before = self.settings().web.port
        port = read_port(self.questions.settle(Question("Port of Hermes on this machine", "--port", str(before)), given, test))
        if port != before:
            self.table = with_value(self.table, ("web", "port"), port)

    def choose_public_url(self) -> None:
        variable = variable_that_sets("web.public_url", self.environ)
        if variable is not None:
            refuse_both("--public-url", self.options.public_url, variable)
            self.questions.say(f"The public address comes from {variable}; it is not written to the file.")
            return

        def test(url: str) -> HealthFinding | None:
            return None if url == NOTHING else run(setup_checks.check_public_url(url))

        text = f"Public address, such as https://hermes.example.com ({NOTHING}: only this machine)"
        question = Question(text, "--public-url", self.settings().web.public_url or NOTHING)
        answer = self.questions.settle(question, self.options.public_url, test)
        self.table = with_value(self.table, ("web", "public_url"), None if answer == NOTHING else answer)

    # --- the channel

    def choose_channel(self) -> None:
        """Ask for a channel. The token of a bot is tested; WhatsApp and Instagram have more to enter, for which there is a command."""
        token = self.options.telegram_token or self.environ.get("TELEGRAM_TOKEN", "").strip() or None
        channel = "telegram" if token else self._ask_channel()
        if channel in {"whatsapp", "instagram"}:
            self.next_steps.append(f"hermes channels add {channel} --help")
        if channel != "telegram":
            return
        base_url = self.environ.get("TELEGRAM_BASE_URL", "").strip() or None
        question = Question("Token of the bot, from @BotFather", "--telegram-token", is_secret=True)
        given = self.questions.settle(question, token, lambda text: run(setup_checks.check_bot(text, base_url)))
        is_open = self.options.is_open
        if is_open is None:
            text = "Answer every person who writes to the bot, without a sign-up"
            is_open = self.questions.ask_yes(text, "--open", default=not self.is_production)
        self.bot = ChosenBot(given, base_url, is_open)

    def _ask_channel(self) -> str:
        def refuse(text: str) -> None:
            if text not in CHANNELS:
                raise ValueError(f"there is no channel {text!r}; expected one of {', '.join(CHANNELS)}")

        question = Question(f"Channel: {', '.join(CHANNELS)}", "--telegram-token", NOTHING)
        return self.questions.settle(question, None, refuse)


# --- texts


def read_provider(text: str) -> ModelProvider:
    """Return the provider of this name; `scripted` is the name of the script that answers without a model."""
    try:
        return ModelProvider.NONE if text.lower() == "scripted" else ModelProvider(text.lower().replace(".", "_").replace("-", "_"))
    except ValueError:
        raise ValueError(f"there is no provider {text!r}; expected one of {', '.join(ModelProvider)}") from None


def read_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise ValueError(f"{text!r} is no port; expected a whole number from 0 to 65535")
    return int(text)


def read_dollars(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number of dollars; expected one such as 20") from None


def read_prices(text: str) -> tuple[float, float]:
    try:
        first, second = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError("expected two numbers, such as 0.25,2") from None
    if not (0 <= first < 1e6 and 0 <= second < 1e6):
        raise ValueError("expected two prices of at least 0, such as 0.25,2")
    return first, second


def check_header(key: str) -> None:
    """Raise ValueError for a key that no HTTP header can carry."""
    if not (key.isascii() and key.isprintable()):
        raise ValueError("a key has no line breaks and no letters beyond ASCII; copy it again")


def refuse_both(option: str, given: str | None, variable: str | None) -> None:
    """End the command if an option and a variable say the same: the variable would win over the file."""
    if given is not None and variable is not None:
        fail(f"{variable} is set, and wins over the file; remove it, or leave out {option}")
