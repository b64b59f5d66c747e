"""The name of Scuba's server, for messages about access to it."""

from __future__ import annotations

from ..dashboard.access import GuardedSite

SCUBA = GuardedSite("Scuba server", "the content of events", "penstock scuba serve", "PENSTOCK_SCUBA_TOKEN")
