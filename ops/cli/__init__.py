"""The command line: what a user types, and nothing else."""

from .main import main

__all__ = ["main"]
