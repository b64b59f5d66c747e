"""Declarations inferred from topics that other programs write."""

from .declaration import declaration_of
from .formats import TopicNotInferable
from .registries import PASSWORD_VARIABLE, NamedRegistry
from .topic_sample import TopicSample, read_sample

__all__ = ["PASSWORD_VARIABLE", "NamedRegistry", "TopicNotInferable", "TopicSample", "declaration_of", "read_sample"]
