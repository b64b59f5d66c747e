"""Declarations inferred from topics that other programs write."""

from .declaration import declaration_of
from .topic_sample import TopicSample, read_sample

__all__ = ["TopicSample", "declaration_of", "read_sample"]
