"""The metadata room: what is tracked, what every view shows, who is working. No Spark here, no SQLAlchemy outside."""

from deferred.metadata.records import (
    Cut,
    Lease,
    LedgerEntry,
    OperationRecord,
    OperationState,
    RememberedDefinition,
    TableRecord,
    TransactionRecord,
    TransactionState,
    ViewRecord,
    ViewState,
    utc_now,
)
from deferred.metadata.store import Metadata

__all__ = [
    "Cut",
    "Lease",
    "LedgerEntry",
    "Metadata",
    "OperationRecord",
    "OperationState",
    "RememberedDefinition",
    "TableRecord",
    "TransactionRecord",
    "TransactionState",
    "ViewRecord",
    "ViewState",
    "utc_now",
]
