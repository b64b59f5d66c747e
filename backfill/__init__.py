"""Backfill: categories kept as files by day, the same processors over them in Spark, and the two results compared."""
