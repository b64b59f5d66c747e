"""Configuration tables that are not options of a command."""

from __future__ import annotations

from ..config import Section
from ..declared import declared

SECTIONS: dict[str, type[Section]] = {
    "alerting": declared("status.alerts.rules:Alerting"),
    "hdfs": declared("shell.config.hdfs:HdfsSection"),
}
"""Types by name. A command reads a section with `configuration_of(context).section(…)`. Every command checks all sections."""
NAMED_SECTIONS: dict[str, type[Section]] = {"laser-tables": declared("serve.latest.declared_table:DeclaredTable")}
"""Types of tables with names of the user's choice, such as [laser-tables.rankings]. Read one with `named_section(…)`."""
