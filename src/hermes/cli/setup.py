"""`hermes setup`: ask for a model, a channel, the port and the public address, test each, and write hermes.toml."""

from __future__ import annotations

import os
import secrets
import shlex
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from hermes.app.catalogue import catalogue_from, check_prices, prices_from
from hermes.app.home import example_url
from hermes.app.master_keys import new_master_key
from hermes.app.setup_plan import ModelProvider
from hermes.cli.commands import app, lazy_parts
from hermes.cli.doctor import finding_json
from hermes.cli.options import Config, Json, complete_from
from hermes.cli.output import CANNOT_RUN, complain, fail, print_json
from hermes.cli.runtime import run, start_log
from hermes.cli.setup_questions import Questions
from hermes.cli.setup_wizard import ChosenBot, SetupOptions, SetupWizard
from hermes.config import EditableSettings, Environment, LogLevel, Settings, SettingsError, find_settings_file, has_comments
from hermes.ports.channels import ChannelAccount
from hermes.ports.errors import StartRefused
from hermes.turn import Platform

INTERRUPTED = 130
BOT_ACCOUNT = "telegram"
SECRET_PLACES = frozenset({"api_key", "database_url", "redis_url", "master_keys", "embeddings_key"})


@app.command()
def setup(
    *,
    provider: Annotated[
        str | None,
        typer.Option(
            help="anthropic, openai, server (vllm, sglang, llama_cpp, plain), ollama, local, none, or keep.",
            show_default=False,
            autocompletion=complete_from(lambda: list(ModelProvider)),
        ),
    ] = None,
    model_key: Annotated[
        str | None,
        typer.Option(help="The key of the model's vendor. Safer: type it when asked, or set ANTHROPIC_API_KEY.", show_default=False),
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="The address of the model's server.", show_default=False)] = None,
    model: Annotated[str | None, typer.Option(help="The model's name at its server.", show_default=False)] = None,
    prices: Annotated[
        str | None,
        typer.Option(metavar="IN,OUT", help="US dollars for a million tokens, where Hermes has no list price.", show_default=False),
    ] = None,
    telegram_token: Annotated[
        str | None, typer.Option(help="The token of a Telegram bot. Safer: set TELEGRAM_TOKEN.", show_default=False)
    ] = None,
    is_open: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Whether the bot answers every sender, without a sign-up.", show_default="not in production"),
    ] = None,
    port: Annotated[int | None, typer.Option(help="The port of Hermes on this machine.", show_default=False)] = None,
    public_url: Annotated[
        str | None, typer.Option(help="The address at which platforms and users reach Hermes, or none.", show_default=False)
    ] = None,
    is_production: Annotated[
        bool, typer.Option("--production", help="For your servers: asks for the stores and a daily cap too, and makes a master key.")
    ] = False,
    database_url: Annotated[
        str | None, typer.Option(help="In production: the address of PostgreSQL, or none for embedded.", show_default=False)
    ] = None,
    redis_url: Annotated[
        str | None, typer.Option(help="In production: the address of Redis or Valkey, or none for embedded.", show_default=False)
    ] = None,
    daily_usd: Annotated[
        float | None, typer.Option(help="In production: US dollars that all models together may cost in a day.", show_default=False)
    ] = None,
    is_yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: options, variables and defaults answer.")] = False,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Make hermes.toml: asks for a model, a channel, the port and the public address, and tests each answer at once.

    Nothing is written before the last question; Ctrl-C leaves everything as it was. If there is a file, its values are the defaults, and it
    is kept as hermes.toml.bak. Keys that are set in variables stay there. Every question is also an option, and piped lines answer too:

        hermes setup --provider anthropic --yes       # with ANTHROPIC_API_KEY
        hermes setup --provider server --base-url http://gpu:8000/v1 --yes"""
    options = SetupOptions(
        provider=provider,
        model_key=model_key,
        base_url=base_url,
        model=model,
        prices=prices,
        telegram_token=telegram_token,
        is_open=is_open,
        port=port,
        public_url=public_url,
        is_production=is_production,
        database_url=database_url,
        redis_url=redis_url,
        daily_usd=daily_usd,
    )
    try:
        file = find_settings_file(os.environ, config)
        wizard = SetupWizard(options, Questions(is_asking=not is_yes), file, os.environ, dict(file.table))
        start_quiet_log(wizard)
        ask_everything(wizard)
        result = finish(wizard)
    except SettingsError as error:
        *others, last = error.faults
        for fault in others:
            complain(fault)
        fail(last)
    except KeyboardInterrupt:
        typer.echo(err=True)
        complain("stopped; nothing was written")
        raise typer.Exit(INTERRUPTED) from None
    show_result(result, is_json=is_json)


@dataclass(frozen=True, slots=True)
class SetupResult:
    """What the setup did, for people and programs."""

    wizard: SetupWizard
    settings: Settings
    backup: Path | None
    is_changed: bool
    master_key: str | None
    has_bot: bool
    next_steps: tuple[str, ...]


def start_quiet_log(wizard: SetupWizard) -> None:
    settings = wizard.settings()
    start_log(replace(settings, log=replace(settings.log, level=LogLevel.ERROR)))


def ask_everything(wizard: SetupWizard) -> None:
    """Ask, then show what will be written, and ask whether to."""
    questions = wizard.questions
    if questions.is_asking:
        questions.say("Press Enter for the answer in brackets. Ctrl-C stops; nothing is written before the end.", "dim")
    wizard.ask_all()
    check_whole(wizard)
    if wizard.table == wizard.file.table:
        return
    lines = changed_lines(wizard.file.table, wizard.table)
    if questions.is_asking:
        questions.say(f"\n{wizard.file.path}", "bold")
        for line in lines:
            questions.say(f"  {line}")
        if not questions.ask_yes("Write it", "--yes", default=True):
            complain("nothing was written")
            raise typer.Exit(CANNOT_RUN)


def check_whole(wizard: SetupWizard) -> None:
    """Refuse answers with which Hermes would not start."""
    try:
        settings = wizard.settings()
        check_prices(catalogue_from(settings), prices_from(settings), datetime.now(UTC).date())
    except (ValueError, StartRefused) as error:
        fail(f"these answers do not fit together, and nothing was written: {error}")


def finish(wizard: SetupWizard) -> SetupResult:
    """Write the file; then store the bot, and make a master key for production."""
    file, settings = wizard.file, wizard.settings()
    is_changed = wizard.table != file.table or not file.exists
    try:
        backup = file.replace_with(wizard.table) if is_changed else None
    except OSError as error:
        fail(f"{file.path} cannot be written ({error.strerror}); nothing was changed")
    except ValueError as error:
        fail(f"{file.path} cannot hold these answers: {error}")
    needs_key = settings.environment is Environment.PRODUCTION and not settings.master_keys
    steps = list(wizard.next_steps)
    has_bot = wizard.bot is not None and not needs_key
    if wizard.bot is not None and has_bot:
        wizard.questions.say(f"{file.path} is written. Connecting the bot…")
        store_bot(wizard.bot, settings)
    if needs_key:
        steps.insert(0, "export HERMES_MASTER_KEYS=…    # the key above; every process needs it")
    if wizard.bot is not None and not has_bot:
        steps.append("hermes channels add telegram    # the token is stored sealed, so the master key comes first")
    steps.append("hermes up" + ("" if is_found_without_name(file) else f" --config {shlex.quote(str(file.path))}"))
    return SetupResult(wizard, settings, backup, is_changed, new_master_key() if needs_key else None, has_bot, tuple(steps))


def store_bot(bot: ChosenBot, settings: Settings) -> None:
    """Connect the bot and store its account, sealed. If that fails, the settings are written all the same."""
    public = settings.web.public_url
    url = public.rstrip("/") if public is not None and public.startswith("https://") else None
    about = {"token": bot.token, "secret": secrets.token_urlsafe(32)}
    more = {**({"base_url": bot.base_url} if bot.base_url else {}), **({"is_open": "yes"} if bot.is_open else {})}
    account = ChannelAccount(platform=Platform.TELEGRAM, account=BOT_ACCOUNT, about={**about, **more}, is_polled=url is None)
    load = lazy_parts().load_app
    channels = load("channels")

    async def connect() -> None:
        async with load("root").open_hermes(settings, open_tools=load("router").open_no_tools) as hermes:
            address = None if url is None else f"{url}/webhooks/telegram/{BOT_ACCOUNT}"
            profile = await channels.connect_telegram(account, hermes.post, url=address)
            async with hermes.database.begin() as tx:
                stored = replace(account, about={**account.about, "username": profile.username})
                await hermes.adapters.channel_accounts.put(tx, stored)

    try:
        run(connect())
    except (channels.SetupRefused, KeyboardInterrupt) as error:
        complain(
            f"the settings are written, but the bot is not connected: {str(error) or 'stopped'}; try again: hermes channels add telegram"
        )
        raise typer.Exit(CANNOT_RUN) from None


def is_found_without_name(file: EditableSettings) -> bool:
    """Whether Hermes finds the file by itself in this folder."""
    try:
        return find_settings_file(os.environ, None).path.resolve() == file.path.resolve()
    except SettingsError:
        return False


# --- what is shown


def changed_lines(before: object, after: object, path: tuple[str, ...] = ()) -> list[str]:
    """Return a line for each setting that changes, without secrets."""
    if isinstance(before, dict) or isinstance(after, dict):
        old, new = before if isinstance(before, dict) else {}, after if isinstance(after, dict) else {}
        return [line for key in {**old, **new} for line in changed_lines(old.get(key), new.get(key), (*path, key))]
    if before == after:
        return []
    shown = "(removed)" if after is None else "***" if path[-1] in SECRET_PLACES else repr(after)
    return [f"{'.'.join(path)} = {shown}"]


def show_result(result: SetupResult, *, is_json: bool) -> None:
    if is_json:
        print_json(result_json(result))
        return
    path = result.wizard.file.path
    kept = f"; the file before it is {result.backup}" if result.backup else ""
    typer.echo(f"{path} is written{kept}." if result.is_changed else f"{path} stays as it is: nothing changed.")
    if result.backup is not None and has_comments(result.backup):
        typer.echo("Comments are not carried over; they are in that file.")
    if result.master_key is not None:
        typer.echo(f"\nThe master key, shown only now and stored nowhere:\n\n  {result.master_key}\n")
        typer.echo("Keep it with your secrets: without it nothing that users wrote can be read. Set it as HERMES_MASTER_KEYS.")
    if result.has_bot:
        typer.echo("The bot is connected; write to it when Hermes runs.")
    typer.echo("\nNext:" + "".join(f"\n  {step}" for step in result.next_steps))
    typer.echo(f"Then open {example_url(result.settings.web)}/ or try: hermes chat. To check everything: hermes doctor")


def result_json(result: SetupResult) -> dict[str, object]:
    settings, model = result.settings, result.wizard.model
    return {
        "file": str(result.wizard.file.path),
        "backup": str(result.backup) if result.backup else None,
        "is_changed": result.is_changed,
        "environment": settings.environment,
        "provider": model.provider,
        "model": model.model,
        "port": settings.web.port,
        "public_url": settings.web.public_url,
        "has_bot": result.has_bot,
        "master_key": result.master_key,
        "checks": [finding_json(finding) for finding in result.wizard.questions.findings],
        "next": list(result.next_steps),
    }
