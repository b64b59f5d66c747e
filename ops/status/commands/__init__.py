"""Commands that show the status and act on it."""
