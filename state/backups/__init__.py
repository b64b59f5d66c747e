"""Backups of shards' states, beside the worker's work: what a lost disk or a bucket that moved is restored from.

    open state --snapshot--> folder of hard links --save--> files at a place, then a manifest     (keeper, owner)
    manifest --fetch--> files, checked --> a shard's current database                             (restoring)

The manifest is written last: without it there is no backup, whatever else was stored.
"""
