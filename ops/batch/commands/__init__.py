"""Commands that archive and compute with Spark."""
