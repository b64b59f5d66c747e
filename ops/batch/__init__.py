"""The warehouse from the command line: archive, backfill, bootstrap, compare."""
