"""The console's services, built from a whole Hermes. Each part has a builder of its own beside this module (`console_*.py`), so that a
command loads only the part that it shows."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.app.console_access import access_from, audit_reader_from, desk_from, subjects_from
from hermes.app.console_conversations import conversations_from
from hermes.app.console_costs import costs_from
from hermes.app.console_kill_switch import kill_switch_from
from hermes.app.console_live import LiveConsole, live_from
from hermes.app.console_models import model_board_from
from hermes.app.console_operations import OperationsConsole, operations_console_from
from hermes.app.console_people import keys_from, people_from
from hermes.app.console_settings import settings_reader_from
from hermes.app.console_turn_content import TurnPart, turn_part_from
from hermes.app.root import Hermes
from hermes.console.access import ConsoleAccess
from hermes.console.audit import AuditReader
from hermes.console.conversations import Conversations
from hermes.console.costs import ConsoleCosts
from hermes.console.keys import ConsoleKeys
from hermes.console.kill_switch import KillSwitchControl
from hermes.console.models import ModelBoard
from hermes.console.operators import OperatorDesk
from hermes.console.people import ConsolePeople
from hermes.console.replays import ReplayConsole
from hermes.console.settings import SettingsReader
from hermes.console.subjects import SubjectReader
from hermes.ports.operators import AuditLog, Operators
from hermes.ports.runtime import Transactions
from hermes.stores.postgres.operators import PostgresAuditLog, PostgresOperators


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """What stands behind the pages and the API of operators."""

    transactions: Transactions
    operators: Operators
    audit: AuditLog
    access: ConsoleAccess
    live: LiveConsole
    turns: TurnPart
    costs: ConsoleCosts
    people: ConsolePeople
    keys: ConsoleKeys
    settings: SettingsReader
    kill_switch: KillSwitchControl
    models: ModelBoard
    desk: OperatorDesk
    audit_reader: AuditReader
    subjects: SubjectReader
    operations: OperationsConsole
    """Queues, workers, alerts and the fleet."""
    conversations: Conversations
    replay: ReplayConsole


def console_from(hermes: Hermes) -> Console:
    """Return the console of a running Hermes."""
    return Console(
        transactions=hermes.database,
        operators=PostgresOperators(),
        audit=PostgresAuditLog(),
        access=access_from(hermes.settings, hermes.database),
        live=live_from(hermes),
        turns=turn_part_from(hermes.settings, hermes.database, hermes.keyring),
        costs=costs_from(hermes.database, hermes.gateway.spent_today),
        people=people_from(hermes),
        keys=keys_from(hermes),
        settings=settings_reader_from(hermes),
        kill_switch=kill_switch_from(hermes),
        models=model_board_from(hermes),
        desk=desk_from(hermes.settings, hermes.database),
        audit_reader=audit_reader_from(hermes.database),
        subjects=subjects_from(hermes.database),
        operations=operations_console_from(hermes),
        conversations=conversations_from(hermes.settings, hermes.database, hermes.keyring),
        replay=hermes.replays,
    )
