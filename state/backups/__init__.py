"""Backups of open shards, made while the worker runs. They replace lost disks and follow buckets to other machines.

    open state --snapshot--> folder of hard links --save--> files in a store, then a manifest     (scheduler, writer)
    manifest --fetch--> verified files --> the shard's current database                           (restore)

The manifest is written last. Without it, stored files are not a backup.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
