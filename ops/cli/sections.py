"""The tables of the configuration that are not options of a command: what they are called, and who reads them."""

from __future__ import annotations

from ..alerting.rules import Alerting
from ..config.section import Section

SECTIONS: dict[str, type[Section]] = {"alerting": Alerting}
"""By name. A command reads one with `configuration_of(context).section(…)`; all of them are checked before every command."""
