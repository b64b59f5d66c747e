"""The command line: parsing of options and output of results."""

from .main import main

__all__ = ["main"]
