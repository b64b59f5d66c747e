"""Spark itself: its session, what is sent to it, how far it is, and what it says when it fails."""
