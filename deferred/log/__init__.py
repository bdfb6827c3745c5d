"""Base tables and their logs: tracking, the kinds of sources, the ledger of commits, cuts, transactions, leases."""
