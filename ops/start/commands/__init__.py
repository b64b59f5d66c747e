"""Commands that begin an app."""
