"""Configuration tables that are not options of a command."""

from __future__ import annotations

from ..alerting.rules import Alerting
from ..config.hdfs import Hdfs
from ..config.section import Section
from ..laser.declared_table import DeclaredTable

SECTIONS: dict[str, type[Section]] = {"alerting": Alerting, "hdfs": Hdfs}
"""Types by name. A command reads a section with `configuration_of(context).section(…)`. Every command checks all sections."""
NAMED_SECTIONS: dict[str, type[Section]] = {"laser-tables": DeclaredTable}
"""Types of tables with names of the user's choice, such as [laser-tables.rankings]. Read one with `named_section(…)`."""
