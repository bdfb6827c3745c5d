"""The metadata room: what is tracked, what every view shows, who is working. No Spark here, no SQLAlchemy outside."""

from deferred.metadata.records import (
    Alteration,
    Cut,
    Declared,
    Filling,
    Lease,
    LedgerEntry,
    OperationRecord,
    OperationState,
    RememberedDefinition,
    SharedTable,
    TableRecord,
    TransactionRecord,
    TransactionState,
    ViewRecord,
    ViewState,
    utc_now,
)
from deferred.metadata.store import Metadata

__all__ = [
    "Alteration",
    "Cut",
    "Declared",
    "Filling",
    "Lease",
    "LedgerEntry",
    "Metadata",
    "OperationRecord",
    "OperationState",
    "RememberedDefinition",
    "SharedTable",
    "TableRecord",
    "TransactionRecord",
    "TransactionState",
    "ViewRecord",
    "ViewState",
    "utc_now",
]
