"""Base logs and transactions: tracking, the ledger of commits, cuts, the net change between two of them."""
