"""Pipes: processors whose code is a program in any language, which reads lines and writes lines."""

from .lines import Line
from .pipe import Pipe

__all__ = ["Line", "Pipe"]
