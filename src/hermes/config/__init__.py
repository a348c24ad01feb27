"""Settings: read once from `hermes.toml` and HERMES_* variables into one frozen object. Each value is explained where it is declared.

    settings = load(os.environ)
    settings.web.port

Importing this package reads nothing; `load` is the only reader. settings.py declares the settings, with their defaults and reasons;
models.py declares those of backends, models, tiers and MCP servers."""

from hermes.config.describe import SettingDescription, describe, settings_page
from hermes.config.faults import nearest
from hermes.config.load import FOREIGN_VARIABLES, SettingsError, load, platform_home
from hermes.config.models import (
    BackendKind,
    BackendSettings,
    LongPromptSettings,
    McpSettings,
    ModelSettings,
    PriceSettings,
    TierSettings,
    kind_of_backend,
)
from hermes.config.settings import (
    ApiSettings,
    CompletionsSettings,
    CreditSettings,
    DatabaseSettings,
    DeliverySettings,
    Environment,
    HistorySettings,
    ImageSettings,
    InboxSettings,
    LinkSettings,
    LlmSettings,
    LogFormat,
    LogLevel,
    LogSettings,
    LoopSettings,
    MemorySettings,
    PackSettings,
    RedisSettings,
    Settings,
    StandIn,
    ToolSettings,
    WebSettings,
    WorkSettings,
)
from hermes.config.settings_file import EditableSettings, find_settings_file, has_comments
from hermes.config.values import NamedTables, Secret

__all__ = [
    "FOREIGN_VARIABLES",
    "ApiSettings",
    "BackendKind",
    "BackendSettings",
    "CompletionsSettings",
    "CreditSettings",
    "DatabaseSettings",
    "DeliverySettings",
    "EditableSettings",
    "Environment",
    "HistorySettings",
    "ImageSettings",
    "InboxSettings",
    "LinkSettings",
    "LlmSettings",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "LongPromptSettings",
    "LoopSettings",
    "McpSettings",
    "MemorySettings",
    "ModelSettings",
    "NamedTables",
    "PackSettings",
    "PriceSettings",
    "RedisSettings",
    "Secret",
    "SettingDescription",
    "Settings",
    "SettingsError",
    "StandIn",
    "TierSettings",
    "ToolSettings",
    "WebSettings",
    "WorkSettings",
    "describe",
    "find_settings_file",
    "has_comments",
    "kind_of_backend",
    "load",
    "nearest",
    "platform_home",
    "settings_page",
]
