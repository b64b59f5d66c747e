"""Batch runs: plans, backfill, bootstrap and handoff to the stream."""
