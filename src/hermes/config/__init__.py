"""Settings: read once from `hermes.toml` and HERMES_* variables into one frozen object. Each value is explained where it is declared.

    settings = load(os.environ)
    settings.web.port

Importing this package reads nothing; `load` is the only reader. settings.py declares the settings, with their defaults and reasons;
operations.py declares those of a running service, models.py those of backends, models, tiers, MCP servers and destinations of alerts."""

from hermes.config.describe import SettingDescription, describe, settings_page
from hermes.config.faults import nearest
from hermes.config.load import FOREIGN_VARIABLES, SettingsError, load, platform_home
from hermes.config.models import (
    SERVERS,
    AlertKindSetting,
    AlertLevelSetting,
    AlertSettings,
    BackendKind,
    BackendSettings,
    LongPromptSettings,
    McpSettings,
    ModelSettings,
    PriceSettings,
    TierSettings,
    kind_of_backend,
    kind_of_destination,
)
from hermes.config.operations import JournalSettings, LogFormat, LogLevel, LogSettings, LoopSettings, WatchSettings, WorkSettings
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
    MemorySettings,
    PackSettings,
    RedisSettings,
    Settings,
    StandIn,
    ToolSettings,
    WebSettings,
)
from hermes.config.settings_file import EditableSettings, find_settings_file, has_comments
from hermes.config.values import NamedTables, Secret

__all__ = [
    "FOREIGN_VARIABLES",
    "SERVERS",
    "AlertKindSetting",
    "AlertLevelSetting",
    "AlertSettings",
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
    "JournalSettings",
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
    "WatchSettings",
    "WebSettings",
    "WorkSettings",
    "describe",
    "find_settings_file",
    "has_comments",
    "kind_of_backend",
    "kind_of_destination",
    "load",
    "nearest",
    "platform_home",
    "settings_page",
]
