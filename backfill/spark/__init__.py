"""Spark: session, shipping of apps, progress and error translation."""
