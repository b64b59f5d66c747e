"""Snapshots of running apps: consistent cuts of all processors, taken, listed, deleted and restored."""
