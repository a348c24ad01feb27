"""Settings: read once from `hermes.toml` and HERMES_* variables into one frozen object, each value explained where it is declared.

    settings = load(os.environ)
    settings.web.port

Importing this reads nothing; `load` is the only reader. The settings themselves, with their defaults and reasons, are in settings.py."""

from hermes.config.describe import Described, describe, settings_page
from hermes.config.load import SettingsError, load, platform_home
from hermes.config.secret import Secret
from hermes.config.settings import (
    ApiSettings,
    CreditSettings,
    DatabaseSettings,
    Environment,
    HistorySettings,
    InboxSettings,
    LogFormat,
    LogLevel,
    LogSettings,
    LoopSettings,
    RedisSettings,
    Settings,
    WebSettings,
    WorkSettings,
)

__all__ = [
    "ApiSettings",
    "CreditSettings",
    "DatabaseSettings",
    "Described",
    "Environment",
    "HistorySettings",
    "InboxSettings",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "LoopSettings",
    "RedisSettings",
    "Secret",
    "Settings",
    "SettingsError",
    "WebSettings",
    "WorkSettings",
    "describe",
    "load",
    "platform_home",
    "settings_page",
]
