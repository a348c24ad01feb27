"""Access to the console, operators and the audit log, for a whole Hermes and for commands."""

from __future__ import annotations

from datetime import UTC, datetime

from hermes.config import Environment, Settings
from hermes.console.access import ConsoleAccess
from hermes.console.audit import AuditReader
from hermes.console.operators import OperatorDesk
from hermes.console.sign_in import SignIn
from hermes.console.subjects import SubjectReader
from hermes.ports.runtime import Transactions
from hermes.stores.postgres.operators import PostgresAuditLog, PostgresContentOwners, PostgresOperators


def access_from(settings: Settings, transactions: Transactions) -> ConsoleAccess:
    """Return what checks and audits operators. In production content is opened with a reason only."""
    needs_reason = settings.environment is Environment.PRODUCTION
    return ConsoleAccess(transactions, PostgresAuditLog(), needs_reason=needs_reason, now=lambda: datetime.now(UTC))


def sign_in_from(transactions: Transactions) -> SignIn:
    """Return what makes and checks links, sessions and tokens."""
    return SignIn(transactions, PostgresOperators(), PostgresAuditLog())


def desk_from(settings: Settings, transactions: Transactions) -> OperatorDesk:
    """Return what owners do with operators."""
    return OperatorDesk(access_from(settings, transactions), sign_in_from(transactions))


def audit_reader_from(transactions: Transactions) -> AuditReader:
    return AuditReader(transactions, PostgresAuditLog())


def subjects_from(transactions: Transactions) -> SubjectReader:
    return SubjectReader(transactions, PostgresContentOwners())
