"""Keeping views right: create, propagate, partial_refresh, refresh, rebuild, backfill, verify, explain, gc."""
