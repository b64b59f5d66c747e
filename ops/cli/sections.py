"""Configuration tables that are not options of a command."""

from __future__ import annotations

from ..alerting.rules import Alerting
from ..config.section import Section

SECTIONS: dict[str, type[Section]] = {"alerting": Alerting}
"""Types by name. A command reads a section with `configuration_of(context).section(…)`. Every command checks all sections."""
